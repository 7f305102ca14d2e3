"""A table of several evaluations."""

import math
import operator
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lwd.errors import InputError
from lwd.evaluation.evaluate import RESULT
from lwd.evaluation.features import PARTS
from lwd.evaluation.formats import EvaluationFile, MetricValue
from lwd.evaluation.score import TITLES, Metric, paired

Evaluation = EvaluationFile
DISTANCES = ("fid", "sfid", "kid", "frechet")
"""Metrics of which a ratio says how much better one set is."""
CLEAR = 3.0
"""A distance that is not this many standard errors above 0 is not divided by."""


def read_evaluations(runs: Sequence[str | os.PathLike[str]]) -> dict[str, Evaluation]:
    """Read evaluations by name: from files, directories that contain one, or directories of such directories."""
    found: dict[str, Evaluation] = {}
    for run in map(Path, runs):
        paths = (
            [run] if run.is_file() else [run / RESULT] if (run / RESULT).is_file() else sorted(run.glob(f"*/{RESULT}"))
        )
        if not paths:
            raise InputError(f"{run} has no {RESULT}; run lwd evaluate first")
        for path in paths:
            found[_name(path, found)] = EvaluationFile.read(path)
    return found


def _name(path: Path, taken: Mapping[str, Any]) -> str:
    short = path.parent.name if path.name == RESULT else path.stem
    return short if short not in taken else str(path)


def comparison_table(evaluations: Mapping[str, Evaluation]) -> str:
    """Format evaluations as a Markdown table, with notes if references, networks or counts differ."""
    names = [name for name in TITLES if any(name in e.metrics for e in evaluations.values())]
    lines = ["| samples | images | steps | NFE | " + " | ".join(TITLES[name] for name in names) + " |"]
    lines.append("| --- |" + " ---: |" * (3 + len(names)))
    for title, e in evaluations.items():
        cells = [title, str(e.samples.count), *(_text(value) for value in (steps_of(e), nfe_of(e)))]
        cells += [_cell(e.metrics.get(name)) for name in names]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines + [f"\n{note}" for note in notes(evaluations) or ratios(evaluations)])


def notes(evaluations: Mapping[str, Evaluation]) -> list[str]:
    """Return reasons why rows are not comparable."""
    found = []
    for what, key in (
        ("references", lambda e: e.reference.digest),
        ("networks", lambda e: str(e.networks)),
        ("numbers of samples", lambda e: e.samples.count),
    ):
        if len({key(e) for e in evaluations.values()}) > 1:
            found.append(f"Not comparable: the rows have different {what}.")
    return found


def ratios(evaluations: Mapping[str, Evaluation]) -> list[str]:
    """Return the distances of all other rows over those of the first, with paired errors where the files allow it.

    Errors that sets with the same seeds and classes share cancel; for independent sets they are the usual ones.
    """
    rows = list(evaluations.items())
    found, old = [], [name for name, e in rows if not any(m.without for m in e.metrics.values())]
    if len(rows) > 1 and old:
        found.append(f"No ratios for evaluations of an earlier version; evaluate again: {', '.join(old)}.")
    for name, e in rows[1:]:
        cells = [_ratio(metric, e, rows[0][1]) for metric in DISTANCES]
        if any(cells):
            found.append(f"{name} over {rows[0][0]}: {', '.join(filter(None, cells))}.")
    return found


def _ratio(name: str, e: Evaluation, base: Evaluation) -> str:
    """The ratio in words; empty if a file lacks it, or if the base cannot be told from 0."""
    one, other = e.metrics.get(name), base.metrics.get(name)
    if not (one and other and len(one.without) == len(other.without) == PARTS):
        return ""
    if other.value <= CLEAR * other.error or min(other.without) <= 0:
        return ""
    ratio = paired(_metric(one), _metric(other), operator.truediv)
    return f"{TITLES[name]} {ratio.value:.3f} ± {ratio.error:.3f}" if math.isfinite(ratio.error) else ""


def _metric(one: MetricValue) -> Metric:
    return Metric(one.value, one.error, tuple(one.without))


def steps_of(e: Evaluation) -> Any:
    """Return the training steps of the evaluated model, if recorded."""
    return e.samples.model.step if e.samples.model else None


def nfe_of(e: Evaluation) -> Any:
    """Return the network evaluations per sample, if recorded."""
    return e.samples.nfe


def _text(value: Any) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _cell(metric: MetricValue | None) -> str:
    return "" if metric is None else f"{metric.value:.4g} ± {metric.error:.2g}"
