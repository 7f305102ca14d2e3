"""Precision, recall, density and coverage, from balls around each point that reach to its k-th neighbour."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.evaluation.rows import BLOCK, feature_pair

CHUNK = 2**26
"""Bytes of one block of distances; a few such blocks exist at a time."""
DOUBT = 1e-9
"""Accuracy of distances from the Gram matrix, relative to squared lengths; closer comparisons use direct differences.
Rounding is much smaller, but balls end exactly on points, so that ties are common."""
DOUBT32 = 1e-4
"""The same for distances in float32 on a GPU: the rounding of 2048 products, with a margin."""
SPARE = 8
"""Extra neighbours beyond the k-th, in case rounding put them in the wrong order."""


def precision_recall(ref: Tensor, sample: Tensor, k: int = 3) -> tuple[float, float]:
    """Share of samples inside balls of the reference, and of references inside balls of samples (Kynkäänniemi 2019)."""
    ref, sample = _pair(ref, sample, k)
    ref_radii, sample_radii = radii(ref, k), radii(sample, k)
    precise = torch.zeros(len(sample), dtype=torch.bool)
    recalled = torch.zeros(len(ref), dtype=torch.bool)
    for block in blocks(ref, sample):
        precise |= block.reached(ref_radii[block.rows, None]).any(0)
        recalled[block.rows] = block.reached(sample_radii).any(1)
    return float(precise.double().mean()), float(recalled.double().mean())


def density_coverage(ref: Tensor, sample: Tensor, k: int = 5) -> tuple[float, float]:
    """Reference balls per sample over k, and the share of reference balls with a sample inside (Naeem 2020)."""
    ref, sample = _pair(ref, sample, k)
    ref_radii, covered, count = radii(ref, k), torch.zeros(len(ref), dtype=torch.bool), 0
    for block in blocks(ref, sample):
        hits = block.inside(ref_radii[block.rows, None])
        count += int(hits.sum())
        covered[block.rows] = hits.any(1)
    return count / (k * len(sample)), float(covered.double().mean())


@dataclass(frozen=True)
class Overlap:
    """All four metrics by point (their means are the metrics), and two of them without each part of the samples."""

    precise: Tensor
    """(m,), 0 or 1: a sample inside a ball of the reference."""
    recalled: Tensor
    """(n,), 0 or 1: a reference inside a ball of the samples."""
    dense: Tensor
    """(m,): balls of the reference around a sample, over k."""
    covered: Tensor
    """(n,), 0 or 1: a ball of the reference with a sample inside."""
    recall_without: list[float]
    coverage_without: list[float]


def overlap(
    ref: Tensor, sample: Tensor, k: int = 3, wide: int = 5, parts: int = 10, device: torch.device | None = None
) -> Overlap:
    """Precision and recall with k neighbours, density and coverage with `wide`, in one pass over the pairs.

    parts: row i of the samples belongs to part i % parts; for each part, balls are recomputed without it.
    device: of a GPU, for distances in float32; what rounding could change is decided in float64, so that the result is
    the same. By default all is float64 on the CPU.
    """
    ref, sample = _pair(ref, sample, max(k, wide))
    near = neighbours(ref, min(max(k, wide) + SPARE, len(ref) - 1), device)[0]
    ref_radii, wide_radii = near[:, k - 1, None], near[:, wide - 1, None]
    sample_radii, others = _left_out(sample, k, parts, device)
    precise, inside = torch.zeros(len(sample), dtype=torch.bool), torch.zeros(len(sample), dtype=torch.float64)
    recalled, covered = (torch.zeros(len(ref), parts + 1, dtype=torch.bool) for _ in range(2))
    for block in blocks(ref, sample, device):
        precise |= block.reached(ref_radii[block.rows]).any(0)
        for column, radius in enumerate((sample_radii, *others)):
            recalled[block.rows, column] = block.reached(radius).any(1)
        hits = block.inside(wide_radii[block.rows])
        inside += hits.sum(0)
        by_part = torch.stack([hits[:, part::parts].any(1) for part in range(parts)], 1)
        covered[block.rows, 0] = hits.any(1)
        covered[block.rows, 1:] = by_part.sum(1, keepdim=True) > by_part.long()
    shares = [hit[:, 1:].double().mean(0).tolist() for hit in (recalled, covered)]
    return Overlap(precise.double(), recalled[:, 0].double(), inside / wide, covered[:, 0].double(), *shares)


def _left_out(sample: Tensor, k: int, parts: int, device: torch.device | None = None) -> tuple[Tensor, list[Tensor]]:
    """Radii of the samples, and radii without each part; points of the part itself have no ball (-inf)."""
    near, numbers = neighbours(sample, min(4 * k + SPARE, len(sample) - 1), device)
    own = torch.arange(len(sample)) % parts
    out = []
    for part in range(parts):
        place = ((numbers % parts != part).cumsum(1) < k).sum(1, keepdim=True).clamp(max=near.shape[1] - 1)
        out.append(near.gather(1, place)[:, 0].where(own != part, -torch.inf))
    return near[:, k - 1].clone(), out


def radii(points: Tensor, k: int) -> Tensor:
    """Squared distance of each point to its k-th neighbour, not counting itself: (n,)."""
    return neighbours(points, min(k + SPARE, len(points) - 1))[0][:, k - 1].clone()


def neighbours(points: Tensor, count: int, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Squared distances (n, count) of each point to its nearest neighbours, in order, and their row numbers."""
    values, numbers = [], []
    for block in blocks(points, points, device):
        index = torch.arange(len(points))[block.rows]
        place = index.to(block.squared.device)
        block.squared[torch.arange(len(index), device=place.device), place] = torch.inf
        near = block.squared.topk(count, dim=1, largest=False).indices.cpu()
        exact = direct(points, points, index.repeat_interleave(count), near.flatten()).reshape(-1, count)
        exact, order = exact.sort(1)
        values.append(exact)
        numbers.append(near.gather(1, order))
    return torch.cat(values), torch.cat(numbers)


