"""ODE solvers over the global time tau in [0, 1]. They know no network and no schedule, only field(z, tau)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from lwd.errors import InputError, SolveError, nearest

Field = Callable[[Tensor, Tensor], Tensor]
"""z (b, ...), tau (b,) float64 -> dz/dtau (b, ...)."""


@dataclass(frozen=True)
class Tableau:
    """An explicit Runge-Kutta method; `error` holds b minus the embedded method's weights, if it has one."""

    nodes: tuple[float, ...]
    stages: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    error: tuple[float, ...] = ()


FIXED = {
    "euler": Tableau((0,), ((),), (1,)),
    "midpoint": Tableau((0, 1 / 2), ((), (1 / 2,)), (0, 1)),
    "heun": Tableau((0, 1), ((), (1,)), (1 / 2, 1 / 2)),
    "rk4": Tableau((0, 1 / 2, 1 / 2, 1), ((), (1 / 2,), (0, 1 / 2), (0, 0, 1)), (1 / 6, 1 / 3, 1 / 3, 1 / 6)),
}
# Dormand & Prince 1980, 5(4), with Shampine's error weights; the seventh stage is the next step's first.
DOPRI5 = Tableau(
    (0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1),
    (
        (),
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    ),
    (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0),
    (71 / 86400, 0, -142 / 50085, 71 / 2880, -5751 / 169600, 44 / 1575, -1 / 60),
)
METHODS = (*FIXED, "dopri5")


@dataclass(frozen=True)
class Solution:
    """The state at tau = 1 and what it cost.

    nfe counts calls of the field. accepted and rejected count steps; under per-sample control they are those of the
    slowest sample, and the `_per_sample` tensors (b,) hold everyone's.
    """

    z: Tensor
    nfe: int
    accepted: int
    rejected: int
    method: str
    accepted_per_sample: Tensor
    rejected_per_sample: Tensor

    def __repr__(self) -> str:
        steps = f"nfe={self.nfe}, accepted={self.accepted}, rejected={self.rejected}"
        return f"Solution(z={tuple(self.z.shape)}, {steps}, method={self.method!r})"


def solve(
    field: Field,
    z: Tensor,
    method: str = "dopri5",
    *,
    breakpoints: Sequence[float] = (),
    steps: int | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    max_nfe: int | None = None,
    adaptive: Literal["batch", "sample"] | None = None,
) -> Solution:
    """Integrate dz/dtau = field(z, tau) from tau = 0 to 1.

    method: euler, midpoint, heun, rk4 take `steps` (their total over [0, 1]); dopri5 takes atol (1e-6), rtol (1e-3),
    max_nfe (10000) and adaptive: "batch" (default) has one step size for all, "sample" one for each, so that a result
    does not depend on its neighbours. The field is never asked outside [0, 1]. No step crosses a breakpoint: at its
    end a step sees the field from the left, the next one from the right. Gradients flow through the steps taken, not
    through the choice of their size.
    """
    pieces = _pieces(breakpoints)
    if method not in METHODS:
        raise InputError(f"there is no method {method!r}; {nearest(str(method), METHODS)}")
    if not len(z):
        raise InputError("there is nothing to solve: the batch is empty")
    options = {"atol": atol, "rtol": rtol, "max_nfe": max_nfe, "adaptive": adaptive}
    if method != "dopri5":
        for name, value in options.items():
            if value is not None:
                raise InputError(f"{name} has no effect on {method}, which takes steps; use method='dopri5'")
        return _solve_fixed(_Counted(field, math.inf), z, method, step_grid(steps, pieces, method))
    if steps is not None:
        raise InputError("steps has no effect on dopri5, which chooses its own; use atol and rtol, or a fixed method")
    control = _Control.of(**options)
    return _solve_dopri5(_Counted(field, control.max_nfe), z, pieces, control)


@dataclass(frozen=True)
class Piece:
    """A stretch of tau without kinks; `last` is the largest time at which the field is asked while crossing it."""

    start: float
    end: float
    last: float


