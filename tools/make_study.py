"""Summarise the studies of Fashion-MNIST for the demo: src/lwd/assets/fashion/study.json.

python tools/make_study.py
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "evidence"))

from tables import ratio, values  # noqa: E402

BASE, SAMPLER = "synchronous", "accurate"
SHORT, ABLATION = "fashion-short", "fashion-ablation"
CELLS = {"learned, none, uniform": "learned without rate correction"}
"""Cells of the ablation with the same times; on one clock, the base, there is nothing to correct."""
OUT = ROOT / "src" / "lwd" / "assets" / "fashion" / "study.json"


def summary() -> dict[str, Any]:
    """Ratios of Fréchet distances to one clock, with 95% intervals over training seeds."""
    found = {name: json.loads((ROOT / "results" / f"{name}.json").read_text())["rows"] for name in (SHORT, ABLATION)}
    protocol = yaml.safe_load((ROOT / "benchmarks" / "evidence" / f"{SHORT}.yaml").read_text())
    base = values(found[SHORT], BASE, SAMPLER, "frechet")
    named = [(SHORT, arm, arm) for arm in protocol["arms"] if arm != BASE]
    arms = {}
    for study, arm, name in [*named, *((ABLATION, arm, name) for arm, name in CELLS.items())]:
        mine = values(found[study], arm, SAMPLER, "frechet")
        middle, low, high = (round(x, 4) for x in ratio(mine, base))
        arms[name] = {"ratio": middle, "low": low, "high": high, "seeds": len(set(mine) & set(base))}
    steps = next(row["steps"] for row in found[SHORT])
    return {
        "format": "lwd.study",
        "version": 1,
        "source": f"results/{SHORT}.json, results/{ABLATION}.json",
        "base": BASE,
        "steps": steps,
        "count": protocol["samples"][SAMPLER]["count"],
        "arms": arms,
    }


if __name__ == "__main__":
    OUT.write_text(json.dumps(summary(), indent=1) + "\n")
    print(OUT)
