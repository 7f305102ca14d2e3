"""Error and quality of solvers against their cost."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from lwd.report.plots import COLOURS, STYLES, new_figure
from lwd.sampling.benchmark import Trial, front


def plot_samplers(
    trials: Sequence[Trial], chosen: Trial, tolerance: float, quality: Mapping[float, tuple[float, float]] | None = None
) -> Figure:
    """Draw error over evaluations (left; one colour per solver, one line style per placement) and quality (right).

    quality: evaluations -> (Fréchet distance, standard error).
    """
    figure = new_figure(11.0 if quality else 6.4, 4.8)
    axes = figure.subplots(1, 2 if quality else 1, squeeze=False)[0]
    solvers = list(dict.fromkeys(trial.solver for trial in trials))
    placements = list(dict.fromkeys(trial.placement for trial in trials))
    for solver in solvers:
        for placement in placements:
            line = sorted((t.nfe, t.error) for t in trials if (t.solver, t.placement) == (solver, placement))
            if line:
                style = STYLES[placements.index(placement) % 4]
                label = f"{solver} {placement}".strip()
                axes[0].plot(*zip(*line, strict=True), style, color=COLOURS[solvers.index(solver) % 8], label=label)
    axes[0].axhline(tolerance, color="#999", linewidth=0.8)
    axes[0].plot([chosen.nfe], [chosen.error], "*", color="#222", markersize=12, label=f"recommended: {chosen.options}")
    axes[0].set(xscale="log", yscale="log", xlabel="evaluations per sample", ylabel="error / std of the samples")
    axes[0].legend(fontsize=6, frameon=False)
    if quality:
        places = sorted(quality)
        values, errors = zip(*(quality[place] for place in places), strict=True)
        axes[1].errorbar(places, values, errors, fmt="o-", color=COLOURS[0])
        axes[1].set(xscale="log", xlabel="evaluations per sample", ylabel="Fréchet distance to the reference")
        axes[1].set(title="best setting at each cost")
    return figure


def sampler_table(trials: Sequence[Trial]) -> str:
    """List the settings that no cheaper setting beats."""
    lines = [f"{'evaluations':>11}  {'error':>8}  options of lwd sample"]
    return "\n".join(lines + [f"{t.nfe:>11.4g}  {t.error:>8.2g}  {t.options}" for t in front(trials)])
