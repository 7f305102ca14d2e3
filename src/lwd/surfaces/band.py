"""The part of the time box where a network can be trusted: a band of offsets around the one it was trained with.

With an offset d the lead runs from (0, 0) along the follower's 0, then d ahead of it, then waits at 1. The band is all
of these paths for d from `low` to `high`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lwd.errors import InputError

NEIGHBOURS = 8
"""Points inside from which a value outside is extrapolated."""


@dataclass(frozen=True)
class Band:
    """Offsets from low to high of the group with the column `lead`, of two."""

    low: float
    high: float
    lead: int = 0

    def __post_init__(self) -> None:
        if not (-1 <= self.low <= self.high <= 1) or self.lead not in (0, 1):
            raise InputError(
                f"a band is LOW:HIGH with -1 <= LOW <= HIGH <= 1, got {self.low}:{self.high}", argument="band"
            )

    def offsets(self, times: Tensor) -> Tensor:
        """How far the lead is ahead: (b, 2) -> (b,)."""
        return times[..., self.lead] - times[..., 1 - self.lead]

    def outside(self, times: Tensor) -> Tensor:
        """Distance from the band along one clock, 0 inside: (b, 2) -> (b,), differentiable."""
        lead, follower = times[..., self.lead], times[..., 1 - self.lead]
        ahead = lead - follower
        # Too far ahead: unless the lead is still at 0 or the follower done, which only a negative offset reaches.
        over = torch.minimum(ahead - self.high, torch.minimum(lead, 1 - follower)).clamp(min=0)
        # Not far enough: unless the follower has not started, or the lead is done.
        under = torch.minimum(self.low - ahead, torch.minimum(follower, 1 - lead)).clamp(min=0)
        return over + under

    def contains(self, times: Tensor, tolerance: float = 1e-9) -> Tensor:
        """Whether local times are inside: (b, 2) -> (b,)."""
        return self.outside(times) <= tolerance

    def __str__(self) -> str:
        return f"{self.low:g}:{self.high:g}"


def parse_band(text: str, lead: int = 0) -> Band:
    """`0.05:0.2`."""
    low, colon, high = text.partition(":")
    try:
        if colon:
            return Band(float(low), float(high), lead)
    except ValueError as error:
        if isinstance(error, InputError):
            raise
    raise InputError(f"expected offsets LOW:HIGH such as 0.05:0.2, got {text!r}", argument="band")


def extended(points: Tensor, values: Tensor, inside: Tensor) -> Tensor:
    """Replace values (m, k) at points (m, 2) outside by planes through their nearest neighbours inside.

    A smooth interpolant needs values beyond the edge; they influence only how it bends there.
    """
    known, wanted = points[inside], points[~inside]
    if not len(wanted):
        return values
    near = torch.cdist(wanted, known).topk(min(NEIGHBOURS, len(known)), largest=False).indices
    places = known[near] - wanted[:, None]
    design = torch.cat([torch.ones_like(places[..., :1]), places], -1)  # (o, k, 3)
    weights = 1 / (1e-6 + places.square().sum(-1, keepdim=True))
    weighted = (design * weights).mT
    # A weak ridge on the slopes: neighbours on one line do not define a plane.
    ridge = torch.diag(torch.tensor([0.0, 1e-4, 1e-4], dtype=points.dtype)) * weights.sum(1)[..., None]
    planes = torch.linalg.solve(weighted @ design + ridge, weighted @ values[inside][near])
    out = values.clone()
    out[~inside] = planes[:, 0]
    return out
