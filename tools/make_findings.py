"""Refresh docs/findings*.md: tables between their markers, and pictures in docs/images, from the files in results/.

python tools/make_findings.py [--check]
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "evidence"))

import ceiling_tables  # noqa: E402
import curve_tables  # noqa: E402
import pictures  # noqa: E402
from pair_tables import PAIR_CURVES, clock_table, learned_table, pair_table, ranks  # noqa: E402
from tables import interval, paired, ratio, values  # noqa: E402

RESULTS, PICTURES = ROOT / "results", ROOT / "docs" / "images"
PAGES = [ROOT / "docs" / f"{name}.md" for name in ("findings", "findings-trained", "findings-one-network")]
GRID = ("fashion-short", "fashion-grid")
CLOCKS = ("stages 3 and 5", "stage 5")
"""Rows of pairs.yaml: three clocks, and two to compare them with."""
SAME = dict.fromkeys(("92afdb900b86899b", "f06a67af0114e00a"), "6dadf7c37c26875b")
"""Fingerprints of latents that differ in rounding only: results/fashion-again.json, fashion-searched.json."""
SAMPLER, METRIC = "accurate", "frechet"
NOT_RUN = "Not run yet."
STAGE_4 = "EfficientNet-Lite, stage 4"
LIMITS = {"judge": ("judge", ""), STAGE_4: ("second", ""), f"{STAGE_4}, accurate": ("second", ", accurate")}
LIMITS["FID"] = ("fid", ", fid")
"""Metrics of the tables of ceilings: the key in the scores, and how the names of the arms end."""
COLOURED = ("one clock", "offset 0.15", "offset 0.3", "offset 0.6", "learned", "cascade 0.9", "cascade")
COLOURED += ("texture first 0.3",)
COLOURED += tuple(f"{name}, accurate" for name in ("one clock", "offset 0.3", "learned", "cascade 0.9"))


def rows_of(*studies: str) -> list[dict[str, Any]]:
    """The rows of some studies, which must have been trained on the same latents."""
    paths = [RESULTS / f"{study}.json" for study in studies]
    found = [json.loads(path.read_text()) for path in paths if path.is_file()]
    if len({SAME.get(str(one.get("latents")), one.get("latents")) for one in found}) > 1:
        raise SystemExit(f"{', '.join(studies)} were trained on different latents, and cannot be compared")
    return [curve_tables.better_start(row) for one in found for row in one["rows"]]


def arms_of(*studies: str) -> list[str]:
    paths = [ROOT / "benchmarks" / "evidence" / f"{study}.yaml" for study in studies]
    return [arm for path in paths for arm in yaml.safe_load(path.read_text())["arms"]]


def against(rows: list[dict[str, Any]], arm: str, base: str) -> str:
    """The paired ratio of Fréchet distances, with its interval."""
    mine, theirs = (values(rows, name, SAMPLER, METRIC) for name in (arm, base))
    return paired(mine, theirs)


def ratios(studies: tuple[str, ...], bases: tuple[str, ...]) -> str:
    """A table of Fréchet distances and their ratios to some arms, best first."""
    rows = rows_of(*studies)
    lines = ["| schedule | seeds | Fréchet | " + " | ".join(f"of {base}" for base in bases) + " | flow loss |"]
    lines.append("| " + " | ".join(["---"] * (4 + len(bases))) + " |")
    found = {arm: values(rows, arm, SAMPLER, METRIC) for arm in arms_of(*studies)}
    if not any(found.values()):
        return NOT_RUN
    base = next((found[base] for base in bases if found.get(base)), {})

    def rank(arm: str) -> float:  # paired, as some schedules have more seeds than others
        return ratio(found[arm], base)[0] if set(found[arm]) & set(base) else float("inf")

    for arm in sorted((arm for arm in found if found[arm]), key=rank):
        mean, _ = interval(list(found[arm].values()))
        loss = [row["flow loss"] for row in rows if row["arm"] == arm]
        cells = [arm, str(len(found[arm])), f"{mean:.2f}", *(against(rows, arm, base) for base in bases)]
        lines.append("| " + " | ".join([*cells, f"{sum(loss) / len(loss):.4f}"]) + " |")
    return "\n".join(lines)


def cell(curve: str, correction: str, times: str) -> str:
    """The arm of a curve, a correction and a distribution of times; fashion-short has the paper's choices."""
    if curve == "synchronous":  # its correction is 1
        return curve if times == "uniform" else f"{curve}, {times}"
    return curve if (correction, times) == ("rates", "uniform") else f"{curve}, {correction}, {times}"


