"""The adaptive method of Dormand and Prince, with one step size for the batch or one per sample."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lwd.errors import InputError, SolveError
from lwd.solver.base import Counted, Piece, Solution, Tableau, Watch, choose, combine, full, stages

# Dormand & Prince 1980, 5(4), with Shampine's error weights; the seventh stage is the first stage of the next step.
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


ROWS = 8
"""Samples that are done leave the batch in multiples of this: from 8 rows on, matrix products round alike."""


@dataclass(frozen=True)
class Control:
    """Step-size control: tolerances, and Hairer's PI controller for a 5(4) pair."""

    atol: float = 1e-6
    rtol: float = 1e-3
    max_nfe: int = 10_000
    adaptive: str = "batch"

    def __post_init__(self) -> None:
        if not 0 < self.atol < math.inf:
            raise InputError(f"atol must be a number > 0, got {self.atol}")
        if not 0 <= self.rtol < math.inf:
            raise InputError(f"rtol must be a number >= 0, got {self.rtol}")
        if self.max_nfe < 1:
            raise InputError(f"max_nfe must be an integer >= 1, got {self.max_nfe}")
        if self.adaptive not in ("batch", "sample"):
            raise InputError(f"adaptive must be 'batch' or 'sample', got {self.adaptive!r}")

    def norm(self, x: Tensor, scale: Tensor) -> Tensor:
        """Root mean square of x / scale: one value for the batch (1,) or per sample (b,). No gradient."""
        square = (x / scale).detach().square().to(torch.float64)
        return (square.mean().reshape(1) if self.adaptive == "batch" else square.reshape(len(x), -1).mean(1)).sqrt()

    def scale(self, *states: Tensor) -> Tensor:
        largest = states[0].abs()
        for state in states[1:]:
            largest = torch.maximum(largest, state.abs())
        return self.atol + self.rtol * largest

    @staticmethod
    def factor(ratio: Tensor, previous: Tensor, accepted: Tensor) -> Tensor:
        """The factor for the step size, given the error ratios of this step and of the last accepted one."""
        factor = 0.9 * _power(ratio.clamp(min=1e-10), -0.18) * _power(previous.clamp(min=1e-4), 0.03)
        factor = torch.where(accepted, factor, (0.9 * _power(ratio, -0.2)).clamp(max=0.9))
        return torch.nan_to_num(factor, nan=0.2, posinf=10.0).clamp(0.2, 10.0)


def _power(x: Tensor, exponent: float) -> Tensor:
    """x ** exponent, (b,), with the same bits for any b: padded, as rows beyond a multiple of 16 round differently."""
    return torch.cat([x, x.new_ones(-len(x) % 16)]).pow(exponent)[: len(x)]


def solve_dopri5(
    field: Counted, z: Tensor, pieces: list[Piece], control: Control, watch: Watch | None = None, rows: int = ROWS
) -> Solution:
    """Integrate piece by piece; `watch` sees the state at the end of each. rows: see `solve`."""
    count = 1 if control.adaptive == "batch" else len(z)
    accepted = torch.zeros(count, dtype=torch.int64, device=z.device)
    rejected, h = torch.zeros_like(accepted), None
    for piece in pieces:
        z, h, plus, minus = _dopri5_piece(field, z, piece, h, control, rows)
        accepted, rejected = accepted + plus, rejected + minus
        if watch:
            watch(piece.end, z)
    counts = accepted.expand(len(z)).clone(), rejected.expand(len(z)).clone()
    # Alone, a sample needs one call per piece, one for the first step size, and six per step.
    calls = len(pieces) + 1 + 6 * (counts[0] + counts[1])
    return Solution(z, field.nfe, int(accepted.max()), int(rejected.max()), "dopri5", *counts, calls)


