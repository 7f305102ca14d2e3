"""The loss surfaces of a model and what they say about a curve: all numbers are the library's."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.groups import Layout, default_lead
from lwd.objective import FlowObjective
from lwd.probing.surface import error_scale, surface_settings
from lwd.report.surfaces import outside
from lwd.schedule.base import Schedule
from lwd.schedule.io import schedule_from_dict
from lwd.surfaces.curvature import predicted_error
from lwd.surfaces.family import parse_family
from lwd.surfaces.files import load_surfaces
from lwd.surfaces.formats import LambdaPathFile
from lwd.surfaces.integral import path_terms
from lwd.surfaces.lambda_path import LambdaPath, lambda_path
from lwd.surfaces.settings import PathSettings
from lwd.surfaces.table import GridSurfaces, SmoothSurfaces, SurfaceTable, smooth

AXIS = 33
"""Points along each axis of a heat map."""
FAMILY = "polynomial"
LAMBDAS = (0.0015, 0.003, 0.006, 0.012, 0.024, 0.045, 0.09, 0.18, 0.375)
"""Solved for if the model has no path.json; those of the demo."""


@dataclass(frozen=True)
class Best:
    """The best curve of the family for one lambda, and the lowest objective of all monotone paths, if known."""

    kinetic: float
    schedule: Schedule
    objective: float
    floor: float | None
    collapsed: bool


@dataclass(frozen=True)
class Found:
    """The best curves by increasing lambda, and the recommended ones."""

    points: tuple[Best, ...]
    threshold: float | None
    chosen: float | None

    @classmethod
    def of_file(cls, record: LambdaPathFile) -> "Found":
        points = tuple(
            Best(p.kinetic, schedule_from_dict(p.schedule), p.objective, p.floor, p.collapsed) for p in record.points
        )
        return cls(points, record.threshold, record.chosen if record.chosen is not None else record.weakest)

    @classmethod
    def of_path(cls, path: LambdaPath) -> "Found":
        points = tuple(Best(p.kinetic, p.schedule, p.objective, p.floor, p.collapsed) for p in path.points)
        chosen = path.chosen or path.weakest
        return cls(points, path.threshold, None if chosen is None else chosen.kinetic)

    def at(self, kinetic: float) -> Best | None:
        """The point of exactly this lambda."""
        return next((point for point in self.points if point.kinetic == kinetic), None)


class _Watched:
    """Surfaces that call a function whenever they are evaluated."""

    def __init__(self, surfaces: GridSurfaces | SmoothSurfaces, watch: Callable[[], object]) -> None:
        self.surfaces, self.watch = surfaces, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.surfaces, name)

    def __call__(self, times: Tensor) -> tuple[Tensor, Tensor]:
        self.watch()
        return self.surfaces(times)


@dataclass
class Landscape:
    """Surfaces of a model, its objective on them, and the best curves once they are known."""

    table: SurfaceTable
    provenance: dict[str, Any]
    objective: FlowObjective
    found: Found | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def surfaces(self) -> GridSurfaces | SmoothSurfaces:
        return smooth(self.table)

    def terms(self, schedule: Schedule) -> tuple[float, float]:
        """Flow loss and kinetic energy of a curve."""
        flow, energy = path_terms(schedule, self.surfaces, replace(self.objective, kinetic=1.0))
        return float(flow.detach()), float(energy.detach())

    def error(self, schedule: Schedule, steps: int, order: int | None) -> float | None:
        """Predicted error of a solver of order 1 or 2 with this many even steps, for two groups."""
        if order is None or len(schedule.groups) != 2:
            return None
        if not isinstance(self.surfaces, GridSurfaces) or self.surfaces.bends is None:
            return None
        scale = error_scale(self.provenance, order)
        return scale * predicted_error(schedule, self.surfaces, self.table.layout, steps, order)

    def numbers(
        self, schedule: Schedule, kinetic: float | None, steps: int, order: int | None
    ) -> dict[str, float | None]:
        """What the page shows beside a curve; null where it is not known."""
        flow, energy = self.terms(schedule)
        best = self.found.at(kinetic) if self.found is not None and kinetic is not None else None
        objective = None if kinetic is None else flow + kinetic * energy
        lowest = None if best is None else best.objective if best.floor is None else best.floor
        above = None if objective is None or lowest is None else objective - lowest
        error = self.error(schedule, steps, order)
        return {"flow": flow, "energy": energy, "objective": objective, "above": above, "error": error}

    def solve(self, progress: Callable[[int], object], watch: Callable[[], object] = lambda: None) -> Found:
        """Solve for every lambda, once; watch: called at every evaluation, may raise."""
        with self.lock:
            if self.found is None:
                family = parse_family(FAMILY, self.table.layout.names)
                settings = PathSettings(lambdas=LAMBDAS)
                surfaces = _Watched(self.surfaces, watch)
                self.found = Found.of_path(lambda_path(family, surfaces, self.objective, settings, progress))
            return self.found

    def panels(self, held: float = 0.5) -> dict[str, Any]:
        """Heat maps over each pair of clocks; with more than two groups the other clocks stand at `held`."""
        names = self.table.layout.names
        axis = torch.linspace(0, 1, AXIS, dtype=torch.float64)
        planes = []
        for x, y in pairs(names):
            points = torch.full((AXIS * AXIS, len(names)), float(held), dtype=torch.float64)
            grid = torch.cartesian_prod(axis, axis)  # rows are the time of y
            points[:, names.index(y)], points[:, names.index(x)] = grid[:, 0], grid[:, 1]
            losses, energies = self.surfaces(points)
            hidden = outside(self.table, points)
            maps = {}
            for kind, values in (("loss", losses), ("energy", energies)):
                values = values.detach().clone()
                values[hidden] = torch.nan
                for g, name in enumerate(names):
                    maps[f"{kind} of {name}"] = _rounded(values[:, g].reshape(AXIS, AXIS).tolist())
            planes.append({"x": x, "y": y, "maps": maps})
        return {"axis": [round(a, 5) for a in axis.tolist()], "planes": planes}


def pairs(names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Pairs of clocks as (across, up): the lead against each other group first."""
    lead = default_lead(names)
    others = [name for name in names if name != lead]
    return [*((lead, name) for name in others), *combinations(reversed(others), 2)]


def _rounded(rows: list[list[float]]) -> list[list[float | None]]:
    return [[None if value != value else round(value, 4) for value in row] for row in rows]


def open_landscape(where: Path, path: Path | None, layout: Layout) -> Landscape:
    """Read surfaces and, if there is one, their lambda path; both must be for these groups."""
    table, provenance = load_surfaces(where)
    if table.layout != layout:
        raise InputError(f"the surfaces in {where} are for {table.layout}, but the model has {layout}")
    weights, reduction = surface_settings(provenance)
    record = LambdaPathFile.read(path) if path is not None and path.is_file() else None
    if record is None:
        return Landscape(table, provenance, FlowObjective(table.layout, weights, reduction))
    average: Any = record.kinetic_average
    objective = FlowObjective(table.layout, record.weights, record.reduction, kinetic_average=average)  # type: ignore[arg-type]
    found = Found.of_file(record)
    if any(point.schedule.groups != layout.names for point in found.points):
        raise InputError(f"{path} is for other groups than {', '.join(layout.names)}")
    return Landscape(table, provenance, objective, found)
