"""Metrics of samples against a reference, with standard errors: those of ADM's evaluator, and more."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lwd.compute.devices import float32_to_the_bit
from lwd.errors import InputError
from lwd.evaluation.features import CLASSES, ENCODER, PARTS, POOL, PROBABILITIES, SPATIAL, FeatureSet
from lwd.evaluation.formats import MetricValue
from lwd.evaluation.frechet import frechet_to
from lwd.evaluation.kernel import kid_without
from lwd.evaluation.manifold import overlap
from lwd.evaluation.metrics import inception_score, kid
from lwd.evaluation.rows import BLOCK
from lwd.evaluation.scores import SPLIT

ENOUGH = 10_000
ROWS = 10_000
"""Rows of the reference, evenly spaced, for metrics of pairs; the same number as in ADM's references."""
TITLES = {
    "fid": "FID",
    "sfid": "sFID",
    "inception_score": "Inception Score",
    "precision": "precision",
    "recall": "recall",
    "kid": "KID",
    "density": "density",
    "coverage": "coverage",
    "frechet": "Fréchet distance (encoder)",
    "classifier_score": "classifier score (encoder)",
}
NO_HEAD = "the Inception weights have no classifier (lwd data fetch inception can add one)"
NO_IMAGES = "the reference holds moments but no images"
NO_INCEPTION = "Inception's weights are missing; run: lwd data fetch inception"
SKIPPED = "skipped"


@dataclass(frozen=True)
class Metric:
    """A value and its standard error."""

    value: float
    error: float
    without: tuple[float, ...] = ()
    """The value without each tenth of the samples, for paired comparisons; empty if the error comes from elsewhere."""


@dataclass(frozen=True)
class Scores:
    """Metrics, and the reasons why others are not available."""

    metrics: Mapping[str, Metric]
    unavailable: Mapping[str, str]
    warnings: Sequence[str] = field(default_factory=tuple)
    encoder: str = ""
    """Name of the encoder, for titles."""


@dataclass(frozen=True)
class Reference:
    """The reference: moments by feature, and rows if it has images."""

    name: str
    count: int
    moments: Mapping[str, tuple[Tensor, Tensor]]
    rows: Mapping[str, Tensor]

    @classmethod
    def of(cls, features: FeatureSet | None, given: Mapping[str, tuple[Tensor, Tensor]], name: str) -> "Reference":
        """Combine computed features with moments from a file, which take precedence."""
        if features is None:
            return cls(name, 0, dict(given), {})
        own = {feature: (m.mean, m.covariance) for feature in features.parts for m in [features.moments(feature)]}
        return cls(name, features.count, {**own, **given}, features.rows)


def score(
    samples: FeatureSet,
    reference: Reference,
    why: str = NO_INCEPTION,
    shuffle: bool = False,
    device: torch.device | None = None,
    progress: Callable[[float], object] | None = None,
) -> Scores:
    """Compute all metrics that the features allow. why: the reason if Inception's features are missing.

    shuffle: shuffle the rows for the Inception Score, which uses splits of consecutive rows.
    device: where distances of pairs are computed; progress: called with shares of the work, 1 in all.
    """
    done = progress or _ignore
    found: dict[str, Metric] = {}
    missing: dict[str, str] = {}
    for name, feature in (("fid", POOL), ("sfid", SPATIAL), ("frechet", ENCODER)):
        if feature in samples.parts and feature in reference.moments:
            found[name] = frechet(samples, feature, *reference.moments[feature])
            done(0.1)
        elif feature != ENCODER or feature in samples.parts:
            missing[name] = why if feature not in samples.parts else NO_IMAGES
    for name, feature in (("inception_score", PROBABILITIES), ("classifier_score", CLASSES)):
        if feature in samples.rows:
            found[name] = _class_score(samples.rows[feature], shuffle)
    if PROBABILITIES not in samples.rows:
        missing["inception_score"] = NO_HEAD if POOL in samples.parts else why
    # Without Inception, metrics of pairs use the encoder; `networks` in the file names it.
    pairs = POOL if POOL in samples.rows else ENCODER
    if pairs in samples.rows and pairs in reference.rows:
        found |= _by_rows(reference.rows[pairs], samples.rows[pairs], device, done)
    else:
        for name in ("precision", "recall", "kid", "density", "coverage"):
            missing[name] = why if pairs not in samples.rows else NO_IMAGES
    ordered = {name: found[name] for name in TITLES if name in found}
    return Scores(ordered, missing, warnings_about(samples, shuffle))


def _ignore(share: float) -> None:
    del share


def title(name: str, encoder: str = "") -> str:
    """The title of a metric; those of an encoder are named for it."""
    known = TITLES.get(name, name)
    return known.replace("(encoder)", f"({encoder})") if encoder else known


def _class_score(rows: Tensor, shuffle: bool) -> Metric:
    """Inception's score of probabilities (n, classes), whichever classifier they are from."""
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))] if shuffle else rows
    return jackknife(inception_score(rows), lambda part: inception_score(_without(rows, part)))


