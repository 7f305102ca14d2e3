"""FID of the networks of a study. The protocol is fid.yaml.

    python benchmarks/evidence/fid.py LATENTS --out DIR [--part K/N]

LATENTS are those of the study. Networks in results/fid.json are skipped. DIR holds networks and samples: what is there
is kept, and a killed run continues. Several processes may share DIR, each with its own part (`--part 1/2`). Needs `lwd
data fetch` of inception and efficientnet-lite0; about 20 minutes for each network on one core, and 40 minutes for the
reference.
"""

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import torch
import yaml
from study import RESULTS, Study, slug

from lwd.evaluation.evaluate import evaluate
from lwd.evaluation.settings import EvaluateSettings
from lwd.io.files import write_json
from lwd.sampling.generator import open_generator
from lwd.sampling.samples import generate
from lwd.sampling.settings import SampleSettings
from lwd.training.devices import Devices
from lwd.training.task import RunOptions
from lwd.training.train import train
from lwd.version import __version__

PATH = Path(__file__).parent / "fid.yaml"
PROTOCOL = yaml.safe_load(PATH.read_text())
FILE = RESULTS / "fid.json"


def runs() -> list[tuple[int, str]]:
    """All networks, in the order of the protocol."""
    return [(seed, arm) for arms in (PROTOCOL["arms"], PROTOCOL["later"]) for seed in PROTOCOL["seeds"] for arm in arms]


def run(study: Study, arm: str, seed: int) -> dict[str, Any]:
    """Train, sample and score one network."""
    out = study.out / f"{slug(arm)}-seed{seed}"
    model = out / "train" / "kept" / f"{PROTOCOL['at']:08d}"
    if not model.is_dir():
        train(study.config(arm, seed), study.latents, out / "train", RunOptions(Devices(cpu=True)))
    settings = {"kinds": ("npz",), "threads": 1, "batch": 100, "seed": 2 * 10**6} | PROTOCOL["samples"]
    generate(open_generator(model, SampleSettings(**settings), None, study.decoder, "cpu"), out / "samples")
    scoring = EvaluateSettings(encoder=PROTOCOL["encoder"], threads=1)
    scores, _ = evaluate(out / "samples", PROTOCOL["reference"], scoring, device="cpu")
    if "fid" not in scores.metrics:
        raise SystemExit(f"no FID: {scores.unavailable['fid']}")
    metrics = {name: {"value": m.value, "error": m.error} for name, m in scores.metrics.items()}
    return {"arm": arm, "seed": seed, "steps": PROTOCOL["at"], "metrics": {"16 evaluations": metrics}}


def collect(out: Path) -> None:
    """Write the rows that are in `out`, and those of earlier runs, to results/fid.json."""
    rows = json.loads(FILE.read_text())["rows"] if FILE.is_file() else []
    rows += [json.loads(path.read_text()) for path in out.glob("*/row.json")]
    known = {(row["seed"], row["arm"]): row for row in rows}
    about: dict[str, Any] = {"study": "fid", "protocol": hashlib.sha256(PATH.read_bytes()).hexdigest()}
    about |= {"versions": {"lwd": __version__, "torch": torch.__version__}}
    write_json(FILE, about | {"rows": [known[one] for one in runs() if one in known]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("latents", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", default="1/1", metavar="K/N", help="every N-th network, from the K-th on")
    a = parser.parse_args()
    study = Study(PATH.parent / f"{PROTOCOL['study']}.yaml", a.latents, a.out, "fashion")
    first, step = map(int, a.part.split("/"))
    rows = json.loads(FILE.read_text())["rows"] if FILE.is_file() else []
    done = {(row["seed"], row["arm"]) for row in rows}
    for seed, arm in [run for run in runs()[first - 1 :: step] if run not in done]:
        row = a.out / f"{slug(arm)}-seed{seed}" / "row.json"
        if not row.is_file():
            write_json(row, run(study, arm, seed))
            print(row.read_text(), flush=True)
        collect(a.out)


if __name__ == "__main__":
    main()
