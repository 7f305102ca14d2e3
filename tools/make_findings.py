"""Refresh docs/findings.md: tables between its markers, and pictures in docs/images, from the JSON files in results/.

python tools/make_findings.py [--check]
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import yaml

mpl.use("Agg")
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "evidence"))

from tables import interval, ratio, values  # noqa: E402

from lwd.report.plots import COLOURS, save_figure  # noqa: E402

RESULTS, PAGE, PICTURES = ROOT / "results", ROOT / "docs" / "findings.md", ROOT / "docs" / "images"
GRID = ("fashion-short", "fashion-grid")
SAMPLER, METRIC = "accurate", "frechet"


def rows_of(*studies: str) -> list[dict[str, Any]]:
    paths = [RESULTS / f"{study}.json" for study in studies]
    return [row for path in paths if path.is_file() for row in json.loads(path.read_text())["rows"]]


def arms_of(*studies: str) -> list[str]:
    paths = [ROOT / "benchmarks" / "evidence" / f"{study}.yaml" for study in studies]
    return [arm for path in paths for arm in yaml.safe_load(path.read_text())["arms"]]


def against(rows: list[dict[str, Any]], arm: str, base: str) -> str:
    """The paired ratio of Fréchet distances, with its interval."""
    mine, theirs = (values(rows, name, SAMPLER, METRIC) for name in (arm, base))
    if arm == base or not set(mine) & set(theirs):
        return "-"
    middle, low, high = ratio(mine, theirs)
    return f"{middle:.3f}" + (f" [{low:.3f}, {high:.3f}]" if len(set(mine) & set(theirs)) > 1 else " (one seed)")


def ratios(studies: tuple[str, ...], bases: tuple[str, ...]) -> str:
    """A table of Fréchet distances and their ratios to some arms, best first."""
    rows = rows_of(*studies)
    lines = ["| schedule | seeds | Fréchet | " + " | ".join(f"of {base}" for base in bases) + " | flow loss |"]
    lines.append("| " + " | ".join(["---"] * (4 + len(bases))) + " |")
    found = {arm: values(rows, arm, SAMPLER, METRIC) for arm in arms_of(*studies)}
    for arm in sorted((arm for arm in found if found[arm]), key=lambda arm: sum(found[arm].values()) / len(found[arm])):
        mean, _ = interval(list(found[arm].values()))
        loss = [row["flow loss"] for row in rows if row["arm"] == arm]
        cells = [arm, str(len(found[arm])), f"{mean:.2f}", *(against(rows, arm, base) for base in bases)]
        lines.append("| " + " | ".join([*cells, f"{sum(loss) / len(loss):.4f}"]) + " |")
    return "\n".join(lines)


def predictors() -> str:
    """Rank correlations of every candidate, for each any-schedule network."""
    from predict import FILE, correlations

    if not FILE.is_file():
        return "Not run yet."
    networks = json.loads(FILE.read_text())["networks"]
    found = {seed: correlations(curves) for seed, curves in networks.items()}
    names = list(next(iter(found.values())))
    lines = ["| candidate | " + " | ".join(f"network {s}: all | semantic first" for s in found) + " |"]
    lines.append("| " + " | ".join(["---"] * (1 + 2 * len(found))) + " |")
    for name in sorted(names, key=lambda name: -min(found["0"][name].values())):
        cells = [f"{found[s][name][part]:.2f}" for s in found for part in ("all", "semantic first")]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines)


def excess() -> str:
    """Held-out loss of dedicated networks and of the any-schedule network, mean over seeds."""
    path = RESULTS / "fashion-own-loss.json"
    if not path.is_file():
        return "Not run yet."
    rows = json.loads(path.read_text())["rows"]
    lines = [
        "| schedule | seeds | own network | any-schedule network | excess (95%) |",
        "| --- | --- | --- | --- | --- |",
    ]
    for arm in dict.fromkeys(row["arm"] for row in rows):
        mine = [row for row in rows if row["arm"] == arm]
        own, free = (sum(row[key] for row in mine) / len(mine) for key in ("own", "any"))
        mean, half = interval([row["any"] - row["own"] for row in mine])
        lines.append(f"| {arm} | {len(mine)} | {own:.4f} | {free:.4f} | {mean:.4f} ± {half:.4f} |")
    return "\n".join(lines)


def draw_ratios() -> None:
    """Fréchet distance relative to one clock, with intervals, for every schedule."""
    rows = rows_of(*GRID)
    base = values(rows, "synchronous", SAMPLER, METRIC)
    found = {arm: ratio(values(rows, arm, SAMPLER, METRIC), base) for arm in arms_of(*GRID) if arm != "synchronous"}
    arms = sorted((arm for arm in found if found[arm][2] < float("inf")), key=lambda arm: -found[arm][0])
    figure = Figure(figsize=(7, 0.34 * len(arms) + 1), layout="constrained")
    axes = figure.subplots()
    for y, arm in enumerate(arms):
        middle, low, high = found[arm]
        colour = COLOURS[3] if arm.startswith("texture") else COLOURS[2 if "tau" in arm or arm == "learned" else 0]
        axes.errorbar([middle], [y], xerr=[[middle - low], [high - middle]], fmt="o", color=colour, capsize=3)
    axes.axvline(1, color="#888", linewidth=1)
    axes.set_yticks(range(len(arms)), arms)
    axes.set_xlabel("Fréchet distance relative to one clock (95%, paired over training seeds)")
    axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, PICTURES / "findings-schedules.png", dpi=110)


def page(text: str) -> str:
    """The page with every marked table made again."""
    made = {
        "grid": lambda: ratios(GRID, ("synchronous", "offset 0.3")),
        "free": lambda: ratios(("fashion-free",), ("synchronous", "offset 0.3")),
        "ablation": lambda: ratios((*GRID[:1], "fashion-ablation"), ("synchronous", "learned", "offset 0.3")),
        "predictors": predictors,
        "excess": excess,
    }

    def fill(match: re.Match[str]) -> str:
        return f"<!-- {match[1]} -->\n\n{made[match[1]]()}\n\n<!-- end -->"

    return re.sub(r"<!-- (\w+) -->\n.*?<!-- end -->", fill, text, flags=re.DOTALL)


if __name__ == "__main__":
    fresh = page(PAGE.read_text())
    if "--check" in sys.argv:
        sys.exit(fresh != PAGE.read_text())
    PAGE.write_text(fresh)
    draw_ratios()
    print(PAGE)
