"""Surfaces of a network that is already trained: only in a band around its offset, which may be estimated."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.groups import Layout, default_lead
from lwd.objective import FlowObjective
from lwd.path import Velocity, interpolate
from lwd.schedule.base import Schedule
from lwd.schedule.fixed import Cascade, Offset, Synchronous
from lwd.surfaces.band import Band
from lwd.surfaces.curvature import predicted_error
from lwd.surfaces.integral import path_terms
from lwd.surfaces.settings import MeasureSettings
from lwd.surfaces.table import (
    LEAST,
    GridSurfaces,
    SurfaceTable,
    TableOptions,
    at_point,
    grid_points,
    split_samples,
)

REACH = 0.5
"""Offsets up to this far from the trained one are tried for the estimate of a band."""
PLACES = 8
"""Times along each offset at which they are compared."""
Progress = Callable[[int], object] | None


@dataclass(frozen=True)
class Samples:
    """Data (m, c, ...), the same noise at every point, and conditions (m rows)."""

    data: Tensor
    conditions: Any
    layout: Layout

    def __post_init__(self) -> None:
        self.layout.check(self.data)
        if len(self.data) < LEAST:
            raise InputError(f"surfaces need at least {LEAST} samples, got {len(self.data)}", argument="samples")
        if len(self.layout) != 2:
            raise InputError(f"a band of offsets needs two groups, got {len(self.layout)}")

    def batches(self, size: int) -> list[tuple[Tensor, Tensor, Any]]:
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(self.data.shape, generator=generator, dtype=self.data.dtype).to(self.data.device)
        return split_samples(self.data, noise, self.conditions, size)


@torch.no_grad()
def tabulate_band(
    velocity: Velocity, samples: Samples, band: Band, settings: MeasureSettings, progress: Progress = None
) -> SurfaceTable:
    """Estimate losses, energies and bends on the points of a grid inside the band; the others are left out."""
    layout, n = samples.layout, len(samples.layout)
    axis = torch.linspace(0, 1, settings.points, dtype=torch.float64)
    points = grid_points(axis, n)
    inside = band.contains(points)
    # Beside the corners, at least two points on each line across the band.
    inner = inside & (points > 0).all(1) & (points < 1).all(1)
    if band.high - band.low < 1.0 / (settings.points - 1) or int(inner.sum()) < settings.points:
        raise InputError(
            f"the band {band} is narrower than the spacing {1 / (settings.points - 1):.3g} of "
            f"{settings.points} points; use more points, or a wider band",
            argument="points",
        )
    batches = samples.batches(settings.batch)
    means, errors = torch.zeros(2, len(points), 2, n, dtype=torch.float64)
    grams = torch.zeros(len(points), n, 1 + n, 1 + n, dtype=torch.float64)
    for i in inside.nonzero().flatten().tolist():
        means[i], errors[i], grams[i] = at_point(velocity, batches, layout, points[i], True, TableOptions(progress))
    values = (means[:, 0], means[:, 1], errors[:, 0], errors[:, 1])
    return SurfaceTable(layout, points, *values, len(samples.data), axis, grams, band)


@torch.no_grad()
def estimate_band(
    velocity: Velocity, samples: Samples, trained: float, settings: MeasureSettings, progress: Progress = None
) -> Band:
    """Find the offsets at which the loss does not break down.

    From the trained offset outwards: at the same own time, a group's loss with another lead is compared with its loss
    under the trained one. The band ends before the first offset whose loss is larger by more than settings.breakdown,
    on average. Where the other group has more noise the loss of a perfect network rises as well, so the band may be
    narrower than it could be, but not wider.
    """
    lead = samples.layout.index(default_lead(samples.layout.names))
    step = 1.0 / (settings.points - 1)
    batches = samples.batches(settings.batch)[:1]
    base = _losses_at(velocity, batches, samples.layout, trained, lead)
    ends = []
    for sign in (-1, 1):
        edge = trained
        for k in range(1, int(REACH / step) + 1):
            offset = trained + sign * k * step
            if not -1 < offset < 1:
                break
            found = _losses_at(velocity, batches, samples.layout, offset, lead)
            worse = (found / base.clamp(min=1e-9) - 1).mean()
            if progress is not None:
                progress(1)
            if not worse <= settings.breakdown:  # also stops at NaN
                break
            edge = offset
        ends.append(edge)
    return Band(max(ends[0], -1.0), min(ends[1], 1.0), lead)


def _losses_at(
    velocity: Velocity, batches: Sequence[tuple[Tensor, Tensor, Any]], layout: Layout, offset: float, lead: int
) -> Tensor:
    """Losses (PLACES, 2) of the lead and of the follower, each at PLACES times of its own, under an offset."""
    own = (torch.arange(PLACES, dtype=torch.float64) + 0.5) / PLACES
    rows = []
    for group in range(2):
        other = (own - offset if group == lead else own + offset).clamp(0, 1)
        columns = (own, other) if group == 0 else (other, own)
        losses = []
        for place in torch.stack(columns, 1):
            total = torch.zeros(2, dtype=torch.float64)
            for x, e, label in batches:
                times = place.expand(len(x), -1).to(x.device)
                z, target = interpolate(x, e, times, layout)
                error = velocity(z, times, label).to(z.dtype) - target
                total += layout.means(error.square()).double().mean(0).cpu() / len(batches)
            losses.append(total[group])
        rows.append(torch.stack(losses))
    return torch.stack(rows, 1)


@dataclass(frozen=True)
class OffsetRow:
    """One offset in a band: flow loss, kinetic energy, predicted error of Euler with the given steps."""

    offset: float
    flow: float
    energy: float
    error: float


def compare_offsets(
    table: SurfaceTable, objective: FlowObjective, steps: int, scale: float = 1.0, count: int = 9
) -> list[OffsetRow]:
    """Compare offsets from one end of the band to the other; scale: measured / predicted error."""
    surfaces, band = GridSurfaces(table), table.band
    assert band is not None
    names, rows = table.layout.names, []
    offsets = torch.linspace(band.low, band.high, count).tolist()
    unit = replace(objective, kinetic=1.0)
    for offset in dict.fromkeys(round(value, 6) for value in offsets):
        schedule = offset_schedule(offset, names, band.lead)
        flow, energy = (float(term.detach()) for term in path_terms(schedule, surfaces, unit))
        error = scale * predicted_error(schedule, surfaces, table.layout, steps, 1)
        rows.append(OffsetRow(offset, flow, energy, error))
    return rows


def offset_schedule(offset: float, names: tuple[str, ...], lead: int) -> Schedule:
    """The schedule of an offset; a negative one lets the other group lead."""
    first, second = (names[lead], names[1 - lead]) if offset >= 0 else (names[1 - lead], names[lead])
    if abs(offset) < 1e-6:
        return Synchronous(names)
    return Cascade(names, (first, second)) if abs(offset) > 1 - 1e-6 else Offset(abs(offset), names, first)