class _State(NamedTuple):
    """The samples on one piece: state, slope, time, next step size, last error ratio, and counts of steps."""

    z: Tensor
    first: Tensor
    tau: Tensor
    h: Tensor
    previous: Tensor
    accepted: Tensor
    rejected: Tensor

    def take(self, index: Tensor | None) -> "_State":
        return self if index is None else _State(*(value[index] for value in self))

    def put(self, index: Tensor | None, part: "_State") -> "_State":
        """Return the state with the rows `index` replaced."""
        if index is None:
            return part
        return _State(*(old.index_copy(0, index, new) for old, new in zip(self, part, strict=True)))


def _dopri5_piece(
    field: Counted, z: Tensor, piece: Piece, h: Tensor | None, control: Control, rows: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Integrate over one smooth piece; returns z, the next step size, accepted and rejected counts."""
    field.choose(None)
    first = field(z, full(z, piece.start))
    if not torch.isfinite(first).all():
        raise SolveError(f"the field returned non-finite values at tau = {piece.start:.6g}; check the velocity there")
    h = _initial_step(field, z, first, piece, control) if h is None else h
    none = torch.zeros_like(h, dtype=torch.int64)
    state = _State(z, first, torch.full_like(h, piece.start), h, torch.ones_like(h), none, none)
    divisible = control.adaptive == "sample" and callable(getattr(field.field, "rows", None))
    while (active := state.tau < piece.end).any():
        index = _kept(active, rows) if divisible else None
        field.choose(index)
        state = state.put(index, _step(field, state.take(index), piece, control))
    return state.z, state.h, state.accepted, state.rejected


def _kept(active: Tensor, rows: int) -> Tensor | None:
    """Row numbers of the active samples, with others up to a multiple of `rows`; None if that is all of them."""
    need = int(active.sum())
    need += -need % rows
    if need >= len(active):
        return None
    return active.int().argsort(stable=True, descending=True)[:need].sort().values


def _step(field: Counted, state: _State, piece: Piece, control: Control) -> _State:
    """One step of every sample that has not reached the end of the piece."""
    z, first, tau, h, previous, accepted, rejected = state
    active, left = tau < piece.end, piece.end - tau
    # Two equal steps instead of a long and a tiny one; a step that nearly reaches the end is stretched to it.
    size = torch.where(1.01 * h >= left, left, torch.where(2 * h > left, left / 2, h))
    arrives = size == left
    if (active & (tau + size <= tau)).any():
        raise SolveError(f"the step size fell to 0 at tau = {float(tau[active].min()):.9g}: the field is non-finite")
    ks = stages(field, z, tau.expand(len(z)), size.expand(len(z)), DOPRI5, piece.last, first)
    step = z + combine(size.expand(len(z)), DOPRI5.weights, ks)
    ratio = control.norm(combine(size.expand(len(z)), DOPRI5.error, ks), control.scale(z, step))
    good = ratio <= 1  # False for NaN
    moved = good & active
    following = size * control.factor(ratio, previous, good)
    # A step shortened only to stop at the end must not reduce the next step size.
    following = torch.where(good & (size < h), torch.maximum(h, following), following)
    return _State(
        choose(moved, step, z),
        choose(moved, ks[-1], first),
        torch.where(moved, torch.where(arrives, piece.end, tau + size), tau),
        torch.where(active, following, h),
        torch.where(moved, ratio, previous),
        accepted + moved,
        rejected + (active & ~good),
    )


@torch.no_grad()
def _initial_step(field: Counted, z: Tensor, first: Tensor, piece: Piece, control: Control) -> Tensor:
    """Choose the first step size from the first two derivatives (Hairer, Norsett & Wanner, Solving ODEs I, II.4)."""
    scale = control.scale(z)
    d0, d1 = control.norm(z, scale), control.norm(first, scale)
    h0 = torch.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / d1).clamp(max=piece.last - piece.start)
    second = field(z + combine(h0.expand(len(z)), (1,), [first]), piece.start + h0.expand(len(z)))
    d2 = control.norm(second - first, scale) / h0
    largest = torch.maximum(d1, d2)
    h1 = torch.where(largest <= 1e-15, (h0 * 1e-3).clamp(min=1e-6), (0.01 / largest) ** 0.2)
    return torch.nan_to_num(torch.minimum(100 * h0, h1), nan=1e-6)