def step_grid(steps: int | None, pieces: Sequence[Piece], method: str = "a fixed method") -> list[Piece]:
    """`steps` steps that stop at the end of every piece; equal within a piece, so that the largest is smallest."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise InputError(f"{method} needs steps, a whole number >= 1, got {steps!r}")
    if steps < len(pieces):
        raise InputError(
            f"steps={steps} cannot stop at all {len(pieces) - 1} breakpoints; use steps >= {len(pieces)}, "
            "or pass breakpoints=() to step across them"
        )
    counts = [1] * len(pieces)
    for _ in range(steps - len(pieces)):
        sizes = [(piece.end - piece.start) / count for piece, count in zip(pieces, counts, strict=True)]
        counts[sizes.index(max(sizes))] += 1
    grid = []
    for piece, count in zip(pieces, counts, strict=True):
        points = [piece.start + (piece.end - piece.start) * k / count for k in range(count)] + [piece.end]
        ends = [*points[1:-1], piece.last]
        grid += [Piece(low, high, last) for (low, high), last in zip(pairwise(points), ends, strict=True)]
    return grid


def _solve_fixed(field: "_Counted", z: Tensor, method: str, grid: list[Piece]) -> Solution:
    tableau = FIXED[method]
    for step in grid:
        tau, h = _full(z, step.start), _full(z, step.end - step.start)
        ks = _stages(field, z, tau, h, tableau, step.last)
        z = z + _combine(h, tableau.weights, ks)
    if not torch.isfinite(z).all():
        raise SolveError(
            f"{method} ended in non-finite values: the field is not finite, or {len(grid)} steps are too few"
        )
    count = torch.full((len(z),), len(grid), device=z.device)
    return Solution(z, field.nfe, len(grid), 0, method, count, torch.zeros_like(count))


@dataclass(frozen=True)
class _Control:
    """Step-size control: tolerances, and Hairer's PI controller for a 5(4) pair."""

    atol: float = 1e-6
    rtol: float = 1e-3
    max_nfe: int = 10_000
    adaptive: str = "batch"

    @classmethod
    def of(cls, **options: Any) -> "_Control":
        control = cls(**{name: value for name, value in options.items() if value is not None})
        if not (math.isfinite(control.atol) and control.atol > 0):
            raise InputError(f"atol must be a number > 0, got {control.atol}")
        if not (math.isfinite(control.rtol) and control.rtol >= 0):
            raise InputError(f"rtol must be a number >= 0, got {control.rtol}")
        if control.max_nfe < 1:
            raise InputError(f"max_nfe is a whole number >= 1, got {control.max_nfe}")
        if control.adaptive not in ("batch", "sample"):
            raise InputError(f"adaptive is 'batch' or 'sample', got {control.adaptive!r}")
        return control

    def norm(self, x: Tensor, scale: Tensor) -> Tensor:
        """Root mean square of x / scale: one number for the batch (1,) or for each sample (b,). Without gradient."""
        square = (x / scale).detach().square().to(torch.float64)
        return (square.mean().reshape(1) if self.adaptive == "batch" else square.reshape(len(x), -1).mean(1)).sqrt()

    def scale(self, *states: Tensor) -> Tensor:
        largest = states[0].abs()
        for state in states[1:]:
            largest = torch.maximum(largest, state.abs())
        return self.atol + self.rtol * largest

    @staticmethod
    def factor(ratio: Tensor, previous: Tensor, accepted: Tensor) -> Tensor:
        """What to multiply the step size with, given this step's error ratio and the last accepted one's."""
        factor = 0.9 * ratio.clamp(min=1e-10) ** -0.18 * previous.clamp(min=1e-4) ** 0.03
        factor = torch.where(accepted, factor, (0.9 * ratio**-0.2).clamp(max=0.9))
        return torch.nan_to_num(factor, nan=0.2, posinf=10.0).clamp(0.2, 10.0)


def _solve_dopri5(field: "_Counted", z: Tensor, pieces: list[Piece], control: _Control) -> Solution:
    rows = 1 if control.adaptive == "batch" else len(z)
    accepted = torch.zeros(rows, dtype=torch.int64, device=z.device)
    rejected, h = torch.zeros_like(accepted), None
    for piece in pieces:
        z, h, plus, minus = _dopri5_piece(field, z, piece, h, control)
        accepted, rejected = accepted + plus, rejected + minus
    counts = accepted.expand(len(z)).clone(), rejected.expand(len(z)).clone()
    return Solution(z, field.nfe, int(accepted.max()), int(rejected.max()), "dopri5", *counts)


