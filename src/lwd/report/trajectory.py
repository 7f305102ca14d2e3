"""The paper's Figure 1: the states of the groups along tau, and their clocks."""

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from lwd.compute.conditions import check_condition
from lwd.path import Velocity
from lwd.report.plots import draw_clocks, new_figure
from lwd.report.sheets import colours
from lwd.sampler import field_breakpoints, flow_field, seeded_noise
from lwd.sampling.pipeline import LWDPipeline
from lwd.solver import solve

MARKS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@torch.no_grad()
def states_along(
    pipe: LWDPipeline, velocity: Velocity, seeds: Sequence[int], labels: Any, marks: Sequence[float] = MARKS
) -> dict[float, Tensor]:
    """Return the state at each of `marks` (from 0 to 1), by dopri5 with one step size per sample."""
    c, states = pipe.checkpoint, dict[float, Tensor]()
    kinks = field_breakpoints(velocity, c.schedule)
    wanted = sorted({*(mark for mark in marks if 0 < mark < 1), *kinks})
    field = flow_field(velocity, c.schedule, c.layout, check_condition(labels, len(seeds)).to(pipe.device))
    states[0.0] = seeded_noise(seeds, (c.layout.channels, *c.config.grid), pipe.device)
    solve(field, states[0.0], adaptive="sample", breakpoints=wanted, watch=states.__setitem__)
    return {mark: states[mark] for mark in sorted(marks)}


def plot_trajectory(
    pipe: LWDPipeline, velocity: Velocity, seeds: Sequence[int], labels: Any, marks: Sequence[float] = MARKS
) -> Figure:
    """Draw the decoded texture state and the other groups as colours at every mark, for each seed, and the clocks."""
    states = states_along(pipe, velocity, seeds, labels, marks)
    layout, schedule = pipe.checkpoint.layout, pipe.checkpoint.schedule
    rows: dict[str, list[Any]] = {f"{pipe.decoded}, decoded": [pipe.decode(z) for z in states.values()]}
    last = layout.split(states[max(states)])
    for name in layout.names:
        if name != pipe.decoded:
            rows[f"{name}, as colours"] = [colours(layout.split(z)[name], last[name]) for z in states.values()]
    height, count = len(rows) * len(seeds), len(states)
    figure = new_figure(1.25 * count + 4.6, max(3.9, 1.25 * height + 0.4))
    left, right = figure.subfigures(1, 2, width_ratios=(1.25 * count, 4.6), squeeze=False)[0]
    axes = left.subplots(height, count, squeeze=False)
    for i in range(len(seeds)):
        for j, (title, pictures) in enumerate(rows.items()):
            line = axes[i * len(rows) + j]
            line[0].set_ylabel(title, fontsize=7)
            for axis, picture in zip(line, pictures, strict=True):
                axis.imshow(picture[i], interpolation="nearest")
                axis.set(xticks=[], yticks=[])
    for axis, mark in zip(axes[0], states, strict=True):
        axis.set_title(f"τ = {mark:g}", fontsize=8)
    clocks: Axes = right.subplots()
    draw_clocks(clocks, {"this model": schedule})
    for mark in states:
        clocks.axvline(mark, color="#999", linestyle="--", linewidth=0.7)
        times = schedule.times(torch.tensor([mark], dtype=torch.float64))[0].detach()
        clocks.plot([mark] * len(times), times, "o", color="#333", markersize=3)
    return figure
