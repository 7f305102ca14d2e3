"""The best curve for every lambda, the lambda where curves collapse, and the choice of a lambda."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch

from lwd.errors import InputError
from lwd.objective import FlowObjective
from lwd.schedule.base import Schedule
from lwd.schedule.learned import Learnable
from lwd.surfaces.curvature import predicted_error
from lwd.surfaces.family import best_curve
from lwd.surfaces.integral import Surfaces, path_terms
from lwd.surfaces.optimum import NODES, GlobalOptimum
from lwd.surfaces.settings import PathSettings
from lwd.surfaces.table import GridSurfaces
from lwd.surfaces.verdict import judge

MARGIN = 0.03
"""A curve that leaves the band of its surfaces by more than this is not chosen."""


@dataclass(frozen=True)
class Point:
    """The best curve for one lambda: its objective, its flow loss and kinetic energy, whether it collapsed."""

    kinetic: float
    schedule: Learnable
    objective: float
    flow: float
    energy: float
    """R_kin, not multiplied by lambda."""
    collapsed: bool
    floor: float | None = None
    """The objective of the global optimum over monotone paths, for two groups."""
    outside: float = 0.0
    """Largest distance from the band of the surfaces, if they have one."""
    error: float | None = None
    """The predicted discretisation error, if a number of steps was given."""


@dataclass(frozen=True)
class LambdaPath:
    """Points by increasing lambda, and two choices: the weakest stable lambda, and one for a given number of steps."""

    points: Sequence[Point]
    threshold: float | None
    """The lambda below which the curve collapses; None if it never does."""
    weakest: Point | None
    """The paper's rule: the weakest lambda above the threshold."""
    chosen: Point | None = None
    """The second rule: the weakest stable lambda whose predicted error is within the tolerance."""


def solve_for(
    kinetic: float,
    family: Learnable,
    surfaces: Surfaces,
    objective: FlowObjective,
    starts: Sequence[Schedule] = (),
    optimum: GlobalOptimum | None = None,
) -> Point:
    """Find the best curve for one lambda; with `optimum`, also start from the global optimum and compare with it."""
    objective = replace(objective, kinetic=kinetic)
    floor = optimum(kinetic) if optimum is not None else None
    starts = starts if floor is None else [*starts, floor]
    schedule = best_curve(family, surfaces, objective, starts)
    flow, regulariser = (float(term.detach()) for term in path_terms(schedule, surfaces, objective))
    unit = replace(objective, kinetic=1.0)
    energy = float(path_terms(schedule, surfaces, unit)[1].detach())
    lowest = None
    if floor is not None:
        lowest = float(sum(term.detach() for term in path_terms(floor, surfaces, objective, NODES)))
    collapsed, beyond = judge(schedule).word == "collapsed", farthest_outside(schedule, surfaces)
    return Point(kinetic, schedule, flow + regulariser, flow, energy, collapsed, lowest, beyond)


def lambda_path(
    family: Learnable,
    surfaces: Surfaces,
    objective: FlowObjective,
    settings: PathSettings | None = None,
    progress: Callable[[int], object] | None = None,
) -> LambdaPath:
    """Solve for every lambda, from the strongest to the weakest and back, starting from the neighbouring curve.

    With settings.steps, also predict the error of a sampler with that many steps, and choose a lambda by it.
    """
    s = settings or PathSettings()
    wanted = sorted(set(s.lambdas))
    if s.steps is not None:
        check_prediction(surfaces)
    found: dict[float, Point] = {}
    lead = getattr(family, "lead", None)
    optimum = GlobalOptimum(surfaces, objective, lead=lead) if s.floor and len(objective.layout) == 2 else None
    for kinetic in reversed(wanted):
        near = [min(found.items())[1].schedule] if found else []
        found[kinetic] = solve_for(kinetic, family, surfaces, objective, near, optimum)
        if progress is not None:
            progress(1)
    if objective.weight_gradient != "stop":
        for weaker, kinetic in pairwise(wanted):
            again = best_curve(found[weaker].schedule, surfaces, replace(objective, kinetic=kinetic))
            found[kinetic] = _better(found[kinetic], again, surfaces, objective)
    points = [found[kinetic] for kinetic in wanted]
    threshold, points = _threshold(points, family, surfaces, objective, optimum)
    if s.steps is not None:
        points = [_with_error(point, surfaces, objective, s) for point in points]
    stable = [point for point in points if not point.collapsed and (threshold is None or point.kinetic >= threshold)]
    stable = [point for point in stable if point.outside <= MARGIN]
    weakest = stable[0] if stable else None
    return LambdaPath(points, threshold, weakest, choose(stable, s.tolerance) if s.steps is not None else None)