def named(curve: str, correction: str, times: str) -> str:
    """The three choices of a cell, in words."""
    return f"{curve} ({correction}, {times})"


def effects() -> str:
    """Paired ratios of Fréchet distances between cells of the ablation that differ in one factor."""
    rates, none, even, bell = "rates", "none", "uniform", "logit-normal"
    pairs = [
        (f"{curve}, {fixed}: logit-normal over uniform times", (curve, fixed, bell), (curve, fixed, even))
        for curve, fixed in (
            ("synchronous", rates),
            *((c, f) for c in ("offset 0.3", "learned") for f in (rates, none)),
        )
    ]
    pairs += [
        (f"{curve}, {times} times: no correction over rates", (curve, none, times), (curve, rates, times))
        for curve in ("offset 0.3", "learned")
        for times in (even, bell)
    ]
    pairs += [
        (f"{fixed}, {times} times: learned over offset 0.3", ("learned", fixed, times), ("offset 0.3", fixed, times))
        for fixed in (rates, none)
        for times in (even, bell)
    ]
    pairs += [
        (f"{label}: {named(*mine)} over {named(*theirs)}", mine, theirs)
        for label, mine, theirs in (
            ("the paper's comparison", ("learned", rates, even), ("offset 0.3", none, bell)),
            ("its reverse", ("learned", none, bell), ("offset 0.3", rates, even)),
            ("all three", ("learned", none, bell), ("synchronous", rates, even)),
        )
    ]
    named_pairs = [(label, cell(*mine), cell(*theirs)) for label, mine, theirs in pairs]
    return "\n".join([*HEAD, *compared((GRID[0], "fashion-ablation"), named_pairs)])


def compared(studies: tuple[str, ...], pairs: list[tuple[str, str, str]], sampler: str = SAMPLER) -> list[str]:
    """Rows of a table: paired ratios of two arms each, in three metrics."""
    rows, lines = rows_of(*studies), []
    for label, *arms in pairs:
        frechet, kid, accuracy = (
            [values(rows, arm, sampler, metric) for arm in arms] for metric in (METRIC, "kid", "accuracy")
        )
        cells = [label, paired(*frechet), paired(*kid), f"{_share(accuracy[0])} / {_share(accuracy[1])}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


HEAD = ["| what changes | Fréchet distance (95%) | KID (95%) | class accuracy |", "| --- | --- | --- | --- |"]


def tempo() -> str:
    """Path x tempo: paired ratios of cells that differ in one of them."""
    offset, learned, square = "offset 0.3, none, uniform", "learned, none, uniform", "offset 0.3, tempo of tau^2"
    pairs = [
        ("path, at an even tempo: learned over offset 0.3", "learned, even tempo", offset),
        ("path, at the tempo of tau^2: learned over offset 0.3", learned, square),
        ("path, at an even tempo: offset 0.3 over one clock", offset, "synchronous"),
        ("path, at the tempo of tau^2: offset 0.3 over one clock", square, "synchronous, tempo of tau^2"),
        ("path, at the tempo of tau^2: learned over one clock", learned, "synchronous, tempo of tau^2"),
        ("offset 0.3 (even) over one clock at the tempo of tau^2", offset, "synchronous, tempo of tau^2"),
        ("tempo, on offset 0.3: tau^2 over even", square, offset),
        ("tempo, on the learned curve: tau^2 over even", learned, "learned, even tempo"),
        ("tempo, on one clock: tau^2 over even", "synchronous, tempo of tau^2", "synchronous"),
        ("both: learned over offset 0.3", learned, offset),
        ("both: tau^3 over offset 0.3", "tau^3, none, uniform", offset),
        ("tau^3 over offset 0.3 at the tempo of tau^2", "tau^3, none, uniform", square),
        ("tau^3 over learned (tau^2)", "tau^3, none, uniform", learned),
    ]
    return "\n".join([*HEAD, *compared((GRID[0], "fashion-ablation", "fashion-tempo"), pairs)])


def dedicated(case: str) -> dict[int, float]:
    """Networks trained for offset 0.3 with the paper's objective, with or without labels."""
    study = "fashion-free" if case.startswith("no labels") else GRID[0]
    return values(rows_of(study), "offset 0.3", SAMPLER, METRIC)


def uncorrected() -> dict[int, float]:
    """Networks trained for offset 0.3 without correction at uniform times."""
    return values(rows_of("fashion-ablation"), "offset 0.3, none, uniform", SAMPLER, METRIC)


def long_offsets() -> dict[str, tuple[str, dict[int, float]]]:
    """Networks trained for offset 0.3 for 2,400 steps: by the judge, and by the metrics of fid.yaml."""
    arm, fid = "offset 0.3, width 96", rows_of("fid")
    names = {"fid": "FID", "kid": "KID", "frechet": "Fréchet, EfficientNet-Lite (5,000)"}
    found = {"judge": ("judge", values(rows_of("fashion-length"), arm, "2400 steps", METRIC))}
    return found | {metric: (shown, values(fid, arm, "16 evaluations", metric)) for metric, shown in names.items()}


def lengths() -> str:
    """The effect of the schedule by width and length of training."""
    head = [
        "width",
        "steps",
        "synchronous",
        "offset 0.3",
        "learned",
        "offset 0.3 / synchronous",
        "learned / offset 0.3",
    ]
    lines, rows = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head))], rows_of("fashion-length")
    if not rows:
        return NOT_RUN
    for width in (48, 96):
        for steps in (600, 1200, 2400):
            one, offset, learned = (
                values(rows, f"{arm}, width {width}", f"{steps} steps", METRIC)
                for arm in ("synchronous", "offset 0.3", "learned")
            )
            cells = [str(width), f"{steps:,}", _mean(one), _mean(offset), _mean(learned)]
            lines.append("| " + " | ".join([*cells, paired(offset, one), paired(learned, offset)]) + " |")
    return "\n".join(lines)


