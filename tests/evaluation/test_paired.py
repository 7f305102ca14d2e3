"""Two sets of samples with equal seeds and classes: their distances are compared row by row."""

import math
import operator

import pytest
import torch

from lwd.errors import InputError
from lwd.evaluation.features import ENCODER, FeatureSet
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
