"""What a pair of representations has to gain from two clocks, judged on its loss surfaces in either order."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from lwd.errors import InputError
from lwd.groups import default_lead
from lwd.objective import FlowObjective
from lwd.schedule.base import Schedule
from lwd.schedule.fixed import Cascade, Offset, Synchronous
from lwd.surfaces.integral import path_terms
from lwd.surfaces.table import SurfaceTable, smooth

DELTAS = tuple(k / 10 for k in range(1, 10))
"""Offsets that are tried in either order, besides a cascade."""
CLEAR = 3.0
"""A gain counts if it is this many standard errors above 0; the best of twenty curves is often 2 above it by chance."""
SMALL = 0.0002
"""Gains below this share of the loss may come from interpolating the grid."""
FINE = 0.001
"""A standard error below this share of the loss is small enough to say that there is nothing to gain."""
FALLING = 0.01
"""A probe whose loss still fell by more than this over the last fifth of its steps was too short to tell."""


@dataclass(frozen=True)
class Gain:
    """The best curve in which `lead` goes first, and the share of the flow loss that it saves."""

    lead: str
    curve: str
    share: float
    error: float
    """Standard error of the share."""

    @property
    def clear(self) -> bool:
        return self.share > CLEAR * self.error + SMALL

    def __str__(self) -> str:
        return f"{self.share:.2%} ± {self.error:.2%} with {self.lead} first ({self.curve})"


@dataclass(frozen=True)
class Potential:
    """The gains of both orders over one common clock; `lead` is the group that goes first in the usual order."""

    lead: str
    gains: Mapping[str, Gain]
    falling: float | None = None
    """By how much the probe's loss fell over the last fifth of its steps, as a share; None if unknown."""

    @property
    def usual(self) -> Gain:
        return self.gains[self.lead]

    @property
    def other(self) -> Gain:
        return next(gain for lead, gain in self.gains.items() if lead != self.lead)

    @property
    def word(self) -> str:
        """gain, other order, too short or nothing."""
        gap = self.other.share - self.usual.share
        if self.other.clear and gap > CLEAR * max(self.other.error, self.usual.error):
            return "other order"
        if self.usual.clear:
            return "gain"
        if self.falling is not None and self.falling > FALLING:
            return "too short"
        return "nothing" if max(self.usual.error, self.other.error) < FINE else "unclear"

    def __str__(self) -> str:
        both = f"{self.usual}; {self.other}"
        if self.word == "gain":
            text = f"flow loss lower by {both}"
        elif self.word == "other order":
            text = f"the better order is the other one: {self.other.lead} first; flow loss lower by {both}"
        elif self.word == "too short":
            text = f"the probe is too short to tell: its loss fell by {self.falling:.1%} over the last fifth; {both}"
        elif self.word == "nothing":
            text = f"nothing to gain on these surfaces: {both}"
        else:
            text = f"too few samples to tell; use more samples per point: {both}"
        short = self.word in ("gain", "other order") and self.falling is not None and self.falling > FALLING
        return text + (f" (the probe's loss still fell by {self.falling:.1%} over its last fifth)" if short else "")


def potential(
    table: SurfaceTable, objective: FlowObjective, falling: float | None = None, replicates: int = 20
) -> Potential:
    """Compare offsets and cascades in both orders with one common clock, by flow loss alone (two groups).

    Standard errors come from tables perturbed by the table's own errors, taken as independent between points. Points
    share their images and noise, so the true errors of differences are smaller.
    """
    names = table.layout.names
    if len(names) != 2:
        raise InputError(f"the potential is defined for two groups, got {len(names)}")
    curves: list[tuple[str, str, Schedule]] = [("", "one clock", Synchronous(names))]
    for lead in names:
        curves += [(lead, f"offset {delta:g}", Offset(delta, names, lead)) for delta in DELTAS]
        follower = next(name for name in names if name != lead)
        curves.append((lead, "cascade", Cascade(names, (lead, follower))))
    losses = _losses(table, objective, [curve for _, _, curve in curves])
    generator = torch.Generator().manual_seed(0)
    drawn = []
    for _ in range(replicates):
        noise = torch.randn(table.losses.shape, generator=generator, dtype=table.losses.dtype)
        moved = replace(table, losses=(table.losses + noise * table.loss_errors).clamp(min=0))
        drawn.append(_losses(moved, objective, [curve for _, _, curve in curves]))
    shares = 1 - losses / losses[0]
    errors = (1 - torch.stack(drawn) / torch.stack(drawn)[:, :1]).std(0)
    gains = {}
    for lead in names:
        mine = [i for i, (first, _, _) in enumerate(curves) if first == lead]
        best = max(mine, key=lambda i: float(shares[i]))
        gains[lead] = Gain(lead, curves[best][1], float(shares[best]), float(errors[best]))
    return Potential(default_lead(names), gains, falling)


def _losses(table: SurfaceTable, objective: FlowObjective, curves: list[Schedule]) -> torch.Tensor:
    surfaces = smooth(table)
    return torch.stack([path_terms(curve, surfaces, objective, nodes=16)[0].detach() for curve in curves])
