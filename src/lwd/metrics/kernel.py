"""KID: the squared maximum mean discrepancy with a cubic kernel."""

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.moments import as_features


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


def kid_without(ref: Tensor, sample: Tensor, parts: int, chunk: int = 2000) -> list[float]:
    """KID with each of `parts` interleaved parts of the samples (rows i, i + parts, ...) left out in turn.

    From the kernel's sums over pairs of parts, so that all of them cost one pass.
    """
    x, y = as_features(ref, "reference features"), as_features(sample, "sample features")
    n, groups = len(x), [y[i::parts] for i in range(parts)]
    among = (_sum(x, x, chunk) - _diagonal(x)) / (n * (n - 1))
    cross = torch.tensor([_sum(group, x, chunk) for group in groups], dtype=torch.float64)
    pairs = torch.tensor([[_sum(a, b, chunk) for b in groups] for a in groups], dtype=torch.float64)
    own = torch.tensor([_diagonal(group) for group in groups], dtype=torch.float64)
    values = []
    for i in range(parts):
        m = len(y) - len(groups[i])
        inside = pairs.sum() - 2 * pairs[i].sum() + pairs[i, i] - (own.sum() - own[i])
        values.append(among + float(inside) / (m * (m - 1)) - 2 * float(cross.sum() - cross[i]) / (n * m))
    return values


def _sum(a: Tensor, b: Tensor, chunk: int) -> float:
    d = a.shape[1]
    return float(sum((part @ b.T / d + 1).pow(3).sum() for part in torch.split(a, chunk)))


def _diagonal(a: Tensor) -> float:
    return float((a.square().sum(1) / a.shape[1] + 1).pow(3).sum())
