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
SHORT = "fashion-short"
CELLS = {
    ("fashion-ablation", "learned, none, uniform"): "learned without rate correction",
    ("fashion-tempo", "synchronous, tempo of tau^2"): "one clock trained at tau^2",
}
"""Cells of other studies with the same settings, and what they are called."""
OUT = ROOT / "src" / "lwd" / "assets" / "fashion" / "study.json"


def summary() -> dict[str, Any]:
    """Ratios of Fréchet distances to one clock, with 95% intervals over training seeds."""
    studies = (SHORT, *(study for study, _ in CELLS))
    found = {name: json.loads((ROOT / "results" / f"{name}.json").read_text())["rows"] for name in studies}
    protocol = yaml.safe_load((ROOT / "benchmarks" / "evidence" / f"{SHORT}.yaml").read_text())
    base = values(found[SHORT], BASE, SAMPLER, "frechet")
    named = [(SHORT, arm, arm) for arm in protocol["arms"] if arm != BASE]
    arms = {}
    for study, arm, name in [*named, *((*key, name) for key, name in CELLS.items())]:
        mine = values(found[study], arm, SAMPLER, "frechet")
        middle, low, high = (round(x, 4) for x in ratio(mine, base))
        arms[name] = {"ratio": middle, "low": low, "high": high, "seeds": len(set(mine) & set(base))}
    steps = next(row["steps"] for row in found[SHORT])
    return {
        "format": "lwd.study",
        "version": 1,
        "source": ", ".join(f"results/{study}.json" for study in studies),
        "base": BASE,
        "steps": steps,
        "count": protocol["samples"][SAMPLER]["count"],
        "arms": arms,
    }


if __name__ == "__main__":
    OUT.write_text(json.dumps(summary(), indent=1) + "\n")
    print(OUT)
