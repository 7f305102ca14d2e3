"""Tables of curves in networks that work under every schedule (search.py, handover.py)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tables import paired, values

Rows = Sequence[Mapping[str, Any]]
Found = dict[int, float]
SECOND = "second judge"
SHOWN = {f"handover {time}": f"cascade:{time}" for time in (0.8, 0.9)}
"""What users write for the curves of handover.yaml."""
BASES = ("offset 0.3", "one clock", "network trained for offset 0.3")


def scores(rows: Rows, case: str, name: str, part: str, metric: str = "frechet") -> Found:
    """A metric of a curve in the networks of a case, by seed."""
    mine = [row for row in rows if row["case"] == case and metric in row[part].get(name, {})]
    return {row["seed"]: row[part][name][metric]["value"] for row in mine}


def cases(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["case"] for row in rows))


def better_start(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of the search, with the result of its second start if that is better on the samples of the search."""
    again = row.get("again")
    if again is None or again["searched"]["best"] >= row["searched"]["best"]:
        return row
    return {**row, "leads": again["leads"], "fresh": {**row["fresh"], "best": again["fresh"]["best"]}}


def search_table(rows: Rows) -> str:
    """The best path that the search found, on fresh noise."""
    head = ["networks", "seeds", "one clock", "offset 0.3", "best", "best / offset 0.3", "best / one clock"]
    head += ["path of seed 0, in all / offset 0.3", "second judge: best / offset 0.3"]
    lines = head_of(head)
    for case in cases(rows):
        one, offset, best, carried = (
            scores(rows, case, name, "fresh") for name in ("synchronous", "offset 0.3", "best", "best of seed 0")
        )
        carried |= {0: best[0]} if 0 in best else {}  # its own path, on fresh noise
        second = [scores(rows, case, name, "fresh", SECOND) for name in ("best", "offset 0.3")]
        cells = [case, str(len(best)), *(mean_of(found) for found in (one, offset, best))]
        lines.append(
            row_of([*cells, paired(best, offset), paired(best, one), paired(carried, offset), paired(*second)])
        )
    return "\n".join(lines)


def handover_table(rows: Rows, dedicated: Callable[[str], Found]) -> str:
    """Curves in the networks of each case; `dedicated` gives the networks that were trained for offset 0.3."""
    names = ("one clock", "offset 0.3", "handover 0.8", "handover 0.9", "cascade")
    lines = head_of(
        ["networks", "seeds", *(SHOWN.get(name, name) for name in names), *(f"cascade:0.9 / {base}" for base in BASES)]
    )
    for case in cases(rows):
        found = {name: scores(rows, case, name, "schedules") for name in names}
        mine = found["handover 0.9"]
        cells = [case, str(len(mine)), *(mean_of(found[name]) for name in names)]
        bases = (found["offset 0.3"], found["one clock"], dedicated(case))
        lines.append(row_of([*cells, *(paired(mine, base) for base in bases)]))
    return "\n".join(lines)


def focus_table(rows: Rows, plain: Rows) -> str:
    """Half of the times on the curve, against none."""
    lines = head_of(["networks", "seeds", "curve", "half on cascade:0.9", "no focus", "focus / no focus"])
    for case in cases(rows):
        for name in ("offset 0.3", "handover 0.9"):
            mine, base = (
                scores(rows, case, name, "schedules"),
                scores(plain, case.removesuffix(" focus"), name, "schedules"),
            )
            lines.append(
                row_of([case, str(len(mine)), SHOWN.get(name, name), mean_of(mine), mean_of(base), paired(mine, base)])
            )
    return "\n".join(lines)


def trained_table(rows: Rows, bases: Mapping[str, Found]) -> str:
    """Networks that were trained for the path of the search."""
    lines = head_of(["networks trained for", "seeds", "Fréchet", *(f"of {name}" for name in bases)])
    for arm in dict.fromkeys(str(row["arm"]) for row in rows):
        found = values(rows, arm, "accurate", "frechet")
        lines.append(row_of([arm, str(len(found)), mean_of(found), *(paired(found, base) for base in bases.values())]))
    return "\n".join(lines)


def head_of(names: Sequence[str]) -> list[str]:
    return [row_of(names), row_of(["---"] * len(names))]


def row_of(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def mean_of(found: Mapping[int, float]) -> str:
    return f"{sum(found.values()) / len(found):.2f}" if found else "-"
