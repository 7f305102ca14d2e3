"""Tables of the study of pairs (pairs.py)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scipy.stats import spearmanr
from tables import interval, paired, ratio

Rows = Sequence[Mapping[str, Any]]
PAIR_CURVES = ("offset 0.15", "offset 0.3", "offset 0.6", "texture first 0.3")
LEARNED = ("weakest", "chosen", "tau^2")
"""The curves of pairs-learned.yaml."""


def distances(rows: Rows, pair: str, schedule: str) -> dict[int, float]:
    """Fréchet distances of a pair under a schedule, by seed."""
    mine = [row for row in rows if row["pair"] == pair and schedule in row["schedules"]]
    return {row["seed"]: row["schedules"][schedule]["frechet"]["value"] for row in mine}


def promised(rows: Rows, pair: str, semantic: bool) -> list[float]:
    """The share of the flow loss that the surfaces promise if semantic, or texture, goes first; one for each seed."""
    mine = [row["potential"] for row in rows if row["pair"] == pair and "potential" in row]
    return [gain["share"] for gains in mine for lead, gain in gains.items() if (lead != "texture") == semantic]


def pair_table(rows: Rows, curves: Sequence[str] = PAIR_CURVES) -> str:
    """Each pair: what its surfaces promise in either order, and the distance under each schedule over one clock."""
    head = ["pair", "seeds", "promised, semantic first", "promised, texture first", "one clock", *curves]
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head))]
    for pair in dict.fromkeys(row["pair"] for row in rows if "potential" in row):
        one = distances(rows, pair, "synchronous")
        cells = [pair, str(len(one)), *(_percent(promised(rows, pair, semantic)) for semantic in (True, False))]
        cells.append(f"{sum(one.values()) / len(one):.2f}")
        lines.append("| " + " | ".join([*cells, *(paired(distances(rows, pair, c), one) for c in curves)]) + " |")
    return "\n".join(lines)


def ranks(rows: Rows) -> str:
    """How well promises rank effects, in a sentence."""
    return f"Rank correlation of promise and ratio of offset 0.3: {ranks_agree(rows):.2f}."


def learned_table(rows: Rows, learned: Rows) -> str:
    """What each pair learned (pairs_learned.py): clocks halfway (over seeds), and distances over offset 0.3."""
    head = [
        "pair",
        "seeds",
        "clocks at tau = 0.5",
        *(f"{name} / offset 0.3" for name in LEARNED),
        "weakest / one clock",
    ]
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head))]
    for pair in dict.fromkeys(row["pair"] for row in learned):
        found = {name: distances(learned, pair, name) for name in LEARNED}
        seeds = [row for row in learned if row["pair"] == pair]
        halves = [row["clocks"]["weakest"]["0.5"] for row in seeds if "weakest" in row["clocks"]]
        clocks = ", ".join(_range(column) for column in zip(*halves, strict=True)) or "-"
        offset, one = (distances(rows, pair, name) for name in ("offset 0.3", "synchronous"))
        cells = [pair, str(len(seeds)), clocks, *(paired(found[name], offset) for name in LEARNED)]
        lines.append("| " + " | ".join([*cells, paired(found["weakest"], one)]) + " |")
    return "\n".join(lines)


def clock_table(rows: Rows, three: str, two: str) -> str:
    """Three clocks beside two: distances, and ratios to one clock; then the comparison of the protocol."""
    head = ["groups", "schedule", "seeds", "Fréchet", "of one clock"]
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head))]
    for pair in (two, three):
        one = distances(rows, pair, "synchronous")
        for schedule in schedules(rows, pair):
            found = distances(rows, pair, schedule)
            cells = [pair, schedule, str(len(found)), f"{sum(found.values()) / len(found):.2f}", paired(found, one)]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + f"\n\n{third_clock(rows, three, two)}"


def schedules(rows: Rows, pair: str) -> list[str]:
    """The schedules that a pair was sampled under."""
    return list(dict.fromkeys(name for row in rows if row["pair"] == pair for name in row["schedules"]))


def third_clock(rows: Rows, three: str, two: str, chosen_on: int = 0) -> str:
    """The best schedule of each, chosen on one seed, compared on the others."""
    best = {
        pair: min(schedules(rows, pair), key=lambda name: distances(rows, pair, name).get(chosen_on, math.inf))
        for pair in (three, two)
    }
    mine, theirs = (
        {seed: value for seed, value in distances(rows, pair, name).items() if seed != chosen_on}
        for pair, name in best.items()
    )
    return (
        f"Best on seed {chosen_on}: {best[three]} with three clocks, {best[two]} with two.\n"
        f"On the other seeds, three over two: {paired(mine, theirs)}."
    )


def ranks_agree(rows: Rows) -> float:
    """Spearman's correlation over pairs of what semantic first promises and the ratio of offset 0.3 to one clock."""
    pairs = list(dict.fromkeys(row["pair"] for row in rows if "potential" in row))
    promises = [sum(promised(rows, pair, True)) / len(promised(rows, pair, True)) for pair in pairs]
    effects = [ratio(distances(rows, pair, "offset 0.3"), distances(rows, pair, "synchronous"))[0] for pair in pairs]
    return float(spearmanr(promises, effects).statistic)


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def _percent(shares: Sequence[float]) -> str:
    mean, half = interval(shares)
    return f"{mean:.2%}" + (f" ± {half:.2%}" if len(shares) > 1 else "")
