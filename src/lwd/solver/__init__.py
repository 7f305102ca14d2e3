"""ODE solvers over the global time tau in [0, 1]. They call only field(z, tau): no network, no schedule."""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from lwd.errors import InputError
from lwd.solver.base import Counted, Field, Piece, Solution, Watch, cut, given_grid, step_grid
from lwd.solver.dopri5 import ROWS, solve_dopri5
from lwd.solver.fixed import METHODS as FIXED_METHODS
from lwd.solver.fixed import solve_fixed
from lwd.solver.settings import METHODS, SolverSettings, solver_settings

__all__ = ["FIXED_METHODS", "METHODS", "Field", "Piece", "Solution", "SolverSettings", "solve", "step_grid"]


def solve(
    field: Field,
    z: Tensor,
    method: str | SolverSettings = "dopri5",
    *,
    breakpoints: Sequence[float] = (),
    watch: Watch | None = None,
    rows: int = ROWS,
    **settings: Any,
) -> Solution:
    """Integrate dz/dtau = field(z, tau) from tau = 0 to 1.

    method: a name, or a `SolverSettings`; `settings` are its fields (steps, grid, atol, rtol, ...).
    The field is never evaluated outside [0, 1]. No step crosses a breakpoint: the step before it sees the left limit
    of the field, the step after it the right limit.
    watch(tau, z) is called after every step of a fixed-step method; dopri5 calls it at every breakpoint and at the end.
    rows: with adaptive="sample", samples that are done leave the batch in multiples of this (see `Field`).
    Gradients flow through the steps taken, not through the choice of their size.

    Example:
        >>> import torch
        >>> decay = lambda z, tau: -z
        >>> z = lwd.solve(decay, torch.ones(1, 1), method="rk4", steps=20).z
        >>> round(float(z), 5)  # exp(-1)
        0.36788
    """
    chosen = solver_settings(method, **settings)
    pieces = cut(breakpoints)
    if not len(z):
        raise InputError("nothing to solve: the batch is empty")
    if chosen.method == "dopri5":
        control = chosen.control()
        return solve_dopri5(Counted(field, control.max_nfe), z, pieces, control, watch, rows)
    steps = step_grid(chosen.steps, pieces, chosen.method) if chosen.grid is None else given_grid(chosen.grid, pieces)
    return solve_fixed(Counted(field, math.inf), z, chosen.method, steps, watch)
