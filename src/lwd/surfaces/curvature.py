"""The error of a sampler with few steps under a schedule, predicted from surfaces: how fast the field changes."""

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.groups import Layout
from lwd.schedule.base import Schedule
from lwd.surfaces.table import GridSurfaces


def acceleration(schedule: Schedule, surfaces: GridSurfaces, layout: Layout, tau: Tensor) -> tuple[Tensor, Tensor]:
    """Root mean square over samples and channels of d field / d tau and of the field, at tau (b,): (b,) each.

    field_g = rate_g v_g, so d field_g = rate_g' v_g + rate_g sum_h rate_h D_h v_g, whose mean square is a quadratic
    form of the tabulated Gram matrices of v_g and D_h v_g.
    """
    times, rates, slopes = schedule.times(tau).detach(), schedule.rates(tau).detach(), _rate_slopes(schedule, tau)
    gram = surfaces.gram(times)
    total, size = torch.zeros_like(tau), torch.zeros_like(tau)
    for g, group in enumerate(layout):
        coefficients = torch.cat([slopes[:, g : g + 1], rates[:, g : g + 1] * rates], 1)
        square = torch.einsum("bi,bij,bj->b", coefficients, gram[:, g], coefficients).clamp(min=0)
        total = total + group.channels / layout.channels * square
        size = size + group.channels / layout.channels * rates[:, g].square() * gram[:, g, 0, 0].clamp(min=0)
    return total.sqrt(), size.sqrt()


def _rate_slopes(schedule: Schedule, tau: Tensor, step: float = 1e-4) -> Tensor:
    """d rate / d tau by finite differences that do not cross a kink: (b, n)."""
    edges = torch.tensor([0.0, *schedule.breakpoints, 1.0], dtype=torch.float64)
    cell = (torch.bucketize(tau, edges, right=True) - 1).clamp(0, len(edges) - 2)
    low = torch.maximum(tau - step, edges[cell])
    high = torch.minimum(tau + step, edges[cell + 1] - 1e-9)
    return ((schedule.rates(high) - schedule.rates(low)) / (high - low).clamp(min=1e-12)[:, None]).detach()


def predicted_error(
    schedule: Schedule,
    surfaces: GridSurfaces,
    layout: Layout,
    steps: int,
    order: int = 1,
    points: int = 257,
) -> float:
    """Predict the error at tau = 1 of `steps` equal steps of a method of this order: RMS over samples and channels.

    Order 1: sum of h^2 / 2 |d field|. Order 2: sum of h^3 / 12 |d field|^2 / |field|, where the time scale
    |field| / |d field| approximates the next derivative. Both are for ranking schedules; for absolute errors, multiply
    by the measured ratio of real to predicted error (`lwd.probing.surface.calibrate`).
    """
    if steps < 1 or order not in (1, 2):
        raise InputError(f"steps must be >= 1 and order 1 or 2, got {steps} and {order}")
    tau = (torch.arange(points, dtype=torch.float64) + 0.5) / points
    change, size = acceleration(schedule, surfaces, layout, tau)
    if order == 1:
        return float(change.mean()) / (2 * steps)
    return float((change.square() / size.clamp(min=1e-9)).mean()) / (12 * steps**2)
