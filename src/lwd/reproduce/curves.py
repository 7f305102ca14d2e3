"""The paper's figures: learned curves by lambda and by semantic latent, the trajectory, the grids."""

from collections.abc import Mapping

import torch

from lwd.probing.formats import SweepFile
from lwd.probing.joint import SCHEDULE
from lwd.probing.sweep import SWEEP
from lwd.reproduce.formats import Cell, TableRow
from lwd.reproduce.jobs import Job
from lwd.reproduce.numbers import load_paper
from lwd.reproduce.stages import Drawn
from lwd.reproduce.tables import PAPER_SCALE
from lwd.reproduce.workspace import Workspace
from lwd.schedule.base import Schedule
from lwd.schedule.io import load_schedule, read_provenance, schedule_from_dict
from lwd.surfaces.formats import LambdaPathFile

POINTS = 21
"""Values of tau in the JSON files."""
AT = {"time 0.25": 0.25, "time 0.5": 0.5, "time 0.75": 0.75}
TIMES = {name: f"texture time at tau = {tau:g}" for name, tau in AT.items()}


def lambda_jobs(ws: Workspace) -> list[Job]:
    """The sweep, or the path on the surfaces."""
    return [ws.lambdas()]


def lambda_curves(ws: Workspace) -> dict[float, tuple[Schedule, str]]:
    """The curve of each lambda of the scale, and the word for it."""
    where = ws.lambdas().out
    if ws.scale.sweep == "joint":
        lines = SweepFile.read(where / SWEEP).probes
        return {line.kinetic: (schedule_from_dict(line.schedule), line.word) for line in lines}
    points = LambdaPathFile.read(where / "path.json").points
    return {
        point.kinetic: (schedule_from_dict(point.schedule), "collapsed" if point.collapsed else "stable")
        for point in points
        if point.kinetic in ws.scale.lambdas
    }


def lambda_rows(ws: Workspace) -> list[TableRow]:
    """Texture times by lambda, and whether the curve collapsed."""
    paper = {one.kinetic: one.word for one in load_paper().sweep}
    rows = []
    for kinetic, (schedule, word) in lambda_curves(ws).items():
        words = {"curve here": word}
        if ws.scale.name == PAPER_SCALE:
            words["curve in the paper"] = paper.get(kinetic, "not reported")
        rows.append(TableRow(name=f"lambda {kinetic:g}", measured=_times(schedule), words=words))
    return rows


def lambda_context() -> list[TableRow]:
    """What the paper says about each lambda."""
    return [
        TableRow(name=f"lambda {one.kinetic:g}", words={"curve in the paper": one.word}) for one in load_paper().sweep
    ]


def schedules_jobs(ws: Workspace) -> list[Job]:
    """A probe on each semantic latent at the common lambda."""
    return [ws.probe(latent, ws.scale.common_kinetic) for latent in ws.available()]


def schedules_curves(ws: Workspace) -> dict[str, Schedule]:
    """The learned curve of each semantic latent."""
    kinetic = ws.scale.common_kinetic
    return {latent: load_schedule(ws.probe(latent, kinetic).out / SCHEDULE) for latent in ws.available()}


def schedules_rows(ws: Workspace) -> list[TableRow]:
    """Texture times by semantic latent."""
    rows, curves = [], schedules_curves(ws)
    for plan in ws.scale.latents:
        words = {"channels": str(plan.channels), "curve here": "not measured"}
        measured = {}
        if plan.name in curves:
            measured = _times(curves[plan.name])
            about = read_provenance(ws.probe(plan.name, ws.scale.common_kinetic).out / SCHEDULE)
            words["curve here"] = str(about.get("verdict", {}).get("word", "learned"))
        rows.append(TableRow(name=plan.name, measured=measured, words=words))
    return rows


def trajectory_jobs(ws: Workspace) -> list[Job]:
    """The guided samples of the main model: their model, without its guide, is followed along tau."""
    return [ws.grids()]


def trajectory_rows(ws: Workspace) -> list[TableRow]:
    """Local times of both groups at the marks of the figure."""
    schedule = main_schedule(ws)
    rows = []
    for tau in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        values = schedule.times(tau).detach().tolist()
        cells = {f"time of {name}": _exact(value) for name, value in zip(schedule.groups, values, strict=True)}
        rows.append(TableRow(name=f"tau = {tau:g}", measured=cells))
    return rows


def main_schedule(ws: Workspace) -> Schedule:
    """The schedule of the main model."""
    return load_schedule(ws.grids().model / SCHEDULE)


def grids_rows(ws: Workspace) -> list[TableRow]:
    """Which samples are shown."""
    drawn: Drawn = ws.grids()
    words = {"images": str(drawn.settings.count), "classes": ", ".join(map(str, drawn.settings.labels))}
    words |= {"guidance scale": f"{drawn.settings.scale:g}"}
    return [TableRow(name=ws.scale.main, steps=drawn.steps, words=words)]


def points_of(curves: Mapping[str, Schedule]) -> dict[str, dict[str, list[float]]]:
    """Local times by schedule and group, at evenly spaced tau."""
    tau = torch.linspace(0, 1, POINTS, dtype=torch.float64)
    found = {}
    for name, schedule in curves.items():
        times = schedule.times(tau).detach()
        found[name] = {group: [round(v, 6) for v in times[:, g].tolist()] for g, group in enumerate(schedule.groups)}
    return found


def _times(schedule: Schedule) -> dict[str, Cell]:
    column = schedule.groups.index("texture")
    return {name: _exact(float(schedule.times(tau)[column].detach())) for name, tau in AT.items()}


def _exact(value: float) -> Cell:
    return Cell(mean=value, values=[value])
