"""Which pairs of representations pay, and does a third clock? The protocol is pairs.yaml.

    python benchmarks/evidence/pairs.py DIR [--limit N]

For each pair and seed: one network at independent times, its surfaces on held-out images, and its samples under every
schedule, scored by the judge. DIR holds latents and runs; what is there is kept, and a killed run continues. Results go
to results/pairs.json. Needs `lwd data fetch` of resnet50 and efficientnet-lite0; about two hours on one core.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from study import RESULTS, Judge, slug

from lwd.images.catalog import open_source
from lwd.images.sources import ImageSource, Subset
from lwd.io.files import write_json
from lwd.latents.encode import encode
from lwd.latents.encoders import Encoders
from lwd.latents.settings import EncodeSettings
from lwd.objective import FlowObjective
from lwd.probing.surface import surface_probe
from lwd.representations.encoders import load_encoder
from lwd.representations.fit import fit_pca
from lwd.representations.settings import FitSettings
from lwd.sampling.generator import open_generator
from lwd.sampling.samples import generate
from lwd.sampling.settings import SampleSettings
from lwd.schedule.base import Schedule
from lwd.schedule.fixed import PiecewiseLinear
from lwd.schedule.io import save_schedule
from lwd.surfaces.integral import path_terms
from lwd.surfaces.potential import potential
from lwd.surfaces.table import smooth
from lwd.training.config import load_config, with_changes
from lwd.training.devices import Devices
from lwd.training.task import RunOptions

PROTOCOL = yaml.safe_load((Path(__file__).parent / "pairs.yaml").read_text())
FILE = RESULTS / "pairs.json"
GRID, FITTED = (4, 4), 2000


def lagged(lags: list[float], groups: tuple[str, ...]) -> PiecewiseLinear:
    """Clocks of one speed; each starts after its lag."""
    span = 1 + max(lags)
    moments = sorted({x for lag in lags for x in (lag, 1 + lag)})
    rows = [[round(min(max(x - lag, 0.0), 1.0), 12) for x in moments] for lag in lags]  # exactly 1 at the end
    return PiecewiseLinear([x / span for x in moments], rows, groups)


def make_latents(out: Path) -> dict[str, Path]:
    """Fit the PCAs to training images, and encode training and held-out images with all encoders."""
    encoders = {name: about["encoder"] for name, about in PROTOCOL["encoders"].items()}
    train: ImageSource = open_source(PROTOCOL["images"])
    train = Subset(train, np.arange(0, len(train), PROTOCOL["every"]))
    for name, about in PROTOCOL["encoders"].items():
        if not (out / name / "config.json").is_file():
            few = Subset(train, np.arange(0, len(train), len(train) // FITTED))
            settings = FitSettings(channels=about["channels"], batch=50)
            fit_pca(few, load_encoder(about["encoder"]), GRID, out / name, settings)
    found = {}
    for part, source in (("latents", train), ("held-out", open_source(PROTOCOL["held_out"]))):
        loaded = Encoders.load(PROTOCOL["texture"], encoders, {name: str(out / name) for name in encoders})
        encode(source, out / part, loaded, EncodeSettings(batch=50, dtype="float16", threads=1))
        found[part] = out / part
    return found


def run(pair: str, seed: int, latents: dict[str, Path], out: Path, judge: Judge) -> dict[str, Any]:
    """Train, tabulate and sample one pair."""
    about = PROTOCOL["pairs"][pair]
    groups = tuple(about["groups"])
    changes = [*PROTOCOL["settings"], *about.get("settings", ()), f"run.seed={seed}", "run.sample_every=0"]
    config = load_config(PROTOCOL["preset"], changes).changed(groups=groups)
    points = {"points": 9, "samples": 512} if len(groups) == 2 else {"points": 6, "samples": 128}
    probe = {"steps": config.run.steps, "burn_in": 0, "held_out": str(latents["held-out"]), **points}
    options = RunOptions(Devices(cpu=True))
    _, table = surface_probe(with_changes(config, probe=probe), latents["latents"], out / "probe", options)
    if table is None:
        raise SystemExit("interrupted")
    row: dict[str, Any] = {"pair": pair, "seed": seed, "schedules": {}}
    if len(groups) == 2:
        gains = potential(table, FlowObjective(table.layout)).gains
        row["potential"] = {name: {"share": g.share, "error": g.error, "curve": g.curve} for name, g in gains.items()}
    for name, lags in PROTOCOL["schedules"][len(groups)].items():
        curve = lagged(lags, groups)
        flow = float(sum(path_terms(curve, smooth(table), FlowObjective(table.layout), 64)))
        row["schedules"][name] = {"flow": flow} | score_under(name, curve, out, judge)
    return row


def score_under(name: str, curve: Schedule, out: Path, judge: Judge) -> dict[str, Any]:
    """Samples of the network of a run under a schedule, scored by the judge."""
    file, folder = out / f"{slug(name)}.json", out / f"samples-{slug(name)}"
    save_schedule(curve, file)
    sampling = {"kinds": ("npz",), "threads": 1, "batch": 100, "seed": 10**6} | PROTOCOL["samples"]
    generate(open_generator(out / "probe", SampleSettings(**sampling), None, "fashion", "cpu", str(file)), folder)
    return judge(folder, False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--limit", type=int, default=10**9, help="stop after this many runs")
    a = parser.parse_args()
    rows = json.loads(FILE.read_text())["rows"] if FILE.is_file() else []
    done = {(row["seed"], row["pair"]) for row in rows}
    left = [(s, p) for s in PROTOCOL["seeds"] for p in PROTOCOL["pairs"] if (s, p) not in done]
    latents = make_latents(a.out)
    judge = Judge(PROTOCOL["judge"], PROTOCOL["reference"], "")
    for seed, pair in left[: a.limit]:
        rows.append(run(pair, seed, latents, a.out / f"{slug(pair)}-seed{seed}", judge))
        print(json.dumps(rows[-1]), flush=True)
        write_json(FILE, {"study": "pairs", "rows": rows})


if __name__ == "__main__":
    main()
