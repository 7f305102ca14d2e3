"""The best of all monotone paths for two groups, by dynamic programming: the floor under every family."""

import numpy as np
import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.groups import default_lead
from lwd.objective import FlowObjective
from lwd.probe.surface import Surfaces
from lwd.schedule.fixed import PiecewiseLinear

NODES = 6
"""Of the quadrature on a piece; one that rises far in little time sees much of the surface."""
ROWS = 2**17
"""Pieces that are evaluated at once."""


def global_optimum(
    surfaces: Surfaces, objective: FlowObjective, columns: int = 16, heights: int = 97, doublings: int = 3
) -> PiecewiseLinear:
    """The monotone piecewise-linear path of least objective, the lead's clock being tau.

    First exactly over all paths through a grid of `columns` x `heights` (many heights: a rate is a difference of them);
    then, around the best, over ever finer heights, and again with twice the columns.
    """
    names = objective.layout.names
    if len(names) != 2:
        raise InputError(f"dynamic programming is for two groups, got {len(names)}; use a family of curves")
    lead = names.index(default_lead(names))
    tau = torch.linspace(0, 1, columns + 1, dtype=torch.float64)
    levels = torch.linspace(0, 1, heights, dtype=torch.float64).expand(columns + 1, -1)
    path = _best_path(surfaces, objective, tau, levels, lead)
    for _ in range(doublings):
        finer = torch.linspace(0, 1, 2 * len(tau) - 1, dtype=torch.float64)
        path, tau = _interpolate(finer, tau, path), finer
        spread = 2.0 / heights
        while spread > 2e-4:
            before = path
            offsets = torch.linspace(-1, 1, 13, dtype=torch.float64) * spread
            path = _best_path(surfaces, objective, tau, (path[:, None] + offsets).clamp(0, 1), lead)
            # Stay at this width while the band's edge is in use.
            spread = spread if (path - before).abs().max() > 0.9 * spread else spread / 3
    times = {names[lead]: tau.tolist(), names[1 - lead]: path.tolist()}
    return PiecewiseLinear(tau.tolist(), {name: times[name] for name in names})


def _best_path(surfaces: Surfaces, objective: FlowObjective, tau: Tensor, levels: Tensor, lead: int) -> Tensor:
    """The path through levels (columns + 1, k), one for each tau, of least objective: (columns + 1,)."""
    levels = levels.clone()
    levels[0], levels[-1] = 0.0, 1.0
    costs = _pieces(surfaces, objective, tau, levels, lead)
    best = torch.zeros(levels.shape[1], dtype=torch.float64)
    came = []
    for cost in costs:
        best, origin = (best[:, None] + cost).min(0)
        came.append(origin)
    index = int(best.argmin())
    path = [float(levels[-1, index])]
    for i in range(len(tau) - 2, -1, -1):
        index = int(came[i][index])
        path.append(float(levels[i, index]))
    return torch.tensor(path[::-1], dtype=torch.float64)


def _pieces(surfaces: Surfaces, objective: FlowObjective, tau: Tensor, levels: Tensor, lead: int) -> Tensor:
    """Objective of straight pieces from level a to level b of the next column, (columns, k, k); infinite if falling."""
    k = levels.shape[1]
    h = tau.diff()[:, None, None]
    low = levels[:-1, :, None].expand(-1, k, k)
    rise = levels[1:, None, :] - low
    rates = torch.ones(rise.numel(), 2, dtype=torch.float64)
    rates[:, 1 - lead] = (rise / h).flatten()
    total = torch.zeros_like(rise)
    places, weights = np.polynomial.legendre.leggauss(NODES)
    for place, weight in zip((places + 1) / 2, weights / 2, strict=True):
        times = torch.empty_like(rates)
        times[:, lead] = (tau[:-1, None, None] + place * h).expand_as(rise).flatten()
        times[:, 1 - lead] = (low + place * rise).flatten().clamp(0, 1)
        parts = []
        for t, r in zip(torch.split(times, ROWS), torch.split(rates, ROWS), strict=True):
            flow, kinetic = objective.weigh(*surfaces(t), r)
            parts.append((flow + kinetic).sum(1))
        total = total + h * weight * torch.cat(parts).reshape(rise.shape)
    return torch.where(rise >= 0, total, torch.inf)


def _interpolate(x: Tensor, places: Tensor, values: Tensor) -> Tensor:
    index = (torch.bucketize(x, places, right=True) - 1).clamp(0, len(places) - 2)
    share = (x - places[index]) / (places[index + 1] - places[index])
    return values[index] + share * (values[index + 1] - values[index])
