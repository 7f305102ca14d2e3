"""The tables as pictures."""

from collections.abc import Mapping
from io import BytesIO

from matplotlib.figure import Figure
from PIL import Image

from lwd.evaluation.score import TITLES
from lwd.report.plots import COLOURS, new_figure, plot_schedules
from lwd.report.trajectory import plot_trajectory
from lwd.reproduce.curves import lambda_curves, schedules_curves
from lwd.reproduce.formats import TableFile, TableRow
from lwd.reproduce.numbers import load_paper
from lwd.reproduce.tables import PAPER_SCALE
from lwd.reproduce.workspace import Workspace
from lwd.sampling.generator import DISPLAY, open_generator
from lwd.schedule.base import Schedule

SHOWN = 2
"""Samples in the trajectory."""


def main_metric(rows: list[TableRow]) -> str:
    """FID if it was measured, otherwise the encoder's Fréchet distance."""
    return "fid" if any("fid" in row.measured for row in rows) else "frechet"


def plot_budgets(table: TableFile) -> Figure:
    """The main metric over training steps, one line per model; dashed: the paper's, where comparable."""
    figure, metric = new_figure(6.4, 4.4), main_metric(table.rows)
    axes = figure.subplots()
    for name, colour in zip(dict.fromkeys(row.name for row in table.rows), COLOURS * 9, strict=False):
        rows = [row for row in table.rows if row.name == name and metric in row.measured]
        cells = [row.measured[metric] for row in rows]
        axes.errorbar(
            [float(row.steps or 0) for row in rows],
            [cell.mean for cell in cells],
            [cell.error or 0.0 for cell in cells],
            marker="o",
            capsize=3,
            color=colour,
            label=name,
        )
        printed = [(float(r.steps or 0), r.paper["fid"]) for r in table.rows if r.name == name and "fid" in r.paper]
        if printed:
            axes.plot(*zip(*printed, strict=True), "--", color=colour, linewidth=0.9, label=f"{name}, paper")
    axes.set(xscale="log", xlabel="training steps", ylabel=TITLES[metric], title=table.title)
    axes.legend(fontsize=7, frameon=False)
    return figure


def plot_bars(table: TableFile) -> Figure:
    """The main metric of each row as a bar; diamonds: the paper's, where comparable."""
    rows, metric = list(reversed(table.rows)), main_metric(table.rows)
    figure = new_figure(7.2, 1.4 + 0.34 * len(rows))
    axes = figure.subplots()
    for place, row in enumerate(rows):
        cell = row.measured.get(metric)
        if cell is not None:
            axes.barh(place, cell.mean, xerr=cell.error or 0.0, color=COLOURS[0], height=0.6)
        if "fid" in row.paper and metric == "fid":
            axes.plot(row.paper["fid"], place, "D", color=COLOURS[3])
    axes.set(yticks=range(len(rows)), xlabel=TITLES[metric], title=table.title)
    axes.set_yticklabels([_label(row) for row in rows], fontsize=7)
    return figure


def plot_lambdas(ws: Workspace) -> Figure:
    """The curve of each lambda (the paper's Figure 2)."""
    printed = {one.kinetic: one.word for one in load_paper().sweep} if ws.scale.name == PAPER_SCALE else {}
    curves: dict[str, Schedule] = {}
    for kinetic, (schedule, word) in lambda_curves(ws).items():
        paper = f"; paper: {printed[kinetic]}" if kinetic in printed else ""
        curves[f"λ = {kinetic:g} ({word}{paper})"] = schedule
    return plot_schedules(curves)


def plot_latents(ws: Workspace) -> Figure:
    """The curve of each semantic latent (the paper's Figure 3)."""
    curves: Mapping[str, Schedule] = schedules_curves(ws)
    return plot_schedules(curves)


def plot_states(ws: Workspace) -> Figure:
    """States of the main model along tau (the paper's Figure 1)."""
    drawn = ws.grids()
    settings = drawn.settings.changed(scale=None)
    generator = open_generator(drawn.model, settings, None, drawn.decoder, drawn.place.device)
    seeds = range(settings.seed, settings.seed + SHOWN)
    return plot_trajectory(generator.pipe, generator.velocity(), seeds, generator.labels()[:SHOWN])


def grid_picture(ws: Workspace) -> bytes:
    """The grid of the main model's samples, enlarged so that small images can be seen."""
    sheet = Image.open(ws.grids().out / "grid.png")
    factor = max(1, DISPLAY // ws.scale.draw.size)
    buffer = BytesIO()
    sheet.resize((factor * sheet.width, factor * sheet.height), Image.Resampling.NEAREST).save(buffer, "PNG")
    return buffer.getvalue()


def _label(row: TableRow) -> str:
    parts = [row.words.get("semantic latent", ""), row.name, f"{row.steps:,} steps" if row.steps else ""]
    return ", ".join(part for part in parts if part)
