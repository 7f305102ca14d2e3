"""Tables of ceilings: texture drawn beside known semantic latents (ceiling.py)."""

from collections.abc import Mapping, Sequence

from curve_tables import Found, Rows, cases, head_of, mean_of, row_of
from tables import paired

TRAINED = "trained"
LEVELS = {"clean": "clean", "level 0.9": "at 0.9", "level 0.5": "at 0.5", "nothing": "noise"}
"""Arms beside known semantic latents, and what the tables call them."""


def known(rows: Rows, case: str, arm: str, metric: str) -> Found:
    """A distance of an arm, by seed."""
    mine = [row for row in rows if row["case"] == case and row["arm"] == arm and metric in row["scores"]]
    return {row["seed"]: row["scores"][metric] for row in mine}


def ceiling_table(rows: Rows, metrics: Mapping[str, tuple[str, str]]) -> str:
    """The most that semantic latents can give to texture, by each of some metrics.

    metrics: what the table calls it -> its key in the scores, and how the names of the arms end.
    """
    head = ["networks", "metric", "seeds", "offset 0.3", "cascade / offset 0.3"]
    lines = head_of([*head, *(f"real, {shown} / offset 0.3" for shown in LEVELS.values())])
    for case in [case for case in cases(rows) if case != TRAINED]:
        for shown, (metric, end) in metrics.items():
            offset, *others = (known(rows, case, arm + end, metric) for arm in ("offset 0.3", "cascade", *LEVELS))
            if offset:
                ratios = [paired(other, offset) for other in others]
                lines.append(row_of([case, shown, str(len(offset)), mean_of(offset), *ratios]))
    return "\n".join(lines)


def texture_table(rows: Rows, bases: Mapping[str, tuple[str, Found]]) -> str:
    """Networks that only draw texture, beside networks trained for offset 0.3 (metric -> its name, their values)."""
    mine = [row for row in rows if row["case"] == TRAINED]
    lines = head_of(["metric", "seeds", "trained for offset 0.3", "texture only, beside real", "ratio"])
    for metric, (shown, base) in bases.items():
        found = {row["seed"]: row["scores"][metric] for row in mine if metric in row["scores"]}
        lines.append(
            row_of([shown, str(len(set(found) & set(base))), mean_of(base), mean_of(found), paired(found, base)])
        )
    return "\n".join(lines)


def schedule_table(rows: Rows, case: str, metric: str, names: Sequence[str]) -> str:
    """Some schedules in the networks of a case, over offset 0.3 and over one clock with the same solver."""
    lines = head_of(["schedule", "seeds", "distance", "of one clock", "of offset 0.3"])
    for name in names:
        end = ", accurate" if name.endswith(", accurate") else ""
        found, one, offset = (known(rows, case, arm, metric) for arm in (name, f"one clock{end}", f"offset 0.3{end}"))
        if found:
            lines.append(row_of([name, str(len(found)), mean_of(found), paired(found, one), paired(found, offset)]))
    return "\n".join(lines)
