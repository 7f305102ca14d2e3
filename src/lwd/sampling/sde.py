"""Sampling with noise along the way: the reverse SDE whose marginals are those of the ODE, over any schedule."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lwd.compute.seeds import padded
from lwd.errors import InputError, SolveError, nearest
from lwd.groups import Layout
from lwd.path import Velocity
from lwd.sampler import field_breakpoints, first_rows, flow_field, sample, split_options
from lwd.sampling.diffusion import Coefficient, LastStep, coefficients_of
from lwd.sampling.sefi import sample_sefi
from lwd.sampling.settings import SEFI
from lwd.schedule.base import Schedule
from lwd.solver import Field, Piece, Solution, step_grid
from lwd.solver.base import Tableau, Watch, combine, cut, full, given_grid, share_steps
from lwd.solver.fixed import FIXED

TABLEAUS = {"euler-maruyama": FIXED["euler"], "sde-heun": FIXED["heun"]}
SDE_METHODS = tuple(TABLEAUS)
LAST_STEP = {"euler-maruyama": "mean:0.04", "sde-heun": "ode:0.04"}
"""SiT's default for its method; with sde-heun the error of `mean` would be larger than that of all other steps."""


@dataclass(frozen=True)
class SDESettings:
    """A stochastic method, its steps, and how much noise each group gets."""

    method: str = "euler-maruyama"
    """euler-maruyama (weak order 1) or sde-heun (weak order 2, two evaluations per step)."""
    steps: int | None = None
    """Number of steps over [0, 1], the last one included."""
    grid: Sequence[float] | None = None
    """The times between which to step, from 0 to 1, instead of `steps`."""
    diffusion: str | Mapping[str, str] = "sigma"
    """Coefficient w(t) for all groups or by group: none, constant, sigma, decreasing or increasing-decreasing, with a
    scale after a colon (sigma:0.5). A group left out has no noise."""
    last_step: str | None = None
    """The noise-free last step and its size in local time: mean:0.04 (SiT; default of euler-maruyama) or ode:0.04
    (default of sde-heun)."""

    def __post_init__(self) -> None:
        if self.method not in TABLEAUS:
            raise InputError(f"there is no SDE method {self.method!r}; {nearest(str(self.method), TABLEAUS)}")
        if self.grid is not None and self.steps is not None:
            raise InputError("steps and grid both say where to step; pass one of them")
        if self.last_step is None:
            object.__setattr__(self, "last_step", LAST_STEP[self.method])
        LastStep.parse(self.last_step)


def score(velocity: Tensor, z: Tensor, times: Tensor, layout: Layout) -> Tensor:
    """The score of each group from its velocity, (t v - z) / (1 - t) (Eq. score-transform); not finite at t = 1.

    velocity, z: (b, c, ...); times: (b, n) -> grad log p_t(z) (b, c, ...). With z = (1 - t) noise + t data the noise
    that is expected in z is z - t v, and the score is minus that over 1 - t.
    """
    t = layout.expand(times, z.ndim)
    return (t.to(z.dtype) * velocity - z) / (1 - t).to(z.dtype)


@dataclass(frozen=True)
class Stirred:
    """The velocity v + w(t) score: the drift per unit local time of dz = (v + w score) dt + sqrt(2 w) dW."""

    velocity: Velocity
    layout: Layout
    coefficients: tuple[Coefficient, ...]

    def __call__(self, z: Tensor, times: Tensor, label: Any) -> Tensor:
        v = self.velocity(z, times, label).to(z.dtype)
        w = torch.stack([_weight(c, times[:, i]) for i, c in enumerate(self.coefficients)], dim=1)
        w = self.layout.expand(w, z.ndim).to(z.dtype)
        # Without noise the velocity stays bit for bit what it was, also at t = 1, where there is no score.
        return torch.where(w == 0, v, v + w * score(v, z, times, self.layout))


def _weight(coefficient: Coefficient, t: Tensor) -> Tensor:
    return torch.zeros_like(t) if coefficient.is_zero else coefficient(t)


