"""Figures of evaluations over training steps and network evaluations."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from lwd.errors import InputError
from lwd.evaluation.compare import Evaluation, nfe_of, steps_of
from lwd.evaluation.score import TITLES
from lwd.report.plots import COLOURS, new_figure


def plot_comparison(evaluations: Mapping[str, Evaluation]) -> Figure:
    """Draw each metric over training steps (left) and evaluations per sample (right), with standard errors."""
    shown = [name for name in ("fid", "sfid", "frechet", "precision", "recall") if _has(evaluations, name)]
    shown = shown or [name for name in TITLES if _has(evaluations, name)]
    if not shown:
        raise InputError("the evaluations have no metrics to draw")
    figure = new_figure(9.6, 2.8 * len(shown))
    axes = figure.subplots(len(shown), 2, squeeze=False)
    for row, name in zip(axes, shown, strict=True):
        for axis, (label, place) in zip(
            row, (("training steps", steps_of), ("evaluations per sample", nfe_of)), strict=True
        ):
            for (title, e), colour in zip(evaluations.items(), COLOURS * len(evaluations), strict=False):
                metric, x = e.metrics.get(name), place(e)
                if metric is not None and x is not None:
                    axis.errorbar([x], [metric.value], [metric.error], fmt="o", color=colour, label=title)
            axis.set(xlabel=label, ylabel=TITLES[name])
            if axis.containers:
                axis.legend(fontsize=6, frameon=False)
    return figure


def _has(evaluations: Mapping[str, Evaluation], name: str) -> bool:
    return any(name in e.metrics for e in evaluations.values())
