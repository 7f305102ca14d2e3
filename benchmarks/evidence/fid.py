"""FID of the networks of a study. The protocol is fid.yaml.

    python benchmarks/evidence/fid.py RUNS --out DIR [--limit N]

RUNS is the directory of the study's runs (`--out` of study.py); DIR holds the samples, and a killed run
continues. Results go to results/fid.json. Needs `lwd data fetch` of inception and efficientnet-lite0; about 20 minutes
for each network on one core.
"""

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import torch
import yaml
from study import RESULTS, slug

from lwd.evaluation.evaluate import evaluate
from lwd.evaluation.settings import EvaluateSettings
from lwd.io.files import write_json
from lwd.sampling.generator import open_generator
from lwd.sampling.samples import generate
from lwd.sampling.settings import SampleSettings
from lwd.version import __version__

PATH = Path(__file__).parent / "fid.yaml"
PROTOCOL = yaml.safe_load(PATH.read_text())
FILE = RESULTS / "fid.json"


def runs() -> list[tuple[int, str]]:
    """All networks, in the order of the protocol."""
    return [(seed, arm) for arms in (PROTOCOL["arms"], PROTOCOL["later"]) for seed in PROTOCOL["seeds"] for arm in arms]


def run(arm: str, seed: int, trained: Path, out: Path) -> dict[str, Any]:
    """Sample and score one network."""
    name = f"{slug(arm)}-seed{seed}"
    settings = {"kinds": ("npz",), "threads": 1, "batch": 100, "seed": 2 * 10**6} | PROTOCOL["samples"]
    model = trained / name / "train" / "kept" / f"{PROTOCOL['at']:08d}"
    generate(open_generator(model, SampleSettings(**settings), None, "fashion", "cpu"), out / name)
    scoring = EvaluateSettings(encoder=PROTOCOL["encoder"], threads=1)
    scores, _ = evaluate(out / name, PROTOCOL["reference"], scoring, device="cpu")
    if "fid" not in scores.metrics:
        raise SystemExit(f"no FID: {scores.unavailable['fid']}")
    metrics = {name: {"value": m.value, "error": m.error} for name, m in scores.metrics.items()}
    return {"arm": arm, "seed": seed, "steps": PROTOCOL["at"], "metrics": {"16 evaluations": metrics}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=10**9, help="stop after this many networks")
    a = parser.parse_args()
    rows = json.loads(FILE.read_text())["rows"] if FILE.is_file() else []
    done = {(row["seed"], row["arm"]) for row in rows}
    for seed, arm in [one for one in runs() if one not in done][: a.limit]:
        rows.append(run(arm, seed, a.runs, a.out))
        print(json.dumps(rows[-1]), flush=True)
        about = {"study": "fid", "protocol": hashlib.sha256(PATH.read_bytes()).hexdigest()}
        write_json(FILE, about | {"versions": {"lwd": __version__, "torch": torch.__version__}, "rows": rows})


if __name__ == "__main__":
    main()
