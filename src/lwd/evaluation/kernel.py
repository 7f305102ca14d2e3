"""KID: the squared maximum mean discrepancy with a cubic kernel."""

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.evaluation.rows import BLOCK, feature_pair


def kid(ref: Tensor, sample: Tensor, chunk: int = BLOCK, device: torch.device | None = None) -> float:
    """Unbiased MMD^2 over the full sets, kernel (x.y / d + 1)^3 (Binkowski 2018).

    device: of a GPU, for products in float32 with sums in float64; by default all is float64 on the CPU.
    """
    x, y = feature_pair(ref, sample)
    if min(len(x), len(y)) < 2:
        raise InputError("KID needs at least two rows on each side")
    n, m = len(x), len(y)
    within = (_sum(x, x, chunk, device) - _diagonal(x, chunk)) / (n * (n - 1))
    within += (_sum(y, y, chunk, device) - _diagonal(y, chunk)) / (m * (m - 1))
    return within - 2 * _sum(x, y, chunk, device) / (n * m)


def kid_without(
    ref: Tensor, sample: Tensor, parts: int, chunk: int = BLOCK, device: torch.device | None = None
) -> list[float]:
    """KID with each of `parts` interleaved parts of the samples (rows i, i + parts, ...) left out in turn.

    Uses sums of the kernel over pairs of parts, so that one pass is enough for all.
    """
    x, y = feature_pair(ref, sample)
    n, groups = len(x), [y[i::parts] for i in range(parts)]
    among = (_sum(x, x, chunk, device) - _diagonal(x, chunk)) / (n * (n - 1))
    cross = torch.tensor([_sum(group, x, chunk, device) for group in groups], dtype=torch.float64)
    pairs = torch.tensor([[_sum(a, b, chunk, device) for b in groups] for a in groups], dtype=torch.float64)
    own = torch.tensor([_diagonal(group, chunk) for group in groups], dtype=torch.float64)
    values = []
    for i in range(parts):
        m = len(y) - len(groups[i])
        inside = pairs.sum() - 2 * pairs[i].sum() + pairs[i, i] - (own.sum() - own[i])
        values.append(among + float(inside) / (m * (m - 1)) - 2 * float(cross.sum() - cross[i]) / (n * m))
    return values


def _sum(a: Tensor, b: Tensor, chunk: int, device: torch.device | None = None) -> float:
    """Sum of the kernel over all pairs, in blocks of chunk x chunk; on a device the products are float32."""
    d, total = a.shape[1], 0.0
    kind = {"dtype": torch.float64} if device is None else {"dtype": torch.float32, "device": device}
    for part in torch.split(a, chunk):
        rows = part.to(**kind)
        for other in torch.split(b, chunk):
            total += float(((rows @ other.to(**kind).T).double() / d + 1).pow(3).sum())
    return total


def _diagonal(a: Tensor, chunk: int) -> float:
    lengths = torch.cat([part.double().square().sum(1) for part in torch.split(a, chunk)])
    return float((lengths / a.shape[1] + 1).pow(3).sum())