@dataclass(frozen=True)
class ReverseSDE:
    """dz_g = rate_g v_g dtau + D_g/2 score_g dtau + sqrt(D_g) dW_g with D_g = 2 rate_g w_g(t_g).

    Any D_g >= 0 leaves the marginals p_tau of the ODE unchanged. In proportion to the rate it is the same SDE for any
    choice of tau, and a group that stands still gets neither drift nor noise.
    """

    velocity: Velocity
    schedule: Schedule
    layout: Layout
    label: Any
    coefficients: tuple[Coefficient, ...]
    last: LastStep

    def __post_init__(self) -> None:
        flow_field(self.velocity, self.schedule, self.layout, self.label)  # refuses a schedule of other groups

    def ends(self) -> tuple[float, ...]:
        """Global times at which the noise of a group ends."""
        return noise_ends(self.schedule, self.coefficients, self.last)

    def noise_on(self, step: Piece) -> tuple[Coefficient, ...]:
        """The coefficients during a step: none for groups past the end of their noise."""
        middle = torch.tensor((step.start + step.end) / 2, dtype=torch.float64)
        times = self.schedule.times(middle).tolist()
        on = zip(self.coefficients, times, strict=True)
        return tuple(c if t < 1 - self.last.size else Coefficient("none") for c, t in on)

    def drift(self, coefficients: tuple[Coefficient, ...]) -> Field:
        """rate_g (v_g + w_g score_g) = rate_g v_g + D_g/2 score_g, as a field over tau."""
        stirred = Stirred(self.velocity, self.layout, coefficients)
        return flow_field(stirred, self.schedule, self.layout, self.label)

    def diffusion(self, tau: Tensor, coefficients: tuple[Coefficient, ...]) -> Tensor:
        """D_g(tau) = 2 rate_g w_g(t_g): (b,) -> (b, n)."""
        times, rates = self.schedule.times(tau), self.schedule.rates(tau)
        return 2 * rates * torch.stack([_weight(c, times[:, i]) for i, c in enumerate(coefficients)], dim=1)


def noise_ends(schedule: Schedule, coefficients: Sequence[Coefficient], last: LastStep) -> tuple[float, ...]:
    """Global times at which a group that has noise reaches local time 1 - size of the last step."""
    named = zip(schedule.groups, coefficients, strict=True)
    return tuple(sorted({float(schedule.tau_of(g, 1 - last.size).detach()) for g, c in named if not c.is_zero}))


def sde_steps(
    sde: ReverseSDE,
    breakpoints: Sequence[float],
    method: str,
    steps: int | None = None,
    grid: Sequence[float] | None = None,
) -> list[Piece]:
    """The steps of a solve: they stop at kinks and where a group's noise ends; after the last of these comes one."""
    ends = sde.ends()
    pieces = cut((*breakpoints, *ends))
    if grid is not None:
        return given_grid(grid, pieces)
    share_steps(steps, [piece.end - piece.start for piece in pieces], method)  # refuse too few
    assert steps is not None
    early, late = split_last(pieces, ends)
    return [*step_grid(steps - len(late), early, method), *late]


def split_last(pieces: list[Piece], ends: Sequence[float]) -> tuple[list[Piece], list[Piece]]:
    """The pieces before and after the last of `ends`; all of them are early where there is none."""
    count = sum(piece.start < max(ends, default=1.0) - 1e-12 for piece in pieces)
    return pieces[:count], pieces[count:]


def integrate(
    sde: ReverseSDE,
    z: Tensor,
    steps: list[Piece],
    method: str,
    noise: Callable[[int], Tensor],
    watch: Watch | None = None,
) -> Solution:
    """March over the steps; noise(k) is the standard normal of step k, with the shape of z.

    euler-maruyama: z + h b(z) + dW. sde-heun: the mean of the slopes at z and at that point, and the same dW, whose
    variance is the trapezoidal rule of D: weak order 2, because D does not depend on z.
    """
    tableau, active = TABLEAUS[method], (Coefficient("none"),) * len(sde.layout)
    for k, step in enumerate(steps):
        before, active = active, sde.noise_on(step)
        over = all(c.is_zero for c in active)
        dw = None if over else _increment(sde, z, step, tableau, active) * noise(k).to(z)
        first = sde.drift(before if over and sde.last.kind == "mean" else active)(z, full(z, step.start))
        z = _step(sde.drift(active), z, step, tableau, first, dw)
        if watch:
            watch(step.end, z)
    if not torch.isfinite(z).all():
        raise SolveError(
            f"{method} ended in non-finite values: the velocity is not finite, or {len(steps)} steps are too few"
        )
    count = torch.full((len(z),), len(steps), device=z.device)
    calls = len(tableau.nodes) * count
    return Solution(z, int(calls[0]), len(steps), 0, method, count, torch.zeros_like(count), calls)


