"""ODE solvers over the global time tau in [0, 1]. They know no network and no schedule, only field(z, tau)."""

import math
from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from lwd.errors import InputError, nearest
from lwd.solver.base import Counted, Field, Piece, Solution, Watch, cut, given_grid, step_grid
from lwd.solver.dopri5 import Control, solve_dopri5
from lwd.solver.fixed import METHODS as FIXED_METHODS
from lwd.solver.fixed import solve_fixed

METHODS = (*FIXED_METHODS, "dopri5")
__all__ = ["METHODS", "Field", "Piece", "Solution", "solve", "step_grid"]


def solve(
    field: Field,
    z: Tensor,
    method: str = "dopri5",
    *,
    breakpoints: Sequence[float] = (),
    steps: int | None = None,
    grid: Sequence[float] | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    max_nfe: int | None = None,
    adaptive: Literal["batch", "sample"] | None = None,
    watch: Watch | None = None,
) -> Solution:
    """Integrate dz/dtau = field(z, tau) from tau = 0 to 1.

    method: euler, midpoint, heun, rk4, ab2, ab3 take `steps` (the total over [0, 1]) or `grid` (the times between them,
    from 0 to 1); dopri5 takes atol (1e-6), rtol (1e-3), max_nfe (10000) and adaptive: "batch" (default) has one step
    size for all, "sample" one for each, so that a result does not depend on its neighbours. The field is never asked
    outside [0, 1]. No step crosses a breakpoint: at its end a step sees the field from the left, the next one from the
    right.
    watch(tau, z) is called after every step of a fixed method, and at every breakpoint and the end by dopri5.
    Gradients flow through the steps taken, not through the choice of their size.
    """
    pieces = cut(breakpoints)
    if method not in METHODS:
        raise InputError(f"there is no method {method!r}; {nearest(str(method), METHODS)}")
    if not len(z):
        raise InputError("there is nothing to solve: the batch is empty")
    options = {"atol": atol, "rtol": rtol, "max_nfe": max_nfe, "adaptive": adaptive}
    if method != "dopri5":
        for name, value in options.items():
            if value is not None:
                raise InputError(f"{name} has no effect on {method}, which takes steps; use method='dopri5'")
        if grid is not None and steps is not None:
            raise InputError("steps and grid both say where to step; pass one of them")
        stops = step_grid(steps, pieces, method) if grid is None else given_grid(grid, pieces)
        return solve_fixed(Counted(field, math.inf), z, method, stops, watch)
    for name, given in (("steps", steps), ("grid", grid)):
        if given is not None:
            raise InputError(f"{name} has no effect on dopri5, which chooses its own; use atol and rtol")
    control = Control.of(**options)
    return solve_dopri5(Counted(field, control.max_nfe), z, pieces, control, watch)