def _better(point: Point, other: Learnable, surfaces: Surfaces, objective: FlowObjective) -> Point:
    flow, regulariser = (
        float(term.detach()) for term in path_terms(other, surfaces, replace(objective, kinetic=point.kinetic))
    )
    if flow + regulariser >= point.objective - 1e-9:
        return point
    energy = float(path_terms(other, surfaces, replace(objective, kinetic=1.0))[1].detach())
    collapsed = judge(other).word == "collapsed"
    found = replace(point, schedule=other, objective=flow + regulariser, flow=flow, energy=energy, collapsed=collapsed)
    return replace(found, outside=farthest_outside(other, surfaces))


def _threshold(
    points: list[Point],
    family: Learnable,
    surfaces: Surfaces,
    objective: FlowObjective,
    optimum: GlobalOptimum | None,
) -> tuple[float | None, list[Point]]:
    """Find the largest lambda that collapses, to 2%, by bisection; the points on the way are added to the path."""
    collapsed = [point for point in points if point.collapsed]
    if not collapsed:
        return None, points
    low = collapsed[-1]
    above = [point for point in points if point.kinetic > low.kinetic]
    if not above:
        return low.kinetic, points
    high = above[0]
    while high.kinetic > 1.02 * max(low.kinetic, 1e-6):
        middle = (max(low.kinetic, 1e-6) * high.kinetic) ** 0.5
        point = solve_for(middle, family, surfaces, objective, [low.schedule, high.schedule], optimum)
        points = sorted([*points, point], key=lambda one: one.kinetic)
        low, high = (point, high) if point.collapsed else (low, point)
    return high.kinetic, points


def _with_error(point: Point, surfaces: Surfaces, objective: FlowObjective, settings: PathSettings) -> Point:
    assert isinstance(surfaces, GridSurfaces)
    assert settings.steps is not None
    error = predicted_error(point.schedule, surfaces, objective.layout, settings.steps, settings.order)
    return replace(point, error=settings.scale * error)


def check_prediction(surfaces: Surfaces) -> None:
    """Raise an error if the error of a sampler cannot be predicted from these surfaces."""
    if not isinstance(surfaces, GridSurfaces) or surfaces.bends is None:
        raise InputError(
            "the error of a sampler can be predicted only for two groups, from surfaces with curvatures",
            argument="steps",
        )


def choose(stable: Sequence[Point], tolerance: float) -> Point | None:
    """Choose the weakest lambda whose predicted error is within the tolerance, or the one with the smallest error."""
    good = [point for point in stable if point.error is not None and point.error <= tolerance]
    if good:
        return good[0]
    return min(stable, key=lambda point: point.error or 0.0) if stable else None


def farthest_outside(schedule: Schedule, surfaces: Surfaces, points: int = 401) -> float:
    """Largest distance of a curve from the band of the surfaces; 0 if they have none."""
    band = getattr(surfaces, "band", None)
    if band is None:
        return 0.0
    tau = torch.linspace(0, 1, points, dtype=torch.float64)
    return float(band.outside(schedule.times(tau).detach()).max())


def largest_distance(schedule: Schedule, other: Schedule, points: int = 401) -> float:
    """Largest distance of the local times of a curve from the path of another; both may run at any speed."""
    tau = torch.linspace(0, 1, points, dtype=torch.float64)
    here, there = (one.times(tau).detach() for one in (schedule, other))
    return float(torch.cdist(here, there, p=torch.inf).amin(1).max())


def largest_gap(one: Schedule, other: Schedule, points: int = 201) -> float:
    """Largest difference between the clocks of two schedules over tau (sup norm)."""
    tau = torch.linspace(0, 1, points, dtype=torch.float64)
    return float((one.times(tau) - other.times(tau)).detach().abs().max())