def direct(a: Tensor, b: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """|a_i - b_j|^2 for pairs of row numbers, by differences: equal bits for the same two rows, in any order."""
    size = max(1, CHUNK // (32 * a.shape[1]))
    pairs = zip(torch.split(i, size), torch.split(j, size), strict=True)
    return torch.cat([(a[p].double() - b[q].double()).square().sum(1) for p, q in pairs])


@dataclass(frozen=True)
class Block:
    """Some rows of a against all rows of b."""

    a: Tensor
    b: Tensor
    rows: slice
    squared: Tensor
    """Squared distances, to rounding."""
    lengths: tuple[Tensor, Tensor]
    """Squared lengths of the rows (r, 1) and of b (m,), about the centre: the scale of the rounding."""

    def reached(self, radii: Tensor) -> Tensor:
        """Distance <= radius, exactly. radii: squared, (r, 1) or (m,)."""
        pairs = self._doubtful(radii)
        hits = (self.squared <= radii.to(self.squared)).cpu()
        hits[pairs] = self._exact(pairs) <= radii.expand_as(hits)[pairs]
        return hits

    def inside(self, radii: Tensor) -> Tensor:
        """Distance < radius, exactly."""
        pairs = self._doubtful(radii)
        hits = (self.squared < radii.to(self.squared)).cpu()
        hits[pairs] = self._exact(pairs) < radii.expand_as(hits)[pairs]
        return hits

    def _doubtful(self, radii: Tensor) -> tuple[Tensor, ...]:
        doubt, radii = DOUBT if self.squared.dtype == torch.float64 else DOUBT32, radii.to(self.squared)
        gap = (self.squared - radii).abs_()
        for part in (*self.lengths, radii):
            gap.sub_(part, alpha=doubt)
        return tuple(part.cpu() for part in (gap <= 0).nonzero(as_tuple=True))

    def _exact(self, pairs: tuple[Tensor, ...]) -> Tensor:
        if not len(pairs[0]):
            return torch.zeros(0, dtype=torch.float64)
        return direct(self.a, self.b, pairs[0] + self.rows.start, pairs[1])


def blocks(a: Tensor, b: Tensor, device: torch.device | None = None) -> Iterator[Block]:
    """Yield squared distances of the rows of a to all rows of b, block by block; on a device they are float32."""
    # Centred: |x|^2 + |y|^2 - 2 x.y loses digits if the points are far from the origin.
    centre = torch.stack([part.double().sum(0) for part in torch.split(b, BLOCK)]).sum(0) / len(b)
    centred = torch.empty(b.shape, dtype=torch.float64)
    for low in range(0, len(b), BLOCK):
        centred[low : low + BLOCK] = b[low : low + BLOCK].double() - centre
    kind = {"dtype": torch.float64} if device is None else {"dtype": torch.float32, "device": device}
    centred = centred.to(**kind)
    lengths, size = torch.linalg.vector_norm(centred, dim=1).square(), max(1, CHUNK // (8 * len(b)))
    for low in range(0, len(a), size):
        part = (a[low : low + size].double() - centre).to(**kind)
        own = part.square().sum(1, keepdim=True)
        squared = torch.addmm(own + lengths, part, centred.T, alpha=-2).clamp_(min=0)
        yield Block(a, b, slice(low, low + len(part)), squared, (own, lengths))


def _pair(ref: Tensor, sample: Tensor, k: int) -> tuple[Tensor, Tensor]:
    ref, sample = feature_pair(ref, sample)
    if not 1 <= k < min(len(ref), len(sample)):
        raise InputError(
            f"k must be between 1 and the number of points - 1 ({min(len(ref), len(sample)) - 1}), got {k}"
        )
    return ref, sample
