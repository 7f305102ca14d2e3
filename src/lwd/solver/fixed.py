"""Fixed-step methods: explicit Runge-Kutta, and multistep methods with one evaluation per step."""

import numpy as np
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
MULTISTEP = {"ab2": 2, "ab3": 3, "abm": 4}  # slopes from which a step is predicted
ORDERS = {"euler": 1, "midpoint": 2, "heun": 2, "rk4": 4, "ab2": 2, "ab3": 3, "abm": 3}  # abm starts with a Heun step
METHODS = (*FIXED, *MULTISTEP)


def solve_fixed(field: Counted, z: Tensor, method: str, grid: list[Piece], watch: Watch | None = None) -> Solution:
    """Take the steps of `grid`; `watch` sees the state after each of them."""
    watch = watch or (lambda _tau, _z: None)
    order = MULTISTEP.get(method)
    tableau = FIXED.get(method, FIXED["heun"])
    z = _adams(field, z, grid, watch, order, method == "abm") if order else _runge_kutta(field, z, tableau, grid, watch)
    if not torch.isfinite(z).all():
        raise SolveError(f"{method} produced non-finite values: check the field, or take more than {len(grid)} steps")
    count = torch.full((len(z),), len(grid), device=z.device)
    calls = torch.full_like(count, field.nfe)
    return Solution(z, field.nfe, len(grid), 0, method, count, torch.zeros_like(count), calls)


def _runge_kutta(field: Counted, z: Tensor, tableau: Tableau, grid: list[Piece], watch: Watch) -> Tensor:
    for step in grid:
        tau, h = full(z, step.start), full(z, step.end - step.start)
        z = z + combine(h, tableau.weights, stages(field, z, tau, h, tableau, step.last))
        watch(step.end, z)
    return z


def _adams(field: Counted, z: Tensor, grid: list[Piece], watch: Watch, order: int, correct: bool = False) -> Tensor:
    """Adams-Bashforth with unequal steps: one evaluation per step, and a Heun step at the start and after a kink.

    The slope over a step is the polynomial through the current slope and up to order - 1 past ones. Slopes from before
    a kink are dropped, so the order builds up again. correct: each evaluation also corrects the step that led to it
    (Adams-Moulton), except at a kink.
    """
    before, past = z, list[tuple[float, Tensor]]()
    for step in grid:
        h = step.end - step.start
        first = field(z, full(z, step.start))
        if past and correct:
            z = _advanced(before, past[0][0], step.start, [(step.start, first), *past][:order])
        if not past:
            ks = stages(field, z, full(z, step.start), full(z, h), FIXED["heun"], step.last, first)
            before, z = z, z + combine(full(z, h), FIXED["heun"].weights, ks)
        else:
            before, z = z, _advanced(z, step.start, step.end, [(step.start, first), *past][:order])
        past = [] if step.last != step.end else [(step.start, first), *past][: order - 1]
        watch(step.end, z)
    return z


def _advanced(z: Tensor, start: float, end: float, slopes: list[tuple[float, Tensor]]) -> Tensor:
    """Integrate from start to end the polynomial through slopes at some times."""
    weights = _adams_weights([(time - start) / (end - start) for time, _ in slopes])
    return z + combine(full(z, end - start), weights, [slope for _, slope in slopes])


def _adams_weights(places: list[float]) -> tuple[float, ...]:
    """Return quadrature weights at `places` that integrate polynomials over [0, 1] exactly."""
    powers = np.array([[place**k for place in places] for k in range(len(places))])
    return tuple(np.linalg.solve(powers, [1 / (k + 1) for k in range(len(places))]).tolist())
