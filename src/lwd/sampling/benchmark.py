"""Compare solvers, steps and placements on a model: error and quality against network evaluations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from lwd.checkpoints.formats import Recommendation
from lwd.checkpoints.recommended import guidance_of
from lwd.errors import InputError, SolveError
from lwd.sampler import field_breakpoints
from lwd.sampling.flow import Flow
from lwd.sampling.formats import BenchmarkFile
from lwd.sampling.generator import Generator
from lwd.sampling.placement import calibrate, place
from lwd.sampling.settings import OPTIMISED, UNIFORM, BenchmarkSettings
from lwd.solver.fixed import MULTISTEP

BUDGETS = BenchmarkSettings().budgets
STAGES = {"euler": 1, "midpoint": 2, "heun": 2, "ab2": 1, "ab3": 1, "abm": 1, "rk4": 4}
OPTIMISE = ("abm",)
"""Solvers whose steps are placed by a search; on the shipped model no other was better with placed steps."""
RTOLS = (3e-1, 1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4)


@dataclass(frozen=True)
class Trial:
    """One setting: its cost per sample, and its error relative to the standard deviation of the samples."""

    solver: str
    placement: str
    steps: int | None
    rtol: float | None
    nfe: float
    error: float
    grid: tuple[float, ...] | None = None
    """Times of the steps."""

    @property
    def options(self) -> str:
        """Options for `lwd sample`."""
        if self.steps is None:
            return f"--solver {self.solver} --rtol {self.rtol:g}"
        placed = "" if self.placement == UNIFORM else f" --placement {self.placement}"
        return f"--solver {self.solver} --steps {self.steps}{placed}"


def sampler_errors(
    flow: Flow,
    budgets: Sequence[int] = BUDGETS,
    optimise: Sequence[str] = OPTIMISE,
    progress: Callable[[int], object] | None = None,
) -> list[Trial]:
    """Measure every solver and placement at every budget of evaluations, and dopri5 at several tolerances.

    Placements by group are tried for groups whose clock differs from tau; optimised ones for the solvers in `optimise`.
    """
    truth, calibration = flow.truth(), calibrate(flow)
    trials: list[Trial] = []
    for solver, placement, steps in trial_settings(flow, budgets, optimise):
        try:
            grid = place(placement, steps, solver, flow, calibration=calibration)
            solution = flow.solve(method=solver, grid=grid)
        except (SolveError, InputError):  # too few steps for the field or for its kinks
            continue
        finally:
            if progress is not None:
                progress(1)
        trials.append(Trial(solver, placement, steps, None, solution.nfe, error(solution.z, truth), grid))
    for rtol in RTOLS:
        solution = flow.solve(rtol=rtol, adaptive="sample")
        nfe = float(solution.nfe_per_sample.double().mean())
        trials.append(Trial("dopri5", "", None, rtol, nfe, error(solution.z, truth)))
        if progress is not None:
            progress(1)
    return trials


def trial_settings(flow: Flow, budgets: Sequence[int], optimise: Sequence[str]) -> list[tuple[str, str, int]]:
    """Return (solver, placement, steps) of all fixed-step trials."""
    tau = torch.linspace(0, 1, 11, dtype=torch.float64)
    times = flow.schedule.times(tau).detach()
    moved = [
        name for i, name in enumerate(flow.schedule.groups) if not torch.allclose(times[:, i], tau, atol=1e-6, rtol=0)
    ]
    starts = len(field_breakpoints(flow.velocity, flow.schedule)) + 1  # one more evaluation each, for multistep methods
    settings = []
    for solver, stages in STAGES.items():
        placements = [UNIFORM, *moved, *([OPTIMISED] if solver in optimise else [])]
        for placement in placements:
            for budget in budgets:
                steps = (budget - (starts if solver in MULTISTEP else 0)) // stages
                if steps >= starts:
                    settings.append((solver, placement, steps))
    return settings


def error(z: Tensor, truth: Tensor) -> float:
    """Root mean square error relative to the spread of the samples."""
    return float((z - truth).double().square().mean().sqrt() / truth.double().std())


def front(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that no cheaper trial beats, from cheap to expensive."""
    best: list[Trial] = []
    for trial in sorted(trials, key=lambda t: (t.nfe, t.error)):
        if not best or trial.error < best[-1].error:
            best.append(trial)
    return best


def recommend(trials: Sequence[Trial], tolerance: float) -> Trial:
    """Return the cheapest trial within the tolerance, or the most accurate if there is none."""
    if not trials:
        raise InputError("no solver worked within the budgets; use larger ones", argument="budgets")
    good = [trial for trial in trials if trial.error <= tolerance]
    return min(good, key=lambda t: (t.nfe, t.error)) if good else min(trials, key=lambda t: t.error)


def recommendation(generator: Generator, tolerance: float, chosen: Trial) -> Recommendation:
    """The chosen setting as it is stored with the model, with its guidance and the times of its steps."""
    return Recommendation(
        **guidance_of(generator.guide, generator.settings.scale, generator.settings.interval),
        solver=chosen.solver,
        steps=chosen.steps,
        rtol=chosen.rtol,
        grid=None if chosen.grid is None else list(chosen.grid),
        nfe=chosen.nfe,
        error=chosen.error,
        tolerance=tolerance,
    )


def write_benchmark(
    out: Path,
    generator: Generator,
    tolerance: float,
    trials: Sequence[Trial],
    chosen: Trial,
    quality: Mapping[float, tuple[float, float]] | None = None,
) -> None:
    """Write sampler.json: all trials, the recommended one, and the measured distances."""
    record = BenchmarkFile(
        tolerance=tolerance,
        trials=[{key: value for key, value in asdict(trial).items() if key != "grid"} for trial in trials],
        recommended=chosen.options,
        quality=None if quality is None else [(nfe, *pair) for nfe, pair in quality.items()],
        **generator.record,
    )
    record.write(out / "sampler.json")
