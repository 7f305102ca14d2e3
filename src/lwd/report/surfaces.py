"""Loss surfaces as heat maps, and the lambda path."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from lwd.errors import InputError
from lwd.groups import default_lead
from lwd.objective import FlowObjective
from lwd.report.plots import COLOURS, UNIT, new_figure, save_figure
from lwd.schedule.base import Schedule
from lwd.schedule.io import save_schedule
from lwd.surfaces.formats import LambdaPathFile, PathPoint
from lwd.surfaces.integral import pull
from lwd.surfaces.lambda_path import LambdaPath
from lwd.surfaces.measure import OffsetRow
from lwd.surfaces.settings import PathSettings
from lwd.surfaces.table import SurfaceTable, grid_points, smooth


def plot_surfaces(
    table: SurfaceTable, schedules: Mapping[str, Schedule] | None = None, objective: FlowObjective | None = None
) -> Figure:
    """Draw l_g (top), mean |v_g|^2 (bottom) and the pull of the flow loss over two clocks, with schedules on top."""
    if len(table.layout) != 2:
        raise InputError(f"heat maps need two groups, but these surfaces have {len(table.layout)}")
    names = table.layout.names
    lead = names.index(default_lead(names))
    axis = torch.linspace(0, 1, 81, dtype=torch.float64)
    losses, energies = smooth(table)(grid_points(axis, 2))
    hidden = outside(table, grid_points(axis, 2))
    losses[hidden], energies[hidden] = torch.nan, torch.nan
    figure = new_figure(14.4, 8.4)
    panels = figure.subplots(2, 3)
    for row, (values, what) in zip(panels, ((losses, "loss"), (energies, "mean |v|²")), strict=True):
        for g, axes in enumerate(row[:2]):
            picture = values[:, g].reshape(81, 81)
            # The vertical axis is the time of the follower.
            shown = picture if lead == 1 else picture.T
            image = axes.imshow(
                shown.numpy(), origin="lower", extent=(0, 1, 0, 1), cmap="viridis", interpolation="bilinear"
            )
            figure.colorbar(image, ax=axes, shrink=0.8)
            axes.set_title(f"{what} of {names[g]}")
    goal = objective or FlowObjective(table.layout)
    draw_pull(panels[0, 2], table, replace(goal, weight_gradient="exact"), lead)
    draw_pull(panels[1, 2], table, replace(goal, weight_gradient="stop"), lead)
    for axes in panels.flat:
        draw_curves(axes, schedules or {}, lead)
        axes.set(xlabel=f"{names[lead]} time", ylabel=f"{names[1 - lead]} time", xlim=(0, 1), ylim=(0, 1))
    if schedules:
        panels[0, 0].legend(fontsize=7, loc="upper left")
    return figure


def outside(table: SurfaceTable, points: torch.Tensor) -> torch.Tensor:
    """Which points are not shown, because the surfaces were not measured there: (m,)."""
    none = torch.zeros(len(points), dtype=torch.bool)
    return none if table.band is None else ~table.band.contains(points, 0.01)


def draw_pull(axes: Axes, table: SurfaceTable, objective: FlowObjective, lead: int) -> None:
    """Draw the pull of the flow loss on the follower's time: up (red) or down (blue), for one weight_gradient."""
    axis = torch.linspace(0.02, 0.98, 81, dtype=torch.float64)
    values = pull(smooth(table), objective, grid_points(axis, 2), lead).detach()
    values[outside(table, grid_points(axis, 2))] = torch.nan
    values = values.reshape(81, 81)
    shown = values if lead == 1 else values.T
    most = float(torch.nanquantile(shown.abs(), 0.97))
    image = axes.imshow(
        shown.numpy(),
        origin="lower",
        extent=(0, 1, 0, 1),
        cmap="RdBu_r",
        vmin=-most,
        vmax=most,
        interpolation="bilinear",
    )
    axes.figure.colorbar(image, ax=axes, shrink=0.8)
    names = table.layout.names
    axes.set_title(f'pull on {names[1 - lead]}, "{objective.weight_gradient}" (blue: wait)')


def draw_curves(axes: Axes, schedules: Mapping[str, Schedule], lead: int) -> None:
    tau = torch.linspace(0, 1, 201, dtype=torch.float64)
    for (title, schedule), colour in zip(schedules.items(), ("white", *COLOURS[1:]) * 9, strict=False):
        times = schedule.times(tau).detach()
        axes.plot(times[:, lead], times[:, 1 - lead], color=colour, linewidth=1.6, label=title)


