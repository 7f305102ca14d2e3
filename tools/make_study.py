"""Summarise results/fashion-short.json for the demo: src/lwd/assets/fashion/study.json.

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

STUDY, BASE, SAMPLER = "fashion-short", "synchronous", "accurate"
OUT = ROOT / "src" / "lwd" / "assets" / "fashion" / "study.json"


def summary() -> dict[str, Any]:
    """Ratios of Fréchet distances to one clock, with 95% intervals over training seeds."""
    results = json.loads((ROOT / "results" / f"{STUDY}.json").read_text())
    protocol = yaml.safe_load((ROOT / "benchmarks" / "evidence" / f"{STUDY}.yaml").read_text())
    base = values(results["rows"], BASE, SAMPLER, "frechet")
    arms = {}
    for arm in protocol["arms"]:
        mine = values(results["rows"], arm, SAMPLER, "frechet")
        shared = sorted(set(mine) & set(base))
        if arm != BASE and len(shared) > 1:
            middle, low, high = (round(x, 4) for x in ratio(mine, base))
            arms[arm] = {"ratio": middle, "low": low, "high": high, "seeds": len(shared)}
    steps = next(row["steps"] for row in results["rows"])
    return {
        "format": "lwd.study",
        "version": 1,
        "source": f"results/{STUDY}.json",
        "base": BASE,
        "steps": steps,
        "count": protocol["samples"][SAMPLER]["count"],
        "arms": arms,
    }


if __name__ == "__main__":
    OUT.write_text(json.dumps(summary(), indent=1) + "\n")
    print(OUT)
