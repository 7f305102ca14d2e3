"""Two sets of samples with equal seeds and classes: their distances are compared row by row."""

import math
import operator

import pytest
import torch

from lwd.errors import InputError
from lwd.evaluation.compare import comparison_table, ratios
from lwd.evaluation.features import ENCODER, FeatureSet
from lwd.evaluation.formats import EvaluationFile, MetricValue, ScoredReference, ScoredSamples
from lwd.evaluation.metrics import Moments
from lwd.evaluation.score import Metric, frechet, paired

WIDTH, COUNT = 4, 500
REFERENCE = torch.zeros(WIDTH, dtype=torch.float64), torch.eye(WIDTH, dtype=torch.float64)


def features(rows):
    return FeatureSet("made", len(rows), {}, {ENCODER: [Moments().update(rows[i::10]) for i in range(10)]})


@pytest.fixture
def white():
    """Rows with mean 0 and covariance 1, exactly."""
    rows = torch.randn(COUNT, WIDTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = rows - rows.mean(0)
    factor = torch.linalg.cholesky(torch.cov(rows.T))
    return torch.linalg.solve_triangular(factor, rows.T, upper=False).T


def distance(rows):
    return frechet(features(rows), ENCODER, *REFERENCE)


def test_shifted_sets_have_the_ratio_of_their_squared_shifts(white):
    """Oracle: the distance of N(a, I) from N(0, I) is |a|^2."""
    far, near = distance(white + 3 / math.sqrt(WIDTH)), distance(white + 2 / math.sqrt(WIDTH))
    assert paired(far, near, operator.sub).value == pytest.approx(9 - 4, abs=1e-5)
    assert paired(far, near, operator.truediv).value == pytest.approx(9 / 4, abs=1e-5)


def test_errors_that_both_sets_share_cancel(white):
    far, near = distance(white + 1.5), distance(white + 1.0)
    found = paired(far, near, operator.truediv)
    independent = found.value * math.hypot(far.error / far.value, near.error / near.value)
    assert 0 < found.error < independent / 2


def test_a_set_is_once_as_far_as_itself(white):
    one = distance(white + 1.0)
    found = paired(one, one, operator.truediv)
    assert (found.value, found.error) == (1.0, 0.0)


def test_a_metric_without_a_jackknife_cannot_be_paired(white):
    with pytest.raises(InputError):
        paired(distance(white + 1.0), Metric(1.0, 0.1), operator.sub)


def evaluation(value, without=None, error=0.1):
    """An evaluation file with one metric."""
    parts = [value + (0.1 if part % 2 else -0.1) for part in range(10)] if without is None else without
    return EvaluationFile(
        metrics={"fid": MetricValue(value=value, error=error, without=parts)},
        samples=ScoredSamples(name="made", count=100),
        reference=ScoredReference(name="made", count=100),
    )


def test_the_first_row_is_the_base():
    """Oracle: 2 over 4 is a half, and 8 over 4 is 2."""
    rows = {"base": evaluation(4.0), "near": evaluation(2.0), "far": evaluation(8.0)}
    near, far = ratios(rows)
    assert near.startswith("near over base: FID 0.50")
    assert far.startswith("far over base: FID 2.00")
    assert near in comparison_table(rows)


@pytest.mark.parametrize(
    "base",
    [
        evaluation(4.0, [4.0] * 9),
        evaluation(0.2, error=0.1),
        evaluation(4.0, [4.0] * 9 + [0.0]),
        evaluation(4.0, [1e-300, *[4.0] * 9]),
        evaluation(4.0, [1e308, *[1e-308] * 9]),
    ],
    ids=["parts missing", "not above zero", "a part of zero", "a tiny part", "a huge part"],
)
def test_no_ratio_is_better_than_a_wrong_one(base):
    assert not any("over" in line for line in ratios({"base": base, "other": evaluation(2.0)}))


def test_evaluations_of_an_earlier_version_are_named():
    """Oracle: files without the parts are named, and nothing is divided."""
    (line,) = ratios({"new": evaluation(4.0), "old": evaluation(2.0, [])})
    assert "old" in line
    assert "over" not in line


def test_one_row_has_no_ratio():
    assert ratios({}) == ratios({"one": evaluation(4.0)}) == []
