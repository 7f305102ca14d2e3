"""Where a few steps are best put: evenly in tau or a group's time, shifted, or as a calibration batch says."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from lwd.errors import InputError, SolveError, nearest
from lwd.sampler import field_breakpoints, flow_field, seeded_noise
from lwd.sampling.flow import Flow
from lwd.sampling.sde import split_last
from lwd.sampling.sefi import shifted
from lwd.sampling.settings import OPTIMISED, SHIFT, UNIFORM
from lwd.schedule.base import Schedule
from lwd.solver import solve
from lwd.solver.base import Field, Piece, cut, full, share_steps, step_grid
from lwd.solver.fixed import ORDERS

CALIBRATION, CANDIDATES = 32, 128
FIRST_SEED = 2**31
"""First seed of the calibration batch, far from the seeds of samples."""


def placements(schedule: Schedule) -> tuple[str, ...]:
    """The names that `place` knows: tau, each group, shift:A, optimised."""
    return (UNIFORM, *schedule.groups, f"{SHIFT}:0.3", OPTIMISED)


def place(
    placement: str,
    steps: int,
    method: str,
    flow: Flow,
    ends: Sequence[float] = (),
    calibration: "Calibration | None" = None,
) -> tuple[float, ...]:
    """Times (0, ..., 1) of `steps` steps, as `solve` takes them; they stop at every kink of the field.

    placement: "tau", a group's name (even in its local time), "shift:A" (even, then tau = A s / (1 + (A - 1) s)), or
    "optimised" for this method and flow, on 32 samples with seeds of their own.
    ends: where the noise of an SDE's groups ends; they stop there too, and take one step after the last of them.
    calibration: of this flow, if there is one already.
    """
    schedule = flow.schedule
    breakpoints = sorted({*field_breakpoints(flow.velocity, schedule), *ends})
    if placement != OPTIMISED:
        pieces = cut(breakpoints)
        share_steps(steps, [piece.end - piece.start for piece in pieces], method)  # refuse too few
        early, late = split_last(pieces, ends)
        if placement == UNIFORM:
            return _times([*step_grid(steps - len(late), early, method), *late])
        times = evenly(clock_of(placement, schedule), steps - len(late), early)
        return (*times, *(piece.end for piece in late))
    if method not in ORDERS:
        raise InputError(f"optimised steps are for {', '.join(ORDERS)}, not for {method}", argument="placement")
    starts = [_times(step_grid(steps, cut(breakpoints), method))]
    starts += [even_in(group, steps, schedule, breakpoints) for group in schedule.groups]
    return (calibration or calibrate(flow)).optimised(steps, method, starts)


def calibrate(flow: Flow) -> "Calibration":
    """The calibration batch of a flow: its own seeds, labels as in the samples."""
    label = flow.condition(CALIBRATION)
    noise = seeded_noise(range(FIRST_SEED, FIRST_SEED + CALIBRATION), (flow.layout.channels, *flow.size), flow.device)
    field = flow_field(flow.velocity, flow.schedule, flow.layout, label)
    return Calibration(field, noise, field_breakpoints(flow.velocity, flow.schedule))


@dataclass(frozen=True)
class Clock:
    """A monotone map of tau and its inverse, on float64 tensors."""

    local: Callable[[Tensor], Tensor]
    tau: Callable[[Tensor], Tensor]


def clock_of(placement: str, schedule: Schedule) -> Clock:
    """The clock in which steps are even: a group's own, or that of `shift:A`."""
    if placement in schedule.groups:
        index = schedule.groups.index(placement)
        return Clock(lambda tau: schedule.times(tau)[..., index], lambda t: schedule.tau_of(placement, t))
    name, colon, number = str(placement).partition(":")
    if name != SHIFT or not colon:
        known = placements(schedule)
        raise InputError(f"there is no placement {placement!r}; {nearest(str(placement), known)}", argument="placement")
    try:
        factor = float(number)
    except ValueError:
        factor = math.nan
    if not 0 < factor < math.inf:
        raise InputError(f"{SHIFT}:A needs a number A > 0, got {placement!r}", argument="placement")
    return Clock(lambda tau: shifted(tau, 1 / factor), lambda s: shifted(s, factor))


def even_in(group: str, steps: int, schedule: Schedule, breakpoints: Sequence[float] = ()) -> tuple[float, ...]:
    """Steps of equal local time of `group`; where its clock stands still, one step from kink to kink."""
    return evenly(clock_of(group, schedule), steps, cut(breakpoints))


def evenly(clock: Clock, steps: int, pieces: Sequence[Piece]) -> tuple[float, ...]:
    """Times of `steps` steps that are even in `clock` between the ends of the pieces."""
    ends = [clock.local(torch.tensor([p.start, p.end], dtype=torch.float64)).detach().tolist() for p in pieces]
    counts = share_steps(steps, [high - low for low, high in ends])
    times = [0.0]
    for piece, (low, high), count in zip(pieces, ends, counts, strict=True):
        locals_ = torch.linspace(low, high, count + 1, dtype=torch.float64)[1:-1]
        inner = clock.tau(locals_).detach().tolist() if count > 1 else []
        times += [*inner, piece.end]
    return tuple(times)


