"""The sampler of SeFi-Image, to the letter: Euler steps between 1,000 noise levels, under an offset, with a shift.

The levels are 1, 0.999, ..., 0.001: the last step ends at 0.001, not at the data. `sample` with any method, schedule
and placement (`shift:A`) is the same flow in continuous time, to its end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from lwd.checkpoints.sefi import LEVELS, SOLVER, offset_of
from lwd.compute.seeds import padded
from lwd.errors import InputError, nearest
from lwd.groups import Layout, default_lead
from lwd.path import Velocity
from lwd.sampler import first_rows, split_options
from lwd.schedule.base import Schedule
from lwd.solver import Solution


@dataclass(frozen=True)
class SeFiSettings:
    """Steps of the reference's sampler, and their shift a: u' = a u / (1 + (a - 1) u)."""

    steps: int = 50
    shift: float = 1.0

    def __post_init__(self) -> None:
        if type(self.steps) is not int or self.steps < 1:
            raise InputError(f"{SOLVER} needs at least 1 step, got {self.steps}", argument="steps")
        if type(self.shift) not in (int, float) or not 0 < self.shift < float("inf"):
            raise InputError(f"shift must be a number > 0, got {self.shift!r}", argument="shift")


def shifted(s: Tensor, factor: float) -> Tensor:
    """The timestep shift a s / (1 + (a - 1) s) (SD3, with 0 = noise); its inverse is the shift by 1 / a."""
    return factor * s / (1 + (factor - 1) * s)


def reference_levels(steps: int, offset: float, shift: float) -> tuple[Tensor, Tensor]:
    """Noise levels of the lead and of the follower at the ends of all steps: (steps + 1,) each, float32.

    float32 as in the reference: levels are found by rounding down, and another precision would find other ones.
    """
    even = torch.linspace(0.0, 1.0, steps + 1, dtype=torch.float32)
    raw = shifted(even, shift) * (1.0 + offset)
    table = torch.arange(LEVELS, 0, -1, dtype=torch.float32) / LEVELS

    def level(u: Tensor) -> Tensor:
        return table[(u * (LEVELS - 1)).long().clamp(0, LEVELS - 1)]

    return level(raw.clamp(max=1.0)), level((raw - offset).clamp(0.0, 1.0))


@torch.no_grad()
def solve_sefi(
    velocity: Velocity,
    schedule: Schedule,
    layout: Layout,
    noise: Tensor,
    label: Any,
    settings: SeFiSettings | None = None,
) -> Solution:
    """Denoise `noise` (b, c, ...) under an offset schedule with the reference's sampler; label: b rows."""
    chosen, offset = settings or SeFiSettings(), offset_of(schedule)
    if offset is None or schedule.groups != layout.names or len(layout) != 2:
        raise InputError(
            f"the solver {SOLVER} is the reference's, for two groups under an offset; use another solver under "
            f"{schedule.kind}",
            argument="solver",
        )
    lead = layout.index(getattr(schedule, "lead", default_lead(layout.names)))
    of_lead, of_follower = reference_levels(chosen.steps, offset, chosen.shift)
    columns = (of_lead, of_follower) if lead == 0 else (of_follower, of_lead)
    levels = torch.stack(columns, 1).to(noise.device)  # (steps + 1, 2)
    z = noise
    for now, following in pairwise(levels):
        # The reference's network gets 1000 times the level, divided by 1000 again.
        times = (1 - (LEVELS * now / LEVELS).double()).expand(len(z), -1)
        step = layout.expand((now - following)[None], z.ndim).to(z.dtype)
        z = z + step * velocity(z, times, label).to(z.dtype)
    counts = torch.full((len(z),), chosen.steps)
    zeros = torch.zeros_like(counts)
    return Solution(z, chosen.steps, chosen.steps, 0, SOLVER, counts, zeros, counts)


@torch.no_grad()
def sample_sefi(
    velocity: Velocity,
    schedule: Schedule,
    layout: Layout,
    *,
    seeds: Sequence[int],
    labels: Any = 0,
    **settings: Any,
) -> Solution:
    """One sample per seed, like `lwd.sample`, with the reference's sampler; settings: `SeFiSettings`, `SampleOptions`.

    The noise is lwd's, one seed per sample; the reference draws a batch from one seed, so its pictures differ.
    """
    options, rest = split_options(settings)
    rest.pop("method", None)
    known = [field.name for field in fields(SeFiSettings)]
    for name in rest:
        if name not in known:
            raise InputError(f"the solver {SOLVER} has no setting {name!r}; {nearest(name, known)}", argument=name)
    if options.breakpoints is not None:
        raise InputError(f"breakpoints have no effect on the solver {SOLVER}", argument="breakpoints")
    rows, label = padded(seeds, labels, options.rows)
    noise, label = options.noise(rows, layout), label.to(options.device)
    return first_rows(solve_sefi(velocity, schedule, layout, noise, label, SeFiSettings(**rest)), len(seeds))