def fid() -> str:
    """Inception and EfficientNet-Lite on the networks of `lengths` after 2,400 steps."""
    rows = rows_of("fid")
    if not rows:
        return NOT_RUN
    names = {"fid": "FID", "sfid": "sFID", "kid": "KID", "frechet": "Fréchet, EfficientNet-Lite"}
    names |= {"precision": "precision", "recall": "recall", "coverage": "coverage"}
    arms = ("synchronous", "offset 0.3", "learned")
    head = ["metric", *arms, "offset 0.3 / synchronous", "learned / synchronous", "learned / offset 0.3"]
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head))]
    for metric, name in names.items():
        one, offset, learned = found = [values(rows, f"{arm}, width 96", "16 evaluations", metric) for arm in arms]
        digits = 2 if metric in ("fid", "sfid", "frechet") else 4
        cells = [name, *(_mean(f, digits) for f in found), paired(offset, one), paired(learned, one)]
        lines.append("| " + " | ".join([*cells, paired(learned, offset)]) + " |")
    return "\n".join(lines)


def predictors() -> str:
    """Rank correlations of every candidate, for each any-schedule network."""
    from predict import FILE, correlations

    if not FILE.is_file():
        return NOT_RUN
    networks = json.loads(FILE.read_text())["networks"]
    found = {seed: correlations(curves) for seed, curves in networks.items()}
    names = list(next(iter(found.values())))
    parts = ("all", "semantic first", "own samples")
    lines = ["| candidate | " + " | ".join(f"{part} ({s})" for part in parts for s in found) + " |"]
    lines.append("| " + " | ".join(["---"] * (1 + len(parts) * len(found))) + " |")
    for name in sorted(names, key=lambda name: -found["0"][name].get("own samples", -1)):
        cells = [f"{found[s][name][p]:.2f}" if p in found[s][name] else "-" for p in parts for s in found]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines)


def excess() -> str:
    """Held-out loss of dedicated networks and of the any-schedule network, mean over seeds."""
    path = RESULTS / "fashion-own-loss.json"
    if not path.is_file():
        return NOT_RUN
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


