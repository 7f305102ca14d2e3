"""The best of all monotone paths for two groups, by dynamic programming: a lower bound for every family.

The clock of the lead is tau, as in the families: kinetic energy depends on the parametrisation, so the same path may
have a lower energy with another one.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.groups import default_lead
from lwd.objective import FlowObjective
from lwd.schedule.fixed import PiecewiseLinear
from lwd.surfaces.integral import Surfaces

NODES = 6
"""Quadrature nodes per piece: a steep piece covers much of the surface."""
ROWS = 2**17
"""Pieces evaluated in one batch."""


class GlobalOptimum:
    """The monotone piecewise-linear path with the lowest objective, for any lambda; the lead's clock is tau.

    First search all paths through a grid of `columns` x `heights` exactly (rates are differences of heights, so there
    are many heights); its pieces are computed once. Then refine the heights around the best path, and repeat with
    twice the columns.
    """

    def __init__(
        self,
        surfaces: Surfaces,
        objective: FlowObjective,
        columns: int = 16,
        heights: int = 81,
        doublings: int = 3,
        lead: str | None = None,
    ) -> None:
        names = objective.layout.names
        if len(names) != 2:
            raise InputError(f"dynamic programming needs two groups, got {len(names)}; use a family of curves")
        self.surfaces, self.objective = surfaces, replace(objective, kinetic=1.0)
        self.names, self.lead, self.doublings = names, names.index(lead or default_lead(names)), doublings
        self.tau = torch.linspace(0, 1, columns + 1, dtype=torch.float64)
        self.levels = _pinned(torch.linspace(0, 1, heights, dtype=torch.float64).expand(columns + 1, -1))
        self.coarse = self._pieces(self.tau, self.levels)

    def __call__(self, kinetic: float) -> PiecewiseLinear:
        tau, flow_and_energy = self.tau, self.coarse
        path = _best_path(self.levels, flow_and_energy[0] + kinetic * flow_and_energy[1])
        for _ in range(self.doublings):
            finer = torch.linspace(0, 1, 2 * len(tau) - 1, dtype=torch.float64)
            path, tau = _interpolate(finer, tau, path), finer
            spread = 2.0 / self.levels.shape[1]
            while spread > 2e-4:
                before = path
                offsets = torch.linspace(-1, 1, 11, dtype=torch.float64) * spread
                levels = _pinned((path[:, None] + offsets).clamp(0, 1))
                flow, energy = self._pieces(tau, levels)
                path = _best_path(levels, flow + kinetic * energy)
                # Keep this width while the path reaches the edge of the band.
                spread = spread if (path - before).abs().max() > 0.9 * spread else spread / 4
        times = {self.names[self.lead]: tau.tolist(), self.names[1 - self.lead]: path.tolist()}
        return PiecewiseLinear(tau.tolist(), {name: times[name] for name in self.names})

    def _pieces(self, tau: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
        """Flow loss and energy of straight pieces from level a to level b of the next column, (columns, k, k) each.

        Decreasing pieces have infinite loss.
        """
        k, lead = levels.shape[1], self.lead
        h = tau.diff()[:, None, None]
        low = levels[:-1, :, None].expand(-1, k, k)
        rise = levels[1:, None, :] - low
        rising = (rise >= 0).flatten()
        rates = torch.ones(int(rising.sum()), 2, dtype=torch.float64)
        rates[:, 1 - lead] = (rise / h).flatten()[rising]
        total = torch.zeros(2, len(rates), dtype=torch.float64)
        width = h.expand_as(rise).flatten()[rising]
        places, weights = np.polynomial.legendre.leggauss(NODES)
        for place, weight in zip((places + 1) / 2, weights / 2, strict=True):
            times = torch.empty_like(rates)
            times[:, lead] = (tau[:-1, None, None] + place * h).expand_as(rise).flatten()[rising]
            times[:, 1 - lead] = (low + place * rise).flatten()[rising].clamp(0, 1)
            for start in range(0, len(rates), ROWS):
                rows = slice(start, start + ROWS)
                terms = self.objective.weigh(*self.surfaces(times[rows]), rates[rows])
                total[:, rows] += weight * torch.stack([term.sum(1) for term in terms])
        out = torch.zeros(2, rise.numel(), dtype=torch.float64)
        out[0] = torch.inf
        out[:, rising] = width * total
        return out[0].reshape(rise.shape), out[1].reshape(rise.shape)


def global_optimum(
    surfaces: Surfaces, objective: FlowObjective, columns: int = 16, heights: int = 81, doublings: int = 3
) -> PiecewiseLinear:
    """Find the monotone piecewise-linear path with the lowest objective for one lambda."""
    return GlobalOptimum(surfaces, objective, columns, heights, doublings)(objective.kinetic)


def _pinned(levels: Tensor) -> Tensor:
    levels = levels.clone()
    levels[0], levels[-1] = 0.0, 1.0
    return levels


def _best_path(levels: Tensor, costs: Tensor) -> Tensor:
    """Find the path through levels (columns + 1, k) with the lowest cost (columns, k, k): (columns + 1,)."""
    best = torch.zeros(levels.shape[1], dtype=torch.float64)
    origins = []
    for cost in costs:
        best, origin = (best[:, None] + cost).min(0)
        origins.append(origin)
    index = int(best.argmin())
    path = [float(levels[-1, index])]
    for i in range(len(costs) - 1, -1, -1):
        index = int(origins[i][index])
        path.append(float(levels[i, index]))
    return torch.tensor(path[::-1], dtype=torch.float64)


def _interpolate(x: Tensor, places: Tensor, values: Tensor) -> Tensor:
    index = (torch.bucketize(x, places, right=True) - 1).clamp(0, len(places) - 2)
    share = (x - places[index]) / (places[index + 1] - places[index])
    return values[index] + share * (values[index + 1] - values[index])


def at_the_edge(path: PiecewiseLinear, share: float = 0.9, late: float = 0.05) -> str:
    """Return a warning if one group stays at an end of its clock for most of the time, else an empty string."""
    tau = torch.linspace(0, 1, 401, dtype=torch.float64)
    times = path.times(tau).detach()
    for g, name in enumerate(path.groups):
        for edge, word in ((0.0, "waits"), (1.0, "is done")):
            if float(((times[:, g] - edge).abs() < late).double().mean()) > share:
                return f"collapsed: {name} {word} for over {share:.0%} of the time; use a larger kinetic weight"
    return ""
