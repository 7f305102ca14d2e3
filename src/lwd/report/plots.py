"""Figures of schedules, drawn without global matplotlib state."""

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lwd.errors import InputError
from lwd.groups import default_lead
from lwd.io.files import write_bytes
from lwd.schedule.base import Schedule

COLOURS = ("#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3", "#937860", "#da8bc3", "#8c8c8c")
STYLES: tuple[Literal["-", "--", ":", "-."], ...] = ("-", "--", ":", "-.")
UNIT = (-0.02, 1.02)
IMAGE_KINDS = (".png", ".pdf", ".svg")


def draw_clocks(axes: Axes, schedules: Mapping[str, Schedule], points: int = 401) -> None:
    """Draw the local time of every group over tau: one colour per schedule, one line style per group."""
    tau = torch.linspace(0, 1, points, dtype=torch.float64)
    groups = list(dict.fromkeys(name for schedule in schedules.values() for name in schedule.groups))
    for schedule, colour in zip(schedules.values(), _cycle(len(schedules)), strict=True):
        times = schedule.times(tau).detach()
        for i, name in enumerate(schedule.groups):
            style = STYLES[groups.index(name) % len(STYLES)]
            axes.plot(tau, times[:, i], style, color=colour, linewidth=1.6)
    axes.set(xlabel="global time τ", ylabel="local time t", xlim=UNIT, ylim=UNIT, title="clocks of the groups")
    axes.set_aspect("equal")
    handles = [Line2D([], [], color=colour, label=title) for title, colour in zip(schedules, COLOURS * 9, strict=False)]
    handles += [Line2D([], [], color="#555", linestyle=s, label=n) for n, s in zip(groups, STYLES * 9, strict=False)]
    axes.legend(handles=handles, fontsize=7, frameon=False, loc="upper left")


def draw_paths(axes: Axes, schedules: Mapping[str, Schedule], lead: str | None = None, points: int = 401) -> None:
    """Draw the time of each group over the time of the lead, which does not depend on the parametrisation."""
    tau = torch.linspace(0, 1, points, dtype=torch.float64)
    first = next(iter(schedules.values()))
    lead = lead or getattr(first, "lead", default_lead(first.groups))
    for (title, schedule), colour in zip(schedules.items(), _cycle(len(schedules)), strict=True):
        if lead not in schedule.groups:
            raise InputError(f"{title} has no group {lead!r}, which leads in the first schedule; draw it separately")
        times = schedule.times(tau).detach()
        others = [name for name in schedule.groups if name != lead]
        for i, name in enumerate(others):
            label = f"{title}, {name}" if len(others) > 1 else title
            column = times[:, schedule.groups.index(name)]
            axes.plot(times[:, schedule.groups.index(lead)], column, STYLES[i % 4], color=colour, label=label)
    names = sorted({name for s in schedules.values() for name in s.groups if name != lead})
    axes.set(xlabel=f"{lead} time", ylabel=f"{' / '.join(names) or lead} time", xlim=UNIT, ylim=UNIT)
    axes.set(title=f"path against {lead}")
    axes.set_aspect("equal")
    if axes.lines:
        axes.legend(fontsize=7, frameon=False, loc="upper left")


def plot_schedules(schedules: Mapping[str, Schedule]) -> Figure:
    """Draw the clocks of several schedules over tau, and over the time of the lead."""
    figure = new_figure(9.6, 4.8)
    clocks, paths = figure.subplots(1, 2)
    draw_clocks(clocks, schedules)
    draw_paths(paths, schedules)
    return figure


def new_figure(width: float, height: float) -> Figure:
    """Create an empty figure with its own canvas (size in inches)."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: str | os.PathLike[str], dpi: int = 150) -> None:
    """Write the figure atomically; the suffix chooses PNG, PDF or SVG."""
    kind = Path(path).suffix.lower()
    if kind not in IMAGE_KINDS:
        raise InputError(f"the name of a picture must end in {', '.join(IMAGE_KINDS)}; got {str(path)!r}")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind[1:], dpi=dpi)
    write_bytes(path, buffer.getvalue())


def _cycle(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]
