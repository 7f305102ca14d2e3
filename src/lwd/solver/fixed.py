"""Methods with a fixed number of steps: explicit Runge-Kutta, and a multistep method that asks once per step."""

import torch
from torch import Tensor

from lwd.errors import SolveError
from lwd.solver.base import Counted, Piece, Solution, Tableau, Watch, combine, full, stages

FIXED = {
    "euler": Tableau((0,), ((),), (1,)),
    "midpoint": Tableau((0, 1 / 2), ((), (1 / 2,)), (0, 1)),
    "heun": Tableau((0, 1), ((), (1,)), (1 / 2, 1 / 2)),
    "rk4": Tableau((0, 1 / 2, 1 / 2, 1), ((), (1 / 2,), (0, 1 / 2), (0, 0, 1)), (1 / 6, 1 / 3, 1 / 3, 1 / 6)),
}
MULTISTEP = "ab2"
ORDERS = {"euler": 1, "midpoint": 2, "heun": 2, "rk4": 4, MULTISTEP: 2}
METHODS = (*FIXED, MULTISTEP)


def solve_fixed(field: Counted, z: Tensor, method: str, grid: list[Piece], watch: Watch | None = None) -> Solution:
    """March over the steps of `grid`; `watch` sees the state after each of them."""
    watch = watch or _nobody
    z = _adams(field, z, grid, watch) if method == MULTISTEP else _runge_kutta(field, z, FIXED[method], grid, watch)
    if not torch.isfinite(z).all():
        raise SolveError(
            f"{method} ended in non-finite values: the field is not finite, or {len(grid)} steps are too few"
        )
    count = torch.full((len(z),), len(grid), device=z.device)
    calls = torch.full_like(count, field.nfe)
    return Solution(z, field.nfe, len(grid), 0, method, count, torch.zeros_like(count), calls)


def _nobody(tau: float, z: Tensor) -> None:
    del tau, z


def _runge_kutta(field: Counted, z: Tensor, tableau: Tableau, grid: list[Piece], watch: Watch) -> Tensor:
    for step in grid:
        tau, h = full(z, step.start), full(z, step.end - step.start)
        z = z + combine(h, tableau.weights, stages(field, z, tau, h, tableau, step.last))
        watch(step.end, z)
    return z


def _adams(field: Counted, z: Tensor, grid: list[Piece], watch: Watch) -> Tensor:
    """Adams-Bashforth of order 2 with unequal steps: one evaluation per step, a Heun step where the field is new.

    z_(n+1) = z_n + h ((1 + q) f_n - q f_(n-1)), q = h / (2 h_(n-1)). After a kink the old slope says nothing.
    """
    slope, before, kink = None, 0.0, True
    for step in grid:
        h = step.end - step.start
        first = field(z, full(z, step.start))
        if kink or slope is None:
            ks = stages(field, z, full(z, step.start), full(z, h), FIXED["heun"], step.last, first)
            z = z + combine(full(z, h), FIXED["heun"].weights, ks)
        else:
            q = h / (2 * before)
            z = z + combine(full(z, h), (1 + q, -q), (first, slope))
        slope, before, kink = first, h, step.last != step.end
        watch(step.end, z)
    return z
