"""Tables of studies: means over seeds with standard errors, and paired ratios to the baseline with intervals."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""Two-sided 95% quantiles of Student's t."""


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half-width of its 95% interval; infinite for a single value."""
    n = len(values)
    mean = sum(values) / n
    if n < 2:
        return mean, math.inf
    error = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1) / n)
    return mean, T95.get(n - 1, 1.96) * error


def ratio(arm: Mapping[int, float], base: Mapping[int, float]) -> tuple[float, float, float]:
    """Geometric mean over shared seeds of arm / base, with its 95% interval."""
    shared = sorted(set(arm) & set(base))
    mean, half = interval([math.log(arm[seed] / base[seed]) for seed in shared])
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def paired(mine: Mapping[int, float], theirs: Mapping[int, float]) -> str:
    """The ratio over shared seeds, with its interval."""
    shared = set(mine) & set(theirs)
    if not shared or mine == theirs:
        return "-"
    middle, low, high = ratio(mine, theirs)
    return f"{middle:.3f} [{low:.3f}, {high:.3f}]" if len(shared) > 1 else f"{middle:.3f} (one seed)"


def values(rows: Sequence[Mapping[str, Any]], arm: str, sampler: str, metric: str) -> dict[int, float]:
    """The metric of an arm by seed."""
    found = [row for row in rows if row["arm"] == arm and metric in row["metrics"].get(sampler, {})]
    return {row["seed"]: row["metrics"][sampler][metric]["value"] for row in found}


def table(results: Mapping[str, Any], protocol: Mapping[str, Any]) -> str:
    """Markdown: a row for each arm and sampler."""
    rows, base = results["rows"], protocol["baseline"]
    lines = ["| schedule | sampler | seeds | Fréchet | of " + base + " (95%) | KID | accuracy | precision | recall |"]
    lines.append("| " + " | ".join(["---"] * 9) + " |")
    for sampler in protocol["samples"]:
        reference = values(rows, base, sampler, "frechet")
        for arm in protocol["arms"]:
            frechet = values(rows, arm, sampler, "frechet")
            if not frechet:
                continue
            against = "-"
            if arm != base and set(frechet) & set(reference):
                middle, low, high = ratio(frechet, reference)
                against = f"{middle:.3f} [{low:.3f}, {high:.3f}]"
            cells = [arm, sampler, str(len(frechet)), _mean(frechet, 2), against]
            cells += [_mean(values(rows, arm, sampler, m), 4) for m in ("kid", "accuracy", "precision", "recall")]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _mean(found: Mapping[int, float], digits: int) -> str:
    if not found:
        return "-"
    mean, half = interval(list(found.values()))
    return f"{mean:.{digits}f}" + (f" ± {half / T95.get(len(found) - 1, 1.96):.{digits}f}" if len(found) > 1 else "")