def plot_path(path: LambdaPath) -> Figure:
    """Draw curves coloured by lambda; objective, its terms and the floor over lambda; the predicted error, if any."""
    points = [point for point in path.points if point.kinetic > 0]
    if not points:
        raise InputError("a figure of the path needs a lambda > 0", argument="lambdas")
    predicted = any(point.error is not None for point in points)
    figure = new_figure(14.4 if predicted else 9.8, 4.6)
    axes = figure.subplots(1, 3 if predicted else 2)
    norm = LogNorm(points[0].kinetic, max(points[-1].kinetic, 1.001 * points[0].kinetic))
    tau = torch.linspace(0, 1, 201, dtype=torch.float64)
    lead = getattr(points[0].schedule, "lead", default_lead(points[0].schedule.groups))
    for point in points:
        times = point.schedule.times(tau).detach()
        for g, name in enumerate(point.schedule.groups):
            if name != lead:
                style = ":" if point.collapsed else "-"
                axes[0].plot(tau, times[:, g], style, color=colormaps["viridis"](norm(point.kinetic)), linewidth=1.1)
    axes[0].set(xlabel=f"{lead} time = τ", ylabel="local time", xlim=UNIT, ylim=UNIT)
    axes[0].set(title="best curves (dark: small λ, dotted: collapsed)")
    places = [point.kinetic for point in points]
    axes[1].plot(places, [point.objective for point in points], color=COLOURS[0], label="objective")
    axes[1].plot(places, [point.flow for point in points], color=COLOURS[1], label="flow loss")
    if all(point.floor is not None for point in points):
        floors = [float(point.floor or 0.0) for point in points]
        axes[1].plot(places, floors, "--", color="#333", linewidth=0.9, label="best monotone path")
    flows = [point.flow for point in points]
    room = max(max(flows) - min(flows), 0.005 * abs(max(flows)))  # strong lambdas would squeeze the flow losses
    axes[1].set_ylim(min(flows) - 0.5 * room, max(flows) + 2 * room)
    twin = axes[1].twinx()
    twin.plot(places, [point.energy for point in points], color=COLOURS[2])
    twin.set_ylabel("kinetic energy", color=COLOURS[2])
    axes[1].set(xscale="log", xlabel="λ", title="objective and kinetic energy")
    _mark(axes[1], path)
    axes[1].legend(fontsize=7, frameon=False, loc="upper left")
    if predicted:
        axes[2].plot(places, [float(point.error or 0.0) for point in points], color=COLOURS[3])
        axes[2].set(
            xscale="log", xlabel="λ", ylabel="predicted error of the sampler", title="choice of λ by predicted error"
        )
        if path.chosen is not None:
            axes[2].axvline(path.chosen.kinetic, color="#333", linestyle="--", linewidth=0.9)
    return figure


def write_path(path: LambdaPath, out: str | os.PathLike[str], about: Mapping[str, Any]) -> None:
    """Write path.json, path.png, and a schedule file for each rule: weakest.json, chosen.json."""
    points = [
        PathPoint(
            kinetic=p.kinetic,
            schedule=p.schedule.to_dict(),
            outside=p.outside or None,
            **{name: getattr(p, name) for name in ("objective", "flow", "energy", "collapsed", "floor", "error")},
        )
        for p in path.points
    ]
    rules = {"weakest": path.weakest, "chosen": path.chosen}
    chosen: dict[str, Any] = {name: point.kinetic if point is not None else None for name, point in rules.items()}
    record = LambdaPathFile(threshold=path.threshold, points=points, **chosen, **about)
    save_figure(plot_path(path), Path(out) / "path.png")
    for name, point in rules.items():
        (Path(out) / f"{name}.json").unlink(missing_ok=True)  # from an earlier path
        if point is not None:
            save_schedule(point.schedule, Path(out) / f"{name}.json", {**about, "lambda": point.kinetic, "rule": name})
    record.write(Path(out) / "path.json")


def rule_of(settings: PathSettings) -> dict[str, Any]:
    """Return the settings of the choice of lambda, for path.json."""
    return {name: getattr(settings, name) for name in ("steps", "tolerance", "order", "scale")}


def _mark(axes: Axes, path: LambdaPath) -> None:
    if path.threshold is not None:
        axes.axvspan(axes.get_xlim()[0], path.threshold, color="#c44e52", alpha=0.12, label="collapsed")
    if path.weakest is not None:
        axes.axvline(
            path.weakest.kinetic, color="#333", linewidth=0.9, label=f"weakest stable λ {path.weakest.kinetic:.4g}"
        )


def offsets_table(rows: Sequence[OffsetRow], steps: int, trained: float | None) -> str:
    """Format offsets as a table; a star marks the one that the network was trained with."""
    lines = [f"  offset   flow loss     energy   predicted error of {steps} Euler steps"]
    near = min(rows, key=lambda row: abs(row.offset - trained)) if trained is not None else None
    for row in rows:
        mark = " *" if row is near else "  "
        lines.append(f"{row.offset:8.3f}  {row.flow:10.5f} {row.energy:10.4f}   {row.error:10.4g}{mark}")
    return "\n".join(lines)


def path_table(path: LambdaPath) -> str:
    """Format the path as a table with one line per lambda."""
    predicted = any(point.error is not None for point in path.points)
    lines = [
        "    lambda  at 0.5  objective       flow     energy   above floor" + ("  predicted error" if predicted else "")
    ]
    for point in path.points:
        lead = getattr(point.schedule, "lead", None)
        places = point.schedule.times(0.5).detach()
        middle = min(float(places[g]) for g, name in enumerate(point.schedule.groups) if name != lead)
        above = f"{point.objective - point.floor:12.5f}" if point.floor is not None else " " * 12
        error = f"  {point.error:15.4g}" if point.error is not None else ""
        word = "   collapsed" if point.collapsed else ""
        numbers = f"{point.objective:10.5f} {point.flow:10.5f} {point.energy:10.4f}"
        lines.append(f"{point.kinetic:10.5g}  {middle:6.3f} {numbers}  {above}{error}{word}")
    return "\n".join(lines)