def any_schedule() -> str:
    """Samples of the any-schedule networks beside those of dedicated ones, by schedule."""
    from predict import FILE

    networks = json.loads(FILE.read_text())["networks"] if FILE.is_file() else {}
    rows, arms = rows_of(*GRID), list(next(iter(networks.values()), ()))
    head = ["schedule", "dedicated", "seeds", "any-schedule", "seeds", "any / dedicated", "any / dedicated offset 0.3"]
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head))]
    offset = values(rows, "offset 0.3", SAMPLER, METRIC)
    key = "samples of the any-schedule network"
    for arm in sorted(arms, key=lambda arm: networks["0"][arm]["flow of texture"]):
        own = values(rows, arm, SAMPLER, METRIC)
        free = {int(seed): curves[arm][key] for seed, curves in networks.items()}
        cells = [arm, _mean(own), str(len(own)), _mean(free), str(len(free)), paired(free, own), paired(free, offset)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _mean(found: dict[int, float], digits: int = 2) -> str:
    return f"{sum(found.values()) / len(found):.{digits}f}" if found else "-"


def _share(found: dict[int, float]) -> str:
    return f"{sum(found.values()) / len(found):.3f}" if found else "-"


def page(text: str) -> str:
    """The page with every marked table made again."""
    made = {
        "grid": lambda: ratios(GRID, ("synchronous", "offset 0.3")),
        "free": lambda: ratios(("fashion-free",), ("synchronous", "offset 0.3")),
        "ablation": lambda: ratios((GRID[0], "fashion-ablation"), ("synchronous", "learned", "offset 0.3")),
        "effects": effects,
        "times": lambda: ratios(("fashion-times",), ("synchronous", "offset 0.3")),
        "tempo": tempo,
        "pairs": lambda: f"{pair_table(rows_of('pairs'))}\n\n{ranks(rows_of('pairs'))}",
        "learned": lambda: (
            learned_table(rows_of("pairs"), rows_of("pairs-learned")) if rows_of("pairs-learned") else NOT_RUN
        ),
        "clocks": lambda: clock_table(rows_of("pairs"), *CLOCKS) if rows_of("pairs") else NOT_RUN,
        "more": lambda: pair_table(rows_of("pairs-more"), (*PAIR_CURVES, "handover 0.9")),
        "search": lambda: curve_tables.search_table(rows_of("search")),
        "searched": lambda: curve_tables.trained_table(
            rows_of("fashion-searched"), {"offset 0.3": dedicated("labels"), "offset 0.3, none, uniform": uncorrected()}
        ),
        "handover": lambda: curve_tables.handover_table(rows_of("handover"), dedicated),
        "focus": lambda: curve_tables.focus_table(rows_of("focus"), rows_of("handover")),
        "ceiling": lambda: ceiling_tables.ceiling_table(rows_of("ceiling"), LIMITS),
        "texture": lambda: ceiling_tables.texture_table(rows_of("ceiling"), long_offsets()),
        "colours": lambda: ceiling_tables.ceiling_table(rows_of("ceiling-cifar"), LIMITS),
        "cifar": lambda: ceiling_tables.schedule_table(rows_of("ceiling-cifar"), "no labels", "second", COLOURED),
        "lengths": lengths,
        "fid": fid,
        "predictors": predictors,
        "excess": excess,
        "any": any_schedule,
    }

    def fill(match: re.Match[str]) -> str:
        return f"<!-- {match[1]} -->\n\n{made[match[1]]()}\n\n<!-- end -->"

    return re.sub(r"<!-- (\w+) -->\n.*?<!-- end -->", fill, text, flags=re.DOTALL)


if __name__ == "__main__":
    fresh = {path: page(path.read_text()) for path in PAGES}
    if "--check" in sys.argv:
        sys.exit(any(path.read_text() != text for path, text in fresh.items()))
    for path, text in fresh.items():
        path.write_text(text)
    pictures.draw_offsets(rows_of(*GRID), PICTURES / "findings-offsets.png")
    pictures.draw_ratios(rows_of, PICTURES / "findings-ratios.png")
    pictures.draw_found(rows_of("search"), PICTURES / "findings-paths.png")
    print(*PAGES, sep="\n")
