"""KID: the squared maximum mean discrepancy with a cubic kernel."""

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.metrics.moments import as_features


def kid(ref: Tensor, sample: Tensor, chunk: int = 2000) -> float:
    """Unbiased MMD^2 over the whole sets, kernel (x.y / d + 1)^3 (Binkowski 2018)."""
    x, y = as_features(ref, "reference features"), as_features(sample, "sample features")
    if x.shape[1] != y.shape[1]:
        raise InputError(f"features have {x.shape[1]} dimensions in the reference and {y.shape[1]} in the samples")
    if min(len(x), len(y)) < 2:
        raise InputError("KID needs at least two rows on each side")
    n, m = len(x), len(y)
    within = (_sum(x, x, chunk) - _diagonal(x)) / (n * (n - 1)) + (_sum(y, y, chunk) - _diagonal(y)) / (m * (m - 1))
    return within - 2 * _sum(x, y, chunk) / (n * m)


def _sum(a: Tensor, b: Tensor, chunk: int) -> float:
    d = a.shape[1]
    return float(sum((part @ b.T / d + 1).pow(3).sum() for part in torch.split(a, chunk)))


def _diagonal(a: Tensor) -> float:
    return float((a.square().sum(1) / a.shape[1] + 1).pow(3).sum())
