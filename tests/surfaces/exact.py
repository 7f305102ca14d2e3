"""Surfaces of a Gaussian in closed form, on a grid."""

import torch

from lwd.objective import FlowObjective
from lwd.surfaces.table import (
    GridSurfaces,
    SurfaceTable,
    grid_points,
)
from train_data import gaussian

DATA = gaussian(0.6)
AXIS = torch.linspace(0, 1, 17, dtype=torch.float64)


def objective(kinetic=0.0, gradient="exact", layout=DATA.layout):
    return FlowObjective(layout, reduction="groups", weight_gradient=gradient, kinetic=kinetic)


def exact_table(data=DATA, axis=AXIS):
    """The closed form at the points of a grid."""
    points = grid_points(axis, len(data.layout))
    losses, energies = data.surfaces(points)
    return SurfaceTable(data.layout, points, losses, energies, 0 * losses, 0 * losses, 1000, axis)


SURFACES = GridSurfaces(exact_table())
