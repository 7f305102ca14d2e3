"""Summary of a run: curves as a figure, numbers as text."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from lwd.errors import InputError
from lwd.io.files import read_json
from lwd.report.plots import COLOURS, UNIT, draw_clocks, new_figure
from lwd.schedule.base import Schedule
from lwd.training.config import config_from_dict
from lwd.training.formats import RunFile
from lwd.training.journal import METRICS, read_metrics
from lwd.training.state import candidates

HIDDEN = (
    *("step", "steps", "skipped", "lr", "steps per second", "gradient norm"),
    *("data wait", "peak memory", "MFU", "spike"),
)


def plot_probe(schedule: Schedule, history: tuple[list[int], Tensor], run: Path, verdict: str) -> Figure:
    """Draw a probe in three panels: the frozen curve, the movement of the curve, and the loss terms."""
    figure = new_figure(14.4, 4.8)
    clocks, movement, losses = figure.subplots(1, 3)
    draw_clocks(clocks, {"learned": schedule})
    draw_movement(movement, schedule, history)
    draw_metrics(losses, read_metrics(run / METRICS))
    figure.suptitle(verdict, fontsize=9)
    return figure


def draw_movement(axes: Axes, schedule: Schedule, history: tuple[list[int], Tensor]) -> None:
    """Draw the curves of the followers at the recorded steps, from dark (first) to light (last)."""
    steps, curves = history
    lead = getattr(schedule, "lead", None)
    tau = [i / (curves.shape[1] - 1) for i in range(curves.shape[1])]
    shown = range(0, len(steps), max(1, len(steps) // 24))
    for i in shown:
        for g, name in enumerate(schedule.groups):
            if name != lead:
                axes.plot(tau, curves[i, :, g], color=colormaps["viridis"](i / max(len(steps) - 1, 1)), linewidth=0.9)
    title = f"the curve from step {steps[0]} (dark) to {steps[-1]} (light)" if steps else "no steps recorded"
    axes.set(xlabel="global time τ", ylabel="local time t", xlim=UNIT, ylim=UNIT, title=title)
    axes.set_aspect("equal")


def draw_metrics(axes: Axes, lines: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> None:
    """Draw loss terms over steps."""
    found = dict.fromkeys(key for line in lines for key in line if key not in HIDDEN)
    wanted = names or [name for name in found if "/" not in name or name.startswith(("flow", "kinetic"))]
    for name, colour in zip(wanted, COLOURS * 9, strict=False):
        points = [(line["step"], line[name]) for line in lines if name in line]
        if any(value for _, value in points):
            axes.plot(*zip(*points, strict=True), color=colour, label=name, linewidth=1.2)
    axes.set(xlabel="step", ylabel="loss", title="loss terms")
    if axes.lines:
        axes.legend(fontsize=7, frameon=False)


def plot_run(run: Path) -> Figure:
    """Draw loss terms, gradient norm and speed of a run."""
    lines = read_metrics(run / METRICS)
    if not lines:
        raise InputError(f"{run / METRICS} has no lines yet")
    figure = new_figure(14.4, 4.2)
    losses, norm, speed = figure.subplots(1, 3)
    draw_metrics(losses, lines)
    for axes, name in ((norm, "gradient norm"), (speed, "steps per second")):
        draw_metrics(axes, lines, [name])
        axes.set(title=name, ylabel="")
    return figure


def describe_run(run: Path) -> str:
    """Describe the settings and progress of a run."""
    about = RunFile.parse(read_json(run / "run.json"), str(run / "run.json"))
    config, lines = config_from_dict(about.config), read_metrics(run / METRICS) if (run / METRICS).exists() else []
    saved = [path.name.lstrip("0") or "0" for path in candidates(run / "checkpoints")]
    size = config.network.size or f"{config.network.depth} blocks of {config.network.width}"
    rows = {
        "preset": config.name or "none",
        "schedule": config.schedule or "learned by this probe",
        "network": size,
        "data": about.data,
        "steps": f"{lines[-1]['step'] if lines else 0} of {config.run.steps}, batch {config.run.batch}",
        "checkpoints": ", ".join(saved) or "none",
    }
    if lines:
        last = lines[-1]
        terms = [f"{name} {value:.4f}" for name, value in last.items() if name not in HIDDEN and value]
        rows |= {"last losses": ", ".join(terms), "speed": f"{last.get('steps per second', 0):.2f} steps per second"}
        rows["skipped"] = f"{last.get('skipped', 0)} non-finite steps"
    return "\n".join(f"{name + ':':<13} {value}" for name, value in rows.items())
