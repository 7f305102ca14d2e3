"""Evaluations side by side, as a table."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lwd.errors import InputError
from lwd.evaluation.evaluate import FORMAT, RESULT, VERSION, is_number
from lwd.evaluation.score import TITLES
from lwd.io.files import read_json

Evaluation = Mapping[str, Any]


def read_evaluations(runs: Sequence[str | os.PathLike[str]]) -> dict[str, Evaluation]:
    """Evaluations by name: files, directories that hold one, or directories of such directories."""
    found: dict[str, Evaluation] = {}
    for run in map(Path, runs):
        paths = (
            [run] if run.is_file() else [run / RESULT] if (run / RESULT).is_file() else sorted(run.glob(f"*/{RESULT}"))
        )
        if not paths:
            raise InputError(f"{run} holds no {RESULT}; run: lwd evaluate {run} --reference REF")
        for path in paths:
            found[_name(path, found)] = _read(path)
    return found


def _name(path: Path, taken: Mapping[str, Any]) -> str:
    short = path.parent.name if path.name == RESULT else path.stem
    return short if short not in taken else str(path)


def _read(path: Path) -> Evaluation:
    value = read_json(path)
    if not isinstance(value, Mapping) or value.get("format") != FORMAT or value.get("version") != VERSION:
        raise InputError(f'{path} is not an evaluation ("format" must be "{FORMAT}", "version" {VERSION})')
    metrics = value.get("metrics")
    whole = isinstance(metrics, Mapping) and all(
        isinstance(m, Mapping) and is_number(m.get("value")) and is_number(m.get("error")) and m["error"] >= 0
        for m in metrics.values()
    )
    if not whole or not all(isinstance(value.get(key), Mapping) for key in ("samples", "reference")):
        raise InputError(f"{path} lacks its metrics, samples or reference; run lwd evaluate again")
    for name, given, kind in (
        ("samples: count", value["samples"].get("count"), "a number"),
        ("samples: model: step", steps_of(value), "a number"),
        ("samples: nfe", nfe_of(value), "a number"),
        ("reference: digest", value["reference"].get("digest"), "a text"),
    ):
        if given is not None and not (isinstance(given, str) if kind == "a text" else is_number(given)):
            raise InputError(f"{path}: {name} must be {kind}, got {str(given)[:40]!r}; run lwd evaluate again")
    return value


def comparison_table(evaluations: Mapping[str, Evaluation]) -> str:
    """One row per set, as Markdown; a note where references, networks or counts are not the same."""
    names = [name for name in TITLES if any(name in e["metrics"] for e in evaluations.values())]
    lines = ["| samples | images | steps | NFE | " + " | ".join(TITLES[name] for name in names) + " |"]
    lines.append("| --- |" + " ---: |" * (3 + len(names)))
    for title, e in evaluations.items():
        cells = [title, str(e["samples"].get("count", "")), *(_text(value) for value in (steps_of(e), nfe_of(e)))]
        cells += [_cell(e["metrics"].get(name)) for name in names]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines + [f"\n{note}" for note in notes(evaluations)])


def notes(evaluations: Mapping[str, Evaluation]) -> list[str]:
    """Why rows may not be comparable."""
    found = []
    for what, key in (
        ("references", lambda e: e["reference"].get("digest")),
        ("networks", lambda e: str(e.get("networks"))),
        ("numbers of samples", lambda e: e["samples"].get("count")),
    ):
        if len({key(e) for e in evaluations.values()}) > 1:
            found.append(f"Not comparable: the rows have different {what}.")
    return found


def steps_of(e: Evaluation) -> Any:
    """Training steps of the model behind an evaluation, if recorded."""
    model = e["samples"].get("model")
    return model.get("step") if isinstance(model, Mapping) else None


def nfe_of(e: Evaluation) -> Any:
    """Evaluations of the network for each sample, if recorded."""
    return e["samples"].get("nfe")


def _text(value: Any) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _cell(metric: Mapping[str, float] | None) -> str:
    return "" if metric is None else f"{metric['value']:.4g} ± {metric['error']:.2g}"