class Calibration:
    """A batch z and its flow; what placements need to know about it is computed once, when it is first needed."""

    def __init__(self, field: Field, z: Tensor, breakpoints: Sequence[float] = ()) -> None:
        self.field, self.z, self.breakpoints = field, z, breakpoints
        self._trajectories: dict[int, Trajectory] = {}

    @cached_property
    def truth(self) -> Tensor:
        """The accurate state at tau = 1."""
        with torch.no_grad():
            return solve(self.field, self.z, breakpoints=self.breakpoints, rtol=1e-6, atol=1e-8).z

    def trajectory(self, steps: int) -> "Trajectory":
        """States and slopes at candidate times, at least twice as many as steps."""
        count = max(CANDIDATES, 2 * steps)
        if count not in self._trajectories:
            self._trajectories[count] = follow(self.field, self.z, step_grid(count, cut(self.breakpoints)))
        return self._trajectories[count]

    @torch.no_grad()
    def optimised(
        self, steps: int, method: str, starts: Sequence[tuple[float, ...]] = (), budget: int = 800
    ) -> tuple[float, ...]:
        """Search for the times with the smallest error at tau = 1.

        Starts from the best of `starts` and `least_local_error`, then moves one time after another as long as that
        helps, for about `budget` evaluations of the field.
        """
        calls = 0

        def error(grid: tuple[float, ...]) -> float:
            nonlocal calls
            try:
                solution = solve(self.field, self.z, method, grid=grid, breakpoints=self.breakpoints)
            except SolveError:
                return math.inf
            calls += solution.nfe
            return float((solution.z - self.truth).double().square().mean())

        initial = [*starts, cheapest(self.trajectory(steps), steps, ORDERS[method])]
        lowest, best = min((error(grid), grid) for grid in initial)
        reach = 0.3
        while reach > 0.02:
            before = lowest
            for i in range(1, steps):
                for moved in _moves(best, i, reach) if best[i] not in self.breakpoints else ():
                    if calls >= budget:
                        return best
                    if (value := error(moved)) < lowest:
                        lowest, best = value, moved
            reach = reach if lowest < 0.98 * before else reach / 2
        return best


def _moves(grid: tuple[float, ...], i: int, reach: float) -> list[tuple[float, ...]]:
    """Return the grid with its i-th time moved towards either neighbour."""
    return [(*grid[:i], grid[i] + reach * (near - grid[i]), *grid[i + 1 :]) for near in (grid[i - 1], grid[i + 1])]


def least_local_error(
    field: Field, z: Tensor, steps: int, order: int, breakpoints: Sequence[float] = (), candidates: int = CANDIDATES
) -> tuple[float, ...]:
    """Find the `steps` steps between candidate times with the smallest sum of local errors, by dynamic programming.

    The error of a step is that of Euler's rule (order 1) or of the trapezoidal rule (order 2 and more) along an
    accurate trajectory of z.
    """
    pieces = cut(breakpoints)
    share_steps(steps, [piece.end - piece.start for piece in pieces])  # raises an error for too few steps
    return cheapest(follow(field, z, step_grid(max(candidates, 2 * steps), pieces)), steps, order)


@dataclass(frozen=True)
class Trajectory:
    """States (m + 1, ...) at the ends of fine steps, and the slopes there from the right and from the left."""

    fine: list[Piece]
    states: Tensor
    rights: list[Tensor]
    lefts: Tensor


@torch.no_grad()
def follow(field: Field, z: Tensor, fine: list[Piece]) -> Trajectory:
    """Take Heun steps, and keep what they see."""
    states, rights, lefts = [z], [], [torch.zeros_like(z)]
    for step in fine:
        h = step.end - step.start
        rights.append(field(z, full(z, step.start)))
        end = field(z + h * rights[-1], full(z, step.last))
        z = z + h / 2 * (rights[-1] + end)
        states.append(z)
        lefts.append(end)
    return Trajectory(fine, torch.stack(states).flatten(1), rights, torch.stack(lefts).flatten(1))


def cheapest(trajectory: Trajectory, steps: int, order: int) -> tuple[float, ...]:
    """The `steps` steps with the smallest sum of local errors."""
    fine, cost = trajectory.fine, _step_costs(trajectory, order)
    best = torch.full((len(fine) + 1,), torch.inf, dtype=torch.float64)
    best[0] = 0
    origins = []
    for _ in range(steps):
        best, origin = (best[:, None] + cost).min(0)
        origins.append(origin)
    path = [len(fine)]
    for origin in reversed(origins):
        path.append(int(origin[path[-1]]))
    times = _times(fine)
    return tuple(times[i] for i in reversed(path))


def _step_costs(trajectory: Trajectory, order: int) -> Tensor:
    """Root mean square error of one step from candidate i to j, (m + 1, m + 1); infinite backwards and across kinks."""
    fine, ahead, after, rights = trajectory.fine, trajectory.states, trajectory.lefts, trajectory.rights
    count = len(fine)
    starts = torch.tensor([step.start for step in fine] + [1.0], dtype=torch.float64)
    pieces = torch.tensor([0, *(step.last != step.end for step in fine)]).cumsum(0)
    # A candidate at a kink ends one piece and starts the next.
    ends_in = pieces - torch.tensor([0, *(step.last != step.end for step in fine)])
    cost = torch.full((count + 1, count + 1), torch.inf, dtype=torch.float64)
    for i in range(count):
        rows = [j for j in range(i + 1, count + 1) if ends_in[j] == pieces[i]]
        width = (starts[rows] - starts[i])[:, None].to(ahead)
        slope = rights[i].flatten() if order == 1 else (rights[i].flatten() + after[rows]) / 2
        cost[i, rows] = (ahead[rows] - ahead[i] - width * slope).square().mean(1).sqrt().double().cpu()
    return cost


def _times(grid: Sequence[Piece]) -> tuple[float, ...]:
    assert all(a.end <= b.start + 1e-12 for a, b in pairwise(grid))
    return (*(step.start for step in grid), 1.0)
