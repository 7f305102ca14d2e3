"""A minute on a laptop: learn a schedule on a Gaussian mixture, sample under it and under the usual ones, draw it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor
from tqdm import tqdm

from lwd.files import check_writable
from lwd.groups import Layout
from lwd.models.exact import GaussianMixture
from lwd.objective import FlowObjective
from lwd.probe.surface import Surfaces, fit_schedule, path_objective
from lwd.report.plots import COLOURS, draw_clocks, new_figure, save_figure
from lwd.sampler import sample
from lwd.schedule.base import Schedule
from lwd.schedule.fixed import Offset, Synchronous
from lwd.schedule.io import save_schedule
from lwd.schedule.learned import Learnable, Polynomial

LAYOUT = Layout.of(texture=1, semantic=1)
KINETIC = 0.1
STEPS = 8
SAMPLES = 1500


@dataclass(frozen=True)
class Row:
    """What the demo found for one schedule."""

    flow: float
    kinetic: float
    objective: float
    error: float
    nfe: int
    samples: Tensor


def mixture() -> GaussianMixture:
    """Three kinds of image: the semantic scalar says which (tight modes), the texture scalar follows it (wide ones)."""
    texture, semantic = torch.tensor([1.0, -1.0, 1.0]), torch.tensor([-1.4, 0.0, 1.4])
    covariance = torch.tensor([[0.20, 0.04], [0.04, 0.05]])
    return GaussianMixture(LAYOUT, torch.stack([texture, semantic], 1), covariance.expand(3, 2, 2))


def learn(surfaces: Surfaces, objective: FlowObjective, steps: int = 250) -> Learnable:
    """Descend from two starts and keep the better end: the identity is often a local minimum of the objective."""
    starts = [Polynomial(), Polynomial.from_shares([[0.6, 0.1, 0.1, 0.1, 0.1]])]
    # disable=None: no bar where nobody watches (a log file, CI).
    with tqdm(total=len(starts) * steps, desc="learning the schedule", unit="step", leave=False, disable=None) as bar:

        def advance(_: int, value: float) -> None:
            bar.set_postfix(objective=f"{value:.4f}", refresh=False)
            bar.update(1)

        ends = [fit_schedule(start, surfaces, objective, steps, nodes=12, progress=advance) for start in starts]
    return min(ends, key=lambda end: float(path_objective(end, surfaces, objective)))


def measure(schedule: Schedule, data: GaussianMixture, surfaces: Surfaces) -> Row:
    """Objective terms, and the samples of STEPS Heun steps with their distance to the exact flow's."""
    flow = path_objective(schedule, surfaces, FlowObjective(LAYOUT, reduction="groups"))
    both = path_objective(schedule, surfaces, FlowObjective(LAYOUT, reduction="groups", kinetic=1.0))
    run = {"seeds": range(SAMPLES), "labels": 0, "size": (1, 1)}
    few = sample(data, schedule, LAYOUT, method="heun", steps=STEPS, **run)  # type: ignore[arg-type]
    exact = sample(data, schedule, LAYOUT, method="dopri5", rtol=1e-6, **run)  # type: ignore[arg-type]
    error = float((few.z - exact.z).square().mean().sqrt())
    kinetic = float(both - flow)
    return Row(float(flow), kinetic, float(flow) + KINETIC * kinetic, error, few.nfe, few.z.flatten(1))


def draw(schedules: Mapping[str, Schedule], rows: Mapping[str, Row], data: GaussianMixture) -> Figure:
    """Curves on the left, then one scatter of samples for each schedule over the density of the data."""
    figure = new_figure(4.2 * (1 + len(rows)), 4.4)
    axes = figure.subplots(1, 1 + len(rows))
    draw_clocks(axes[0], schedules)
    x = torch.linspace(-2.4, 2.4, 161, dtype=torch.float64)
    grid = torch.cartesian_prod(x, x)  # (texture, semantic)
    ones = torch.ones(len(grid), 2, dtype=torch.float64)
    density = data.log_density(grid, ones, torch.zeros(len(grid), dtype=torch.int64)).exp().reshape(161, 161)
    for axis, (name, row), colour in zip(axes[1:], rows.items(), COLOURS, strict=False):
        axis.contourf(x, x, density, levels=12, cmap="Greys", alpha=0.6)
        axis.scatter(row.samples[:, 1], row.samples[:, 0], s=3, color=colour, alpha=0.6, linewidths=0)
        title = f"{name}: {row.nfe} evaluations, error {row.error:.3f}"
        axis.set(title=title, xlabel="semantic", ylabel="texture", xlim=(-2.4, 2.4), ylim=(-2.4, 2.4))
        axis.set_aspect("equal")
    return figure


@torch.no_grad()
def run_demo(out: str | os.PathLike[str]) -> str:
    """Write demo.png and schedule.json into `out`; returns what was found, as text."""
    check_writable(out)
    data = mixture()
    surfaces = partial(data.surfaces, samples=128)
    objective = FlowObjective(LAYOUT, reduction="groups", kinetic=KINETIC)
    with torch.enable_grad():
        learned = learn(surfaces, objective)
    schedules: dict[str, Schedule] = {"synchronous": Synchronous(), "offset 0.3": Offset(0.3), "learned": learned}
    rows = {name: measure(schedule, data, surfaces) for name, schedule in schedules.items()}
    out = Path(out)
    provenance = {"by": "lwd demo", "data": "Gaussian mixture, three modes", "lambda": KINETIC, "reduction": "groups"}
    save_schedule(learned, out / "schedule.json", provenance | {"weight_gradient": "exact"})
    save_figure(draw(schedules, rows, data), out / "demo.png")
    lines = [
        "A schedule for a mixture of three Gaussians: texture learned to wait for semantic.",
        f"It minimises flow loss + {KINETIC} x kinetic energy. Error: {STEPS} Heun steps against the exact flow.",
        "",
        f"{'schedule':<12} {'flow loss':>10} {'kinetic':>9} {'objective':>10} {'error':>8}",
        *(f"{n:<12} {r.flow:>10.4f} {r.kinetic:>9.4f} {r.objective:>10.4f} {r.error:>8.4f}" for n, r in rows.items()),
        "",
        f"picture:  {out / 'demo.png'}",
        f"schedule: {out / 'schedule.json'}    (lwd schedule show {out / 'schedule.json'})",
    ]
    return "\n".join(lines)