def _dopri5_piece(
    field: "_Counted", z: Tensor, piece: Piece, h: Tensor | None, control: _Control
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Integrate over one smooth piece; returns z, the step size to go on with, accepted and rejected counts."""
    first, end = field(z, _full(z, piece.start)), piece.end
    if not torch.isfinite(first).all():
        raise SolveError(f"the field returned non-finite values at tau = {piece.start:.6g}; check the velocity there")
    h = _initial_step(field, z, first, piece, control) if h is None else h
    tau, previous = torch.full_like(h, piece.start), torch.ones_like(h)
    accepted = torch.zeros_like(h, dtype=torch.int64)
    rejected = torch.zeros_like(accepted)
    while (active := tau < end).any():
        left = end - tau
        # Two equal steps instead of a long and a tiny one; a step that would nearly arrive, arrives.
        size = torch.where(1.01 * h >= left, left, torch.where(2 * h > left, left / 2, h))
        arrives = size == left
        if (active & (tau + size <= tau)).any():
            raise SolveError(
                f"the step size fell to 0 at tau = {float(tau[active].min()):.9g}: the field is non-finite"
            )
        ks = _stages(field, z, tau.expand(len(z)), size.expand(len(z)), DOPRI5, piece.last, first)
        step = z + _combine(size.expand(len(z)), DOPRI5.weights, ks)
        ratio = control.norm(_combine(size.expand(len(z)), DOPRI5.error, ks), control.scale(z, step))
        good = ratio <= 1  # False for NaN
        moved = good & active
        following = size * control.factor(ratio, previous, good)
        # A step that was shortened only to arrive says nothing against the size that was planned.
        following = torch.where(good & (size < h), torch.maximum(h, following), following)
        h = torch.where(active, following, h)
        previous = torch.where(moved, ratio, previous)
        z, first = _choose(moved, step, z), _choose(moved, ks[-1], first)
        tau = torch.where(moved, torch.where(arrives, end, tau + size), tau)
        accepted, rejected = accepted + moved, rejected + (active & ~good)
    return z, h, accepted, rejected


@torch.no_grad()
def _initial_step(field: "_Counted", z: Tensor, first: Tensor, piece: Piece, control: _Control) -> Tensor:
    """Hairer, Norsett & Wanner, Solving ODEs I, II.4: a first step that the first two derivatives justify."""
    scale = control.scale(z)
    d0, d1 = control.norm(z, scale), control.norm(first, scale)
    h0 = torch.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / d1).clamp(max=piece.last - piece.start)
    second = field(z + _combine(h0.expand(len(z)), (1,), [first]), piece.start + h0.expand(len(z)))
    d2 = control.norm(second - first, scale) / h0
    largest = torch.maximum(d1, d2)
    h1 = torch.where(largest <= 1e-15, (h0 * 1e-3).clamp(min=1e-6), (0.01 / largest) ** 0.2)
    return torch.nan_to_num(torch.minimum(100 * h0, h1), nan=1e-6)


def _stages(
    field: "_Counted", z: Tensor, tau: Tensor, h: Tensor, tableau: Tableau, last: float, first: Tensor | None = None
) -> list[Tensor]:
    """k_i = field(z + h sum_j a_ij k_j, tau + c_i h); tau, h: (b,); no time beyond `last` is asked for."""
    ks = [field(z, tau) if first is None else first]
    for node, row in zip(tableau.nodes[1:], tableau.stages[1:], strict=True):
        ks.append(field(z + _combine(h, row, ks), (tau + node * h).clamp(max=last)))
    return ks


def _combine(h: Tensor, weights: Sequence[float], ks: Sequence[Tensor]) -> Tensor:
    """h sum_j w_j k_j, h: (b,)."""
    total = torch.zeros_like(ks[0])
    for weight, k in zip(weights, ks, strict=False):
        if weight:
            total = total + weight * k
    return h.to(total.dtype).reshape(-1, *(1,) * (total.ndim - 1)) * total


def _choose(rows: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(rows.reshape(-1, *(1,) * (yes.ndim - 1)), yes, no)


def _full(z: Tensor, value: float) -> Tensor:
    # float64: at 250 steps float32 tau drifts by 3e-6 and the last step would miss 1.
    return torch.full((len(z),), value, dtype=torch.float64, device=z.device)


def _pieces(breakpoints: Sequence[float]) -> list[Piece]:
    """[0, 1] cut at the breakpoints. Points closer than 1e-12 are one kink: the piece before ends at the first of them,
    the piece after begins at the last, so that neither sees the field inside.
    """
    for point in breakpoints:
        if not 0 < point < 1:
            raise InputError(f"breakpoints lie strictly between 0 and 1, got {point}")
    kinks: list[list[float]] = []
    for point in sorted(map(float, breakpoints)):
        if kinks and point - kinks[-1][1] <= 1e-12:
            kinks[-1][1] = point
        else:
            kinks.append([point, point])
    starts, ends = [0.0, *(high for _, high in kinks)], [*(low for low, _ in kinks), 1.0]
    # Just before a kink the field has its left limit; at the kink itself rates are those of the next piece.
    lasts = [*(math.nextafter(low, 0.0) for low, _ in kinks), 1.0]
    return [Piece(*piece) for piece in zip(starts, ends, lasts, strict=True)]


class _Counted:
    """The user's field with its calls counted, its output checked, and its budget enforced."""

    def __init__(self, field: Field, max_nfe: float) -> None:
        self.field, self.max_nfe, self.nfe = field, max_nfe, 0

    def __call__(self, z: Tensor, tau: Tensor) -> Tensor:
        if self.nfe >= self.max_nfe:
            reached = float(tau.min())
            raise SolveError(
                f"max_nfe = {self.max_nfe} evaluations were not enough, tau = {reached:.4g} was reached; "
                "raise max_nfe, or loosen rtol and atol"
            )
        self.nfe += 1
        value = self.field(z, tau)
        if value.shape != z.shape:
            raise InputError(f"field returned shape {tuple(value.shape)} for a state {tuple(z.shape)}; must be equal")
        return value.to(z.dtype)
