"""The best of all monotone paths for two groups, by dynamic programming: the floor under every family.

The lead's clock is tau, as in the families: kinetic energy depends on how fast tau passes a path, and another gauge of
the same path may be cheaper.
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
"""Of the quadrature on a piece; one that rises far in little time sees much of the surface."""
ROWS = 2**17
"""Pieces that are evaluated at once."""


class GlobalOptimum:
    """The monotone piecewise-linear path of least objective, the lead's clock being tau, for any lambda.

    First exactly over all paths through a grid of `columns` x `heights` (many heights: a rate is a difference of them),
    whose pieces are computed once; then, around the best, over ever finer heights, and again with twice the columns.
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
            raise InputError(f"dynamic programming is for two groups, got {len(names)}; use a family of curves")
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
                # Stay at this width while the band's edge is in use.
                spread = spread if (path - before).abs().max() > 0.9 * spread else spread / 4
        times = {self.names[self.lead]: tau.tolist(), self.names[1 - self.lead]: path.tolist()}
        return PiecewiseLinear(tau.tolist(), {name: times[name] for name in self.names})

    def _pieces(self, tau: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
        """Flow loss and energy of straight pieces from level a to level b of the next column, (columns, k, k) each.

        A piece that falls has an infinite loss.
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
    """The monotone piecewise-linear path of least objective for one lambda."""
    return GlobalOptimum(surfaces, objective, columns, heights, doublings)(objective.kinetic)


def _pinned(levels: Tensor) -> Tensor:
    levels = levels.clone()
    levels[0], levels[-1] = 0.0, 1.0
    return levels


def _best_path(levels: Tensor, costs: Tensor) -> Tensor:
    """The path through levels (columns + 1, k) of least cost (columns, k, k): (columns + 1,)."""
    best = torch.zeros(levels.shape[1], dtype=torch.float64)
    came = []
    for cost in costs:
        best, origin = (best[:, None] + cost).min(0)
        came.append(origin)
    index = int(best.argmin())
    path = [float(levels[-1, index])]
    for i in range(len(costs) - 1, -1, -1):
        index = int(came[i][index])
        path.append(float(levels[i, index]))
    return torch.tensor(path[::-1], dtype=torch.float64)


def _interpolate(x: Tensor, places: Tensor, values: Tensor) -> Tensor:
    index = (torch.bucketize(x, places, right=True) - 1).clamp(0, len(places) - 2)
    share = (x - places[index]) / (places[index + 1] - places[index])
    return values[index] + share * (values[index + 1] - values[index])


def at_the_edge(path: PiecewiseLinear, share: float = 0.9, late: float = 0.05) -> str:
    """A sentence where one group waits (or hurries) at an end of its clock for most of the time; else nothing."""
    tau = torch.linspace(0, 1, 401, dtype=torch.float64)
    times = path.times(tau).detach()
    for g, name in enumerate(path.groups):
        for edge, word in ((0.0, "waits"), (1.0, "is done")):
            if float(((times[:, g] - edge).abs() < late).double().mean()) > share:
                return (
                    f"collapsed: {name} {word} for over {share:.0%} of the time; a larger kinetic weight holds it back"
                )
    return ""