def frechet(samples: FeatureSet, feature: str, mean: Tensor, covariance: Tensor) -> Metric:
    """Fréchet distance of one feature to the moments of a reference."""
    moments = samples.moments(feature)
    if len(moments.mean) != len(mean):
        raise InputError(
            f"the moments of {feature!r} have {len(mean)} dimensions in the reference and {len(moments.mean)} in the "
            "samples; were they computed with another network?"
        )
    value = frechet_to(mean.double(), covariance.double())(moments.mean, moments.covariance)
    rough = frechet_to(mean.double(), covariance.double(), rough=True)

    def without(part: int) -> float:
        left = samples.moments(feature, part)
        return rough(left.mean, left.covariance)

    return jackknife(value, without)


def paired(one: Metric, other: Metric, combine: Callable[[float, float], float]) -> Metric:
    """The difference or ratio of two sets in which row i has the same seed and class: errors that they share cancel."""
    if not len(one.without) == len(other.without) == PARTS:
        raise InputError("a paired comparison needs metrics with a jackknife")
    value = combine(one.value, other.value)
    return jackknife(value, lambda part: combine(one.without[part], other.without[part]))


def _by_rows(
    ref: Tensor, rows: Tensor, device: torch.device | None, done: Callable[[float], object]
) -> dict[str, Metric]:
    ref = spaced(ref)
    most = min(len(ref), len(rows)) - 1
    gpu = None if device is None or device.type == "cpu" else device
    with float32_to_the_bit():
        points = overlap(ref, rows, min(3, most), min(5, most), PARTS, gpu)
        done(0.4)
        left_out, value = kid_without(ref, rows, PARTS, device=gpu), kid(ref, rows, device=gpu)
        done(0.3)
    return {
        "precision": resampled(points.precise),
        "recall": jackknife(float(points.recalled.mean()), lambda part: points.recall_without[part]),
        "kid": jackknife(value, lambda part: left_out[part]),
        "density": resampled(points.dense),
        "coverage": jackknife(float(points.covered.mean()), lambda part: points.coverage_without[part]),
    }


def spaced(rows: Tensor, most: int = ROWS) -> Tensor:
    """Return at most this many rows, evenly spaced, so that a reference sorted by class keeps all classes."""
    return rows if len(rows) <= most else rows[torch.arange(most) * len(rows) // most]


def jackknife(value: float, without: Callable[[int], float]) -> Metric:
    """Standard error from leaving out each of the interleaved parts in turn."""
    others = [without(part) for part in range(PARTS)]
    mean = sum(others) / PARTS
    gaps = [other - mean for other in others]
    error = math.sqrt((PARTS - 1) / PARTS * sum(gap * gap for gap in gaps))
    return Metric(value, error, tuple(others))


def resampled(points: Tensor) -> Metric:
    """Mean over points, and its bootstrap standard error in the limit (with fixed balls)."""
    return Metric(float(points.mean()), float(points.std() / len(points) ** 0.5))


def _without(rows: Tensor, part: int) -> Tensor:
    return rows[torch.arange(len(rows)) % PARTS != part]


def warnings_about(samples: FeatureSet, shuffle: bool = False) -> list[str]:
    """Return warnings about the metrics."""
    found = []
    if samples.count < ENOUGH:
        found.append(f"only {samples.count} samples: FID is biased upwards below {ENOUGH}; compare equal counts only")
    # The order of fewer rows than a split does not matter; Inception's score is compared with that of other counts.
    judged = POOL if POOL in samples.rows else ENCODER if CLASSES in samples.rows and samples.count > SPLIT else ""
    if not shuffle and judged and looks_sorted(samples.rows[judged]):
        found.append(
            "the samples look sorted by class, so scores of classes (of consecutive rows) are too low; shuffle them"
        )
    return found


def looks_sorted(rows: Tensor) -> bool:
    """Whether neighbours are closer than rows half a set apart, by five standard errors and by 5%."""
    if len(rows) < 50:
        return False
    near, far = (_steps(rows, shift)[1:] for shift in (1, len(rows) // 2))
    difference = far - near
    share = difference.mean() / far.mean().clamp(min=1e-30)
    return bool(share > 0.05 and difference.mean() > 5 * difference.std() / len(difference) ** 0.5)


def _steps(rows: Tensor, shift: int) -> Tensor:
    """Squared distance of each row to the one `shift` rows before it, block by block."""
    index = torch.arange(len(rows))
    return torch.cat([(rows[i].double() - rows[i - shift].double()).square().sum(1) for i in torch.split(index, BLOCK)])


def table(scores: Scores) -> str:
    """Format the metrics with their errors, then missing metrics with reasons."""
    titles = {name: title(name, scores.encoder) for name in TITLES}
    width = max(len(titles[name]) for name in (*scores.metrics, *scores.unavailable))
    lines = [f"{titles[name]:<{width}}  {m.value:>10.4f} ± {m.error:.4f}" for name, m in scores.metrics.items()]
    lines += [f"{titles[name]:<{width}}  not available: {reason}" for name, reason in scores.unavailable.items()]
    return "\n".join(lines + [f"warning: {text}" for text in scores.warnings])


def as_fields(scores: Scores) -> dict[str, Any]:
    """Return metrics, reasons and warnings as fields of an EvaluationFile."""
    metrics = {
        name: MetricValue(value=m.value, error=m.error, without=list(m.without)) for name, m in scores.metrics.items()
    }
    return {"metrics": metrics, "unavailable": dict(scores.unavailable), "warnings": list(scores.warnings)}