def _increment(
    sde: ReverseSDE, z: Tensor, step: Piece, tableau: Tableau, coefficients: tuple[Coefficient, ...]
) -> Tensor:
    """Standard deviation of dW over a step for each channel: h sum_i b_i D(tau + c_i h) under the root."""
    h, variance = step.end - step.start, torch.zeros(1, len(sde.layout), dtype=torch.float64, device=z.device)
    for node, weight in zip(tableau.nodes, tableau.weights, strict=True):
        tau = full(z[:1], min(step.start + node * h, step.last))
        variance = variance + h * weight * sde.diffusion(tau, coefficients).clamp(min=0)
    return sde.layout.expand(variance.sqrt(), z.ndim).to(z.dtype)


def _step(drift: Field, z: Tensor, step: Piece, tableau: Tableau, first: Tensor, dw: Tensor | None) -> Tensor:
    """A Runge-Kutta step from the slope `first`, with the noise in every later stage and in the result."""
    tau, h = full(z, step.start), full(z, step.end - step.start)
    ks = [first]
    for node, row in zip(tableau.nodes[1:], tableau.stages[1:], strict=True):
        stage = z + combine(h, row, ks)
        ks.append(drift(stage if dw is None else stage + dw, (tau + node * h).clamp(max=step.last)))
    z = z + combine(h, tableau.weights, ks)
    return z if dw is None else z + dw


def step_noise(seeds: Sequence[int], step: int, shape: Sequence[int]) -> Tensor:
    """One standard normal (len(seeds), *shape) float32; row i is a function of seeds[i], the step and the shape alone.

    Philox, keyed with both numbers: torch's generator on the CPU keeps 32 bits of its seed, and of the millions of
    seeds that 50,000 samples of 250 steps need thousands would be equal.
    """
    rows = [np.random.Generator(np.random.Philox(key=[seed, step])) for seed in seeds]
    return torch.stack([torch.from_numpy(row.standard_normal(tuple(shape), dtype=np.float32)) for row in rows])


@torch.no_grad()
def sample_sde(
    velocity: Velocity,
    schedule: Schedule,
    layout: Layout,
    *,
    seeds: Sequence[int],
    labels: Any = 0,
    **settings: Any,
) -> Solution:
    """One sample per seed, like `sample`, by an SDE with the same marginals (Theorem 1, III): `ReverseSDE`.

    All noise of a sample is a function of its seed: the same for any batch size, order and number of processes.
    settings: those of `SampleOptions` (size, device, ...) and `SDESettings` (method, steps, diffusion, ...).

    Example:
        >>> data = lwd.Gaussian(lwd.Layout.of(texture=1, semantic=1), torch.eye(2))
        >>> lwd.sample_sde(data, lwd.Offset(0.3), data.layout, seeds=range(4), size=(1, 1), steps=50, diffusion="sigma")
        Solution(z=(4, 2, 1, 1), nfe=50, accepted=50, rejected=0, method='euler-maruyama')
    """
    options, rest = split_options(settings)
    chosen, count = sde_settings(**rest), len(seeds)
    rows, label = padded(seeds, labels, options.rows)
    noise, label = options.noise(rows, layout), label.to(options.device)
    last, coefficients = LastStep.parse(chosen.last_step), coefficients_of(chosen.diffusion, layout.names)
    sde = ReverseSDE(velocity, schedule, layout, label, coefficients, last)
    breakpoints = field_breakpoints(velocity, schedule) if options.breakpoints is None else options.breakpoints
    steps = sde_steps(sde, breakpoints, chosen.method, chosen.steps, chosen.grid)
    drawn = partial(step_noise, rows, shape=noise.shape[1:])
    solution = integrate(sde, noise, steps, chosen.method, drawn, options.watch)
    return first_rows(solution, count)


def sde_settings(**settings: Any) -> SDESettings:
    """Settings by name; unknown ones are refused."""
    known = [field.name for field in fields(SDESettings)]
    for name in settings:
        if name not in known:
            raise InputError(f"an SDE method has no setting {name!r}; {nearest(str(name), known)}", argument=name)
    return SDESettings(**settings)


def sampler_of(method: str) -> Callable[..., Solution]:
    """`sample_sde` for a stochastic method, `sample_sefi` for SeFi-Image's, `sample` for the others."""
    if method == SEFI:
        return sample_sefi
    return sample_sde if method in TABLEAUS else sample
