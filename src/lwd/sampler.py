"""From seeds to samples: field = rates x velocity, integrated over the global time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from lwd.compute.seeds import noise_of, padded
from lwd.errors import InputError
from lwd.groups import Layout
from lwd.path import Velocity
from lwd.schedule.base import Schedule
from lwd.solver import Solution, solve
from lwd.solver.base import Watch
from lwd.solver.dopri5 import ROWS
from lwd.solver.settings import solver_settings

PER_SAMPLE = ("z", "accepted_per_sample", "rejected_per_sample", "nfe_per_sample")


@dataclass(frozen=True)
class FlowField:
    """V = rates x velocity for the samples with these conditions (b rows)."""

    velocity: Velocity
    schedule: Schedule
    layout: Layout
    label: Any

    def __call__(self, z: Tensor, tau: Tensor) -> Tensor:
        rates = self.layout.expand(self.schedule.rates(tau), z.ndim).to(z.dtype)
        local = self.velocity(z, self.schedule.times(tau), self.label).to(z.dtype)
        # The field of a group with rate 0 is 0, whatever the network returns at the ends of its clock.
        return torch.where(rates == 0, torch.zeros_like(local), rates * local)

    def rows(self, index: Tensor) -> "FlowField":
        """The field of some of the samples."""
        return replace(self, label=self.label[index])


def flow_field(velocity: Velocity, schedule: Schedule, layout: Layout, label: Any) -> FlowField:
    """The global-time field V = rates x velocity (Eq. global-target-field), ready for `solve`; label: b rows."""
    if schedule.groups != layout.names:
        have, need = ", ".join(schedule.groups), ", ".join(layout.names)
        raise InputError(f"the schedule is for the groups {have}, but the layout has {need}, in this order")
    return FlowField(velocity, schedule, layout, label)


def seeded_noise(seeds: Sequence[int], shape: Sequence[int], device: torch.device | str = "cpu") -> Tensor:
    """Draw standard normal noise (len(seeds), *shape) float32; row i depends only on seeds[i] and the shape."""
    rows = [noise_of(seed, tuple(shape)) for seed in seeds]
    return torch.stack(rows).to(device) if rows else torch.empty(0, *shape, device=device)


@dataclass(frozen=True)
class SampleOptions:
    """The shape of the state, and where and how to compute it."""

    size: Sequence[int] = (16, 16)
    """Spatial shape of the state."""
    device: torch.device | str = "cpu"
    dtype: torch.dtype = torch.float32
    breakpoints: Sequence[float] | None = None
    """By default the kinks of the schedule and the ends of guidance intervals; () ignores them, like reference code."""
    rows: int = 1
    """Pad the batch to a multiple of this. Matrix products of one or two samples round differently; from 8 on a sample
    has the same bits in any batch, with a fixed-step method or adaptive="sample" (`lwd sample` uses this)."""
    drop: int = ROWS
    """With adaptive="sample", samples that are done leave the batch in multiples of this."""
    watch: Watch | None = None
    """Called with tau and the states after each step, padding included; dopri5 calls it at breakpoints and the end."""

    def noise(self, seeds: Sequence[int], layout: Layout) -> Tensor:
        """The state at tau = 0."""
        return seeded_noise(seeds, (layout.channels, *self.size), self.device).to(self.dtype)


@torch.no_grad()
def sample(
    velocity: Velocity,
    schedule: Schedule,
    layout: Layout,
    *,
    seeds: Sequence[int],
    labels: Any = 0,
    **settings: Any,
) -> Solution:
    """Draw one sample per seed: from noise at tau = 0 to data at tau = 1 along `schedule` (Eq. inference-ode).

    The noise of a seed is the same for any batch size, order and device. labels: one for all, or one per seed;
    classes, or another condition that the network takes, such as `Prompts`.
    settings: fields of `SampleOptions` (size, device, ...) and `SolverSettings` (method, steps, rtol, ...).

    Example:
        >>> data = lwd.Gaussian(lwd.Layout.of(texture=1, semantic=1), torch.eye(2))
        >>> lwd.sample(data, lwd.Offset(0.3), data.layout, seeds=range(4), size=(1, 1), method="heun", steps=10)
        Solution(z=(4, 2, 1, 1), nfe=20, accepted=10, rejected=0, method='heun')
    """
    options, rest = split_options(settings)
    solver, count = solver_settings(**rest), len(seeds)
    # With one step size for the batch, padding would change it.
    shared_step = solver.method == "dopri5" and solver.adaptive != "sample"
    seeds, label = padded(seeds, labels, 1 if shared_step else options.rows)
    noise, label = options.noise(seeds, layout), label.to(options.device)
    breakpoints = field_breakpoints(velocity, schedule) if options.breakpoints is None else options.breakpoints
    field = flow_field(velocity, schedule, layout, label)
    solution = solve(field, noise, solver, breakpoints=breakpoints, rows=options.drop, watch=options.watch)
    return first_rows(solution, count)


def split_options(settings: Mapping[str, Any]) -> tuple[SampleOptions, dict[str, Any]]:
    """The `SampleOptions` among the settings, and the rest."""
    names = {field.name for field in fields(SampleOptions)} & settings.keys()
    rest = {name: settings[name] for name in settings.keys() - names}
    return SampleOptions(**{name: settings[name] for name in names}), rest


def first_rows(solution: Solution, count: int) -> Solution:
    """The solution without the rows that `padded` added."""
    return replace(solution, **{name: getattr(solution, name)[:count] for name in PER_SAMPLE})


def field_breakpoints(velocity: Velocity, schedule: Schedule) -> tuple[float, ...]:
    """Return the global times at which the field jumps: kinks of the schedule, and ends of guidance intervals.

    A velocity that jumps in local time has an attribute `edges`: {group: (t, ...)}.
    """
    points = set(schedule.breakpoints)
    for group, edges in getattr(velocity, "edges", {}).items():
        points |= {float(schedule.tau_of(group, t).detach()) for t in edges}
    return tuple(sorted(point for point in points if 0 < point < 1))
