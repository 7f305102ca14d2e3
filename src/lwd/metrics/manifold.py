"""Precision, recall, density and coverage: balls around each point that reach to its k-th neighbour."""

from collections.abc import Iterator

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.moments import as_features

CHUNK = 2**27
"""Bytes of one block of distances."""


def precision_recall(ref: Tensor, sample: Tensor, k: int = 3) -> tuple[float, float]:
    """Share of samples inside the reference's balls, and of references inside the samples' (Kynkäänniemi 2019)."""
    precise, recalled = precise_and_recalled(ref, sample, k)
    return float(precise.mean()), float(recalled.mean())


def density_coverage(ref: Tensor, sample: Tensor, k: int = 5) -> tuple[float, float]:
    """Reference balls per sample over k, and the share of reference balls with a sample inside (Naeem 2020)."""
    dense, covered = dense_and_covered(ref, sample, k)
    return float(dense.mean()), float(covered.mean())


def precise_and_recalled(ref: Tensor, sample: Tensor, k: int = 3) -> tuple[Tensor, Tensor]:
    """0 or 1 for each sample (inside a ball of the reference) and for each reference (inside a ball of the samples)."""
    ref, sample = _pair(ref, sample, k)
    ref_radii, sample_radii = radii(ref, k), radii(sample, k)
    precise = torch.zeros(len(sample), dtype=torch.bool)
    recalled = torch.zeros(len(ref), dtype=torch.bool)
    for rows, squared in blocks(ref, sample):
        precise |= (squared <= ref_radii[rows, None]).any(0)
        recalled[rows] = (squared <= sample_radii).any(1)
    return precise.double(), recalled.double()


def dense_and_covered(ref: Tensor, sample: Tensor, k: int = 5) -> tuple[Tensor, Tensor]:
    """Balls of the reference around each sample over k, and 0 or 1 for each reference ball (a sample inside)."""
    ref, sample = _pair(ref, sample, k)
    ref_radii, inside = radii(ref, k), torch.zeros(len(sample), dtype=torch.float64)
    covered = torch.zeros(len(ref), dtype=torch.float64)
    for rows, squared in blocks(ref, sample):
        hits = squared < ref_radii[rows, None]
        inside += hits.sum(0)
        covered[rows] = hits.any(1).double()
    return inside / k, covered


def radii(points: Tensor, k: int) -> Tensor:
    """Squared distance of each point to its k-th neighbour, itself left out: (n,)."""
    parts = []
    for rows, squared in blocks(points, points):
        index = torch.arange(rows.start, rows.start + len(squared))
        squared[torch.arange(len(squared)), index] = torch.inf
        parts.append(squared.kthvalue(k, dim=1).values)
    return torch.cat(parts)


def blocks(a: Tensor, b: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Squared distances of the rows of a to all rows of b, a block of rows at a time."""
    # Centred: |x|^2 + |y|^2 - 2 x.y loses digits when the points lie far from the origin.
    centre = b.mean(0)
    a, b = a - centre, b - centre
    lengths, size = b.square().sum(1), max(1, CHUNK // (8 * len(b)))
    for low in range(0, len(a), size):
        part = a[low : low + size]
        squared = torch.addmm(part.square().sum(1, keepdim=True) + lengths, part, b.T, alpha=-2)
        yield slice(low, low + size), squared.clamp_(min=0)


def _pair(ref: Tensor, sample: Tensor, k: int) -> tuple[Tensor, Tensor]:
    ref, sample = as_features(ref, "reference features"), as_features(sample, "sample features")
    if ref.shape[1] != sample.shape[1]:
        raise InputError(
            f"features have {ref.shape[1]} dimensions in the reference and {sample.shape[1]} in the samples"
        )
    if not 1 <= k < min(len(ref), len(sample)):
        raise InputError(f"k lies between 1 and the number of points - 1 ({min(len(ref), len(sample)) - 1}), got {k}")
    return ref, sample
