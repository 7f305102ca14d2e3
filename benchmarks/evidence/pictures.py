"""Pictures of docs/findings.md and the pages with its studies."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from curve_tables import cases, scores
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pair_tables import distances
from paths import path as path_of
from predict import FILE
from tables import ratio, values

from lwd.report.plots import COLOURS, draw_paths, save_figure
from lwd.schedule.base import Schedule
from lwd.schedule.fixed import Cascade, Offset

Rows = Callable[..., list[dict[str, Any]]]
Found = Mapping[int, float]
GOAL = 0.8
"""Learned over offset 0.3, as the paper reports it."""


class Setting:
    """Distances by seed in one setting: one clock, offset 0.3, and the learned curve (or the best that was found)."""

    def __init__(self, name: str, found: Sequence[Found]) -> None:
        self.name, (self.one, self.offset, self.learned) = name, found

    def ratios(self) -> list[tuple[float, float, float] | None]:
        """Offset over one clock, and learned over offset; None without at least two seeds in both."""
        pairs = ((self.offset, self.one), (self.learned, self.offset))
        return [ratio(mine, base) if len(set(mine) & set(base)) > 1 else None for mine, base in pairs]


def dedicated(rows: Rows) -> list[Setting]:
    """Networks that were trained for their schedule."""

    def arms(studies: tuple[str, ...], one: str, offset: str, learned: str, sampler: str = "accurate") -> list[Found]:
        found = rows(*studies)
        return [values(found, arm, sampler, "frechet") for arm in (one, offset, learned)]

    short, ablation = ("fashion-short",), ("fashion-short", "fashion-ablation")
    bell = "logit-normal"
    found = [
        Setting("the paper's objective", arms(short, "synchronous", "offset 0.3", "learned")),
        Setting("the same, no labels", arms(("fashion-free",), "synchronous", "offset 0.3", "learned")),
        Setting(
            "logit-normal times",
            arms(ablation, f"synchronous, {bell}", f"offset 0.3, rates, {bell}", f"learned, rates, {bell}"),
        ),
        Setting(
            "no correction",
            arms(ablation, "synchronous", "offset 0.3, none, uniform", "learned, none, uniform"),
        ),
        Setting(
            "no correction, logit-normal",
            arms(ablation, f"synchronous, {bell}", f"offset 0.3, none, {bell}", f"learned, none, {bell}"),
        ),
    ]
    for width in (48, 96):
        one, offset, learned = (f"{arm}, width {width}" for arm in ("synchronous", "offset 0.3", "learned"))
        found.append(
            Setting(
                f"no correction, width {width}, 2,400 steps",
                arms(("fashion-length",), one, offset, learned, "2400 steps"),
            )
        )
    return found


def shared(rows: Rows) -> list[Setting]:
    """One network for every schedule; learned: the weakest stable curve on its own surfaces."""
    found = []
    for study in ("pairs", "pairs-more"):
        runs, learned = rows(study), rows(f"{study}-learned")
        for pair in dict.fromkeys(row["pair"] for row in runs):
            parts = [distances(runs, pair, name) for name in ("synchronous", "offset 0.3")]
            found.append(Setting(pair, [*parts, distances(learned, pair, "weakest")]))
    return found


def by_samples(rows: Rows) -> list[Setting]:
    """One network for every schedule; the curve was chosen by samples."""
    curves = {
        "search": ("path of the search", "fresh", ("synchronous", "offset 0.3", "best")),
        "handover": ("cascade:0.9", "schedules", ("one clock", "offset 0.3", "handover 0.9")),
    }
    found = []
    for study, (label, part, names) in curves.items():
        runs = rows(study)
        for case in cases(runs):
            found.append(Setting(f"{label}, {case}", [scores(runs, case, name, part) for name in names]))
    return [one for one in found if len(one.offset) > 1]


def draw_ratios(rows: Rows, path: Path) -> None:
    """Two columns of intervals, one row for each setting."""
    parts = {"trained for the schedule": dedicated(rows), "one network, curve from its surfaces": shared(rows)}
    parts["one network, curve from samples"] = by_samples(rows)
    settings = [one for part in parts.values() for one in part]
    figure = Figure(figsize=(9.2, 0.9 + 0.27 * len(settings)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, column, title in ((left, 0, "offset 0.3 / one clock"), (right, 1, "learned / offset 0.3")):
        for (label, part), colour in zip(parts.items(), COLOURS, strict=False):
            for setting in part:
                _interval(axes, setting.ratios()[column], -float(settings.index(setting)), colour)
            axes.axhline(0.5 - settings.index(part[0]), color="#ccc", linewidth=1)
            left.plot([], [], "o", color=colour, label=label if axes is left else None)
        axes.axvline(1, color="#888", linewidth=1)
        axes.set(title=title, xlabel="ratio of Fréchet distances (95%)", xlim=(0.68, 1.3))
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(left=False)
    right.axvline(GOAL, color="#888", linewidth=1, linestyle=":")
    left.set_yticks([-float(k) for k in range(len(settings))], [one.name for one in settings], fontsize=8)
    figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=3)
    save_figure(figure, path, dpi=110)


def _interval(axes: Axes, found: tuple[float, float, float] | None, place: float, colour: str) -> None:
    if found is None:
        return
    middle, low, high = found
    axes.plot([low, high], [place, place], color=colour, linewidth=1.6)
    axes.plot([middle], [place], "o", color=colour, markersize=5)


LEADS = {
    **{f"texture first {delta:g}": -delta for delta in (0.6, 0.3, 0.1)},
    "synchronous": 0.0,
    **{f"offset {delta:g}": delta for delta in (0.1, 0.2, 0.3, 0.45, 0.6, 0.8)},
    "cascade": 1.0,
}
"""By how much semantic leads."""


def draw_offsets(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Fréchet distance over the lead of semantic: networks trained for the offset, and one network for all."""
    networks = json.loads(FILE.read_text())["networks"] if FILE.is_file() else {}
    key = "samples of the any-schedule network"
    sets = {
        "one network for each schedule": {
            arm: list(values(rows, arm, "accurate", "frechet").values()) for arm in LEADS
        },
        "one network for all schedules": {arm: [curves[arm][key] for curves in networks.values()] for arm in LEADS},
    }
    figure = Figure(figsize=(7.2, 3.8), layout="constrained")
    axes = figure.subplots()
    for (label, found), colour, marker in zip(sets.items(), COLOURS, "os", strict=False):
        there = [arm for arm in LEADS if found[arm]]
        means = [sum(found[arm]) / len(found[arm]) for arm in there]
        axes.plot([LEADS[arm] for arm in there], means, color=colour, marker=marker, label=label)
        for arm in there:
            axes.plot([LEADS[arm]] * len(found[arm]), found[arm], ".", color=colour, alpha=0.5, markersize=5)
    axes.axvline(0, color="#888", linewidth=1)
    axes.set_xlabel("lead of semantic (negative: texture first; 0: one clock; 1: cascade)")
    axes.set_ylabel("Fréchet distance (lower is better)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    save_figure(figure, path, dpi=110)


def draw_found(rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    """The paths that the search found, beside the curves that are like them."""
    found: dict[str, Schedule] = {f"best, {row['case']}, seed {row['seed']}": path_of(row["leads"]) for row in rows}
    figure = Figure(figsize=(5.2, 5.2), layout="constrained")
    draw_paths(figure.subplots(), {"offset 0.3": Offset(0.3), "cascade:0.9": Cascade(handover=0.9), **found})
    save_figure(figure, file, dpi=110)
