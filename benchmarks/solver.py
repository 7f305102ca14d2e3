"""dopri5 of lwd against torchdiffeq's on problems with known solutions: ratios of evaluations and errors.

    python benchmarks/solver.py [--json]

Oracle: the final state from lwd's own dopri5 at rtol 1e-12; a test checks it against rk4 with 1000 steps (to 1e-9).
"""

import argparse
import json
import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torchdiffeq import odeint

import lwd
from lwd.sampler import field_breakpoints
from lwd.solver import Field

RTOLS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
LADDER = tuple(10 ** (-k / 4) for k in range(4, 34))


@dataclass(frozen=True)
class Problem:
    """A field on [0, 1], its initial state, and its kinks."""

    name: str
    field: Field
    start: Tensor
    breakpoints: tuple[float, ...] = ()


def mixture(spread: float) -> lwd.GaussianMixture:
    """Four correlated modes in one texture and one semantic channel."""
    means = torch.tensor([[-1.5, -1.0], [-0.5, 1.0], [0.5, -1.0], [1.5, 1.0]])
    covariance = spread**2 * torch.tensor([[1.0, 0.6], [0.6, 1.0]])
    return lwd.GaussianMixture(lwd.Layout.of(texture=1, semantic=1), means, covariance.expand(4, 2, 2))


def gaussian(seed: int, groups: int = 2) -> lwd.Gaussian:
    """Random correlated channels, three per group."""
    layout = lwd.Layout.of(**{f"g{i}": 3 for i in range(groups)})
    factor = torch.randn(3 * groups, 3 * groups, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return lwd.Gaussian(layout, factor @ factor.T / 3 + 0.05 * torch.eye(3 * groups))


def flow(name: str, data: lwd.GaussianMixture, schedule: lwd.Schedule, seeds: int = 32) -> Problem:
    """The sampling ODE of `data` under `schedule`, for `seeds` samples in float64."""
    label = torch.zeros(seeds, dtype=torch.int64)
    field = torch.no_grad()(lwd.flow_field(data, schedule, data.layout, label))
    noise = lwd.seeded_noise(range(seeds), (data.layout.channels, *data.size)).double()
    return Problem(name, field, noise, field_breakpoints(data, schedule))


def smooth_problems() -> list[Problem]:
    """No kinks: textbook equations and flows under smooth schedules."""
    learned = lwd.Polynomial([[0.0, -1.0, 1.0, 0.0, -1.0]])
    two = gaussian(1)
    starts = torch.linspace(0.01, 0.5, 32, dtype=torch.float64).reshape(16, 2)
    turn = torch.tensor([[0.0, 8.0], [-8.0, 0.0]], dtype=torch.float64)
    return [
        Problem("rotation", lambda z, _: z @ turn, starts),
        Problem("logistic", lambda z, _: 12 * z * (1 - z), starts),
        Problem("forced", lambda z, tau: torch.cos(20 * tau)[:, None] * z, starts),
        flow("gaussian/synchronous", two, lwd.Synchronous(two.layout.names)),
        flow("gaussian/polynomial", two, lwd.Polynomial(learned.rho, two.layout.names)),
        flow("mixture/synchronous", mixture(0.3), lwd.Synchronous()),
        flow("mixture/polynomial", mixture(0.3), learned),
    ]


def kinked_problems() -> list[Problem]:
    """Schedules with kinks, two to four groups."""
    three, four = gaussian(2, 3), gaussian(3, 4)
    knots = lwd.PiecewiseLinear((0, 0.2, 0.5, 1), {"texture": (0, 0.02, 0.2, 1), "semantic": (0, 0.5, 0.7, 1)})
    return [
        flow("mixture/offset", mixture(0.3), lwd.Offset(0.3)),
        flow("mixture/cascade", mixture(0.3), lwd.Cascade()),
        flow("mixture/knots", mixture(0.3), knots),
        flow("gaussian3/offset", three, lwd.Offset(0.3, three.layout.names, "g2")),
        flow("gaussian4/cascade", four, lwd.Cascade(four.layout.names)),
    ]


def reference(problem: Problem) -> Tensor:
    """Return the final state, accurate to about 1e-11."""
    return lwd.solve(
        problem.field, problem.start, breakpoints=problem.breakpoints, atol=1e-13, rtol=1e-12, max_nfe=200_000
    ).z


def ours(problem: Problem, rtol: float) -> tuple[Tensor, int]:
    solution = lwd.solve(problem.field, problem.start, breakpoints=problem.breakpoints, atol=rtol * 1e-3, rtol=rtol)
    return solution.z, solution.nfe


def theirs(problem: Problem, rtol: float) -> tuple[Tensor, int]:
    """Call torchdiffeq on [0, 1]; like in SFD's sampler, it ignores kinks and evaluates the field beyond 1."""
    calls = 0

    def field(tau: Tensor, z: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return problem.field(z, tau.clamp(0, 1).expand(len(z)))

    span = torch.tensor([0.0, 1.0], dtype=torch.float64)
    return odeint(field, problem.start, span, method="dopri5", rtol=rtol, atol=rtol * 1e-3)[-1], calls


def compare(problem: Problem, rtols: tuple[float, ...] = RTOLS) -> list[dict[str, float | str]]:
    """Return one row per tolerance: evaluations and error of both, and their ratios (ours / theirs).

    Equal rtol does not mean equal accuracy, so `matched` is the smallest number of evaluations with which ours, at any
    rtol of a ladder, is at least as accurate as theirs, divided by theirs.
    """
    truth = reference(problem)
    ladder = {rtol: measured(*ours(problem, rtol), truth) for rtol in (*LADDER, *rtols)}
    rows: list[dict[str, float | str]] = []
    for rtol in rtols:
        (nfe, error), (nfe_other, error_other) = ladder[rtol], measured(*theirs(problem, rtol), truth)
        matched = min(n for n, e in ladder.values() if e <= error_other)
        rows.append({
            "problem": problem.name, "rtol": rtol, "nfe": nfe, "nfe torchdiffeq": nfe_other,
            "error": error, "error torchdiffeq": error_other,
            "nfe ratio": nfe / nfe_other, "error ratio": error / error_other, "matched": matched / nfe_other,
        })  # fmt: skip
    return rows


def measured(z: Tensor, nfe: int, truth: Tensor) -> tuple[int, float]:
    """Return evaluations, and the root mean square error of the final state."""
    return nfe, float((z - truth).square().mean().sqrt())


def table(rows: list[dict[str, float | str]]) -> str:
    """Format the rows as Markdown."""
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + " --- |" * len(rows[0])]
    for row in rows:
        cells = (value if isinstance(value, (str, int)) else f"{value:.3g}" for value in row.values())
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def summary(rows: list[dict[str, float | str]]) -> dict[str, float]:
    """Return geometric means and worst cases of the ratios."""
    result = {}
    for key in ("nfe ratio", "error ratio", "matched"):
        values = [float(row[key]) for row in rows]
        result[f"{key} mean"] = math.exp(sum(map(math.log, values)) / len(values))
        result[f"{key} worst"] = max(values)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the ratios as one JSON object on the last line")
    arguments = parser.parse_args()
    result = {}
    for kind, problems in (("smooth", smooth_problems()), ("kinked", kinked_problems())):
        rows = [row for problem in problems for row in compare(problem)]
        result[kind] = summary(rows)
        tight = [row for row in rows if float(row["rtol"]) <= 1e-4]
        result[f"{kind}, rtol <= 1e-4"] = summary(tight)
        print(f"\n{kind}: ours / torchdiffeq\n\n{table(rows)}")
    if arguments.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
