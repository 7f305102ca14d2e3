"""Shared parts of the solvers: the field, smooth pieces of time, Runge-Kutta stages, and the solution."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from lwd.errors import InputError, SolveError

Field = Callable[[Tensor, Tensor], Tensor]
"""z (b, ...), tau (b,) float64 -> dz/dtau (b, ...).

If a field has a method `rows(index)` that returns the field of these samples, dopri5 drops samples that are done.
"""
Watch = Callable[[float, Tensor], object]
"""Called with tau and the state there."""


@dataclass(frozen=True)
class Tableau:
    """An explicit Runge-Kutta method; `error` is b minus the weights of the embedded method, if there is one."""

    nodes: tuple[float, ...]
    stages: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    error: tuple[float, ...] = ()


@dataclass(frozen=True)
class Solution:
    """The state at tau = 1 and its cost.

    nfe counts calls of the field. accepted and rejected count steps; under per-sample control they are those of the
    slowest sample. The `_per_sample` tensors (b,) hold the counts of each sample, and the calls it would need alone.
    """

    z: Tensor
    nfe: int
    accepted: int
    rejected: int
    method: str
    accepted_per_sample: Tensor
    rejected_per_sample: Tensor
    nfe_per_sample: Tensor

    def __repr__(self) -> str:
        steps = f"nfe={self.nfe}, accepted={self.accepted}, rejected={self.rejected}"
        return f"Solution(z={tuple(self.z.shape)}, {steps}, method={self.method!r})"


@dataclass(frozen=True)
class Piece:
    """An interval of tau without kinks; `last` is the largest time at which the field is evaluated on it."""

    start: float
    end: float
    last: float


def cut(breakpoints: Sequence[float]) -> list[Piece]:
    """Cut [0, 1] at the breakpoints. Points closer than 1e-12 are one kink: the piece before it ends at the first of
    them and the piece after it starts at the last, so that neither evaluates the field inside.
    """
    for point in breakpoints:
        if not 0 < point < 1:
            raise InputError(f"breakpoints must be strictly between 0 and 1, got {point}")
    kinks: list[list[float]] = []
    for point in sorted(map(float, breakpoints)):
        if kinks and point - kinks[-1][1] <= 1e-12:
            kinks[-1][1] = point
        else:
            kinks.append([point, point])
    starts, ends = [0.0, *(high for _, high in kinks)], [*(low for low, _ in kinks), 1.0]
    # Just before a kink the field has its left limit; at the kink the rates are already those of the next piece.
    lasts = [*(math.nextafter(low, 0.0) for low, _ in kinks), 1.0]
    return [Piece(*piece) for piece in zip(starts, ends, lasts, strict=True)]


def step_grid(steps: int | None, pieces: Sequence[Piece], method: str = "a fixed method") -> list[Piece]:
    """Split [0, 1] into `steps` steps that stop at the end of every piece; equal within a piece."""
    counts = share_steps(steps, [piece.end - piece.start for piece in pieces], method)
    points = (
        [piece.start + (piece.end - piece.start) * k / count for k in range(1, count)]
        for piece, count in zip(pieces, counts, strict=True)
    )
    return [step for piece, inner in zip(pieces, points, strict=True) for step in _steps(piece, inner)]


def given_grid(times: Sequence[float], pieces: Sequence[Piece]) -> list[Piece]:
    """Return the steps between the given times; they also stop at the end of every piece."""
    points = [float(time) for time in times]
    if len(points) < 2 or points[0] != 0 or points[-1] != 1 or any(not a < b for a, b in pairwise(points)):
        raise InputError(f"grid needs increasing times from 0 to 1, for example (0, 0.4, 1), got {list(times)[:8]}")
    # Drop points next to a kink: a step of 1e-13 would only cost evaluations.
    inner = ([t for t in points if piece.start + 1e-12 < t < piece.end - 1e-12] for piece in pieces)
    return [step for piece, ts in zip(pieces, inner, strict=True) for step in _steps(piece, ts)]


def _steps(piece: Piece, inner: Sequence[float]) -> list[Piece]:
    ends = [*inner, piece.end]
    lasts = [*inner, piece.last]
    return [Piece(*step) for step in zip([piece.start, *inner], ends, lasts, strict=True)]


def share_steps(steps: int | None, lengths: Sequence[float], method: str = "a fixed method") -> list[int]:
    """Distribute `steps` over intervals: at least one each, and the largest step as small as possible."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise InputError(f"{method} needs steps, an integer >= 1, got {steps!r}")
    if steps < len(lengths):
        raise InputError(
            f"steps={steps} cannot stop at all {len(lengths) - 1} breakpoints; use steps >= {len(lengths)} "
            "(in Python, breakpoints=() steps across them)"
        )
    counts = [1] * len(lengths)
    for _ in range(steps - len(lengths)):
        sizes = [length / count for length, count in zip(lengths, counts, strict=True)]
        counts[sizes.index(max(sizes))] += 1
    return counts


class Counted:
    """Wrap the user's field: count its calls, check its output, enforce max_nfe.

    After `choose`, calls are about some of the samples only.
    """

    def __init__(self, field: Field, max_nfe: float) -> None:
        self.field, self.max_nfe, self.nfe = field, max_nfe, 0
        self.part = field

    def choose(self, index: Tensor | None) -> None:
        """Let the next calls be about some samples only (None: all)."""
        self.part = self.field if index is None else self.field.rows(index)  # type: ignore[attr-defined]

    def __call__(self, z: Tensor, tau: Tensor) -> Tensor:
        if self.nfe >= self.max_nfe:
            reached = float(tau.min())
            raise SolveError(
                f"max_nfe = {self.max_nfe} evaluations were not enough: tau = {reached:.4g} was reached; "
                "increase max_nfe, or rtol and atol"
            )
        self.nfe += 1
        value = self.part(z, tau)
        if value.shape != z.shape:
            raise InputError(f"field returned shape {tuple(value.shape)} for a state of shape {tuple(z.shape)}")
        return value.to(z.dtype)


def stages(
    field: Counted, z: Tensor, tau: Tensor, h: Tensor, tableau: Tableau, last: float, first: Tensor | None = None
) -> list[Tensor]:
    """k_i = field(z + h sum_j a_ij k_j, tau + c_i h); tau, h: (b,); never evaluates the field beyond `last`."""
    ks = [field(z, tau) if first is None else first]
    for node, row in zip(tableau.nodes[1:], tableau.stages[1:], strict=True):
        ks.append(field(z + combine(h, row, ks), (tau + node * h).clamp(max=last)))
    return ks


def combine(h: Tensor, weights: Sequence[float], ks: Sequence[Tensor]) -> Tensor:
    """h sum_j w_j k_j, h: (b,)."""
    total = torch.zeros_like(ks[0])
    for weight, k in zip(weights, ks, strict=False):
        if weight:
            total = total + weight * k
    return h.to(total.dtype).reshape(-1, *(1,) * (total.ndim - 1)) * total


def choose(rows: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(rows.reshape(-1, *(1,) * (yes.ndim - 1)), yes, no)


def full(z: Tensor, value: float) -> Tensor:
    # float64: at 250 steps float32 tau drifts by 3e-6 and the last step would miss 1.
    return torch.full((len(z),), value, dtype=torch.float64, device=z.device)
