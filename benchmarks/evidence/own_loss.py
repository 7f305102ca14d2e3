"""Do independent local times under-train the curves that matter? (AsyncPatch, arXiv 2606.07079, says so.)

    python benchmarks/evidence/own_loss.py HELD_OUT --runs DIR [--table]

For every schedule of fashion-short and fashion-grid: the flow loss on held-out images along the curve, of the networks
trained on that curve alone, and of the any-schedule network (predict.py) of the same size and length. Both see
the same images, noise and times, so that the difference (the excess) is paired. If independent times starved the
diagonal, its excess would be above that of other curves. DIR holds the runs of the studies. Writes
results/fashion-own-loss.json.
"""

import argparse
import json
import math
from pathlib import Path

import torch
from study import RESULTS, Study, slug
from torch import Tensor

from lwd.checkpoints.directory import load, locate
from lwd.io.files import write_json
from lwd.latents.reader import LatentReader
from lwd.objective import FlowObjective
from lwd.path import Velocity, interpolate
from lwd.schedule.base import Schedule
from lwd.schedule.io import load_schedule

HERE = Path(__file__).parent
STUDIES = ("fashion-short", "fashion-grid")
FILE = RESULTS / "fashion-own-loss.json"
IMAGES, DRAWS = 500, 40
"""Images, and noises for each; times are stratified over all of them."""


@torch.no_grad()
def losses(velocity: Velocity, schedule: Schedule, data: Tensor, labels: Tensor, objective: FlowObjective) -> Tensor:
    """The flow loss of each image along the curve: (images,)."""
    generator, rows = torch.Generator().manual_seed(0), []
    for draw in range(DRAWS):
        noise = torch.randn(data.shape, generator=generator)
        tau = (torch.randperm(len(data), generator=generator) + (draw + 0.5) / DRAWS) / len(data)
        z, target = interpolate(data, noise, schedule.times(tau).detach(), objective.layout)
        found = velocity(z, schedule.times(tau).detach(), labels)
        errors = objective.layout.means((found - target).square())
        rows.append(objective.weigh(errors, errors, schedule.rates(tau).detach())[0].sum(1))
    return torch.stack(rows).mean(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("held_out", type=Path, nargs="?")
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--table", action="store_true", help="print the results")
    a = parser.parse_args()
    if not a.table:
        measure(a)
    print("| schedule | seed | own network | any-schedule network | excess ± error |\n| --- | --- | --- | --- | --- |")
    for row in json.loads(FILE.read_text())["rows"]:
        excess = f"{row['any'] - row['own']:.4f} ± {row['error']:.4f}"
        print(f"| {row['arm']} | {row['seed']} | {row['own']:.4f} | {row['any']:.4f} | {excess} |")


def measure(a: argparse.Namespace) -> None:
    """Write one row for each trained network; what was measured before is kept."""
    rows = json.loads(FILE.read_text())["rows"] if FILE.is_file() else []
    done = {(row["arm"], row["seed"]) for row in rows}
    free = load(locate(a.runs / "predictors" / "seed0" / "probe"))
    assert free.statistics is not None
    reader = LatentReader(a.held_out, free.layout.names, free.statistics)
    batch = reader.batch(0, IMAGES, 0, flip=False)
    objective = FlowObjective(free.layout)
    for name in STUDIES:
        study = Study(HERE / f"{name}.yaml", a.held_out, a.runs / name, "fashion")
        for seed, arm in study.arms():
            kept = study.out / f"{slug(arm)}-seed{seed}" / "train" / "kept"
            if (arm, seed) in done or not kept.is_dir():
                continue
            schedule = load_schedule(study.schedule(arm, free.layout.names))
            own = load(sorted(kept.iterdir())[-1])
            mine = losses(own.velocity, schedule, batch.latents, batch.labels, objective)
            other = losses(free.velocity, schedule, batch.latents, batch.labels, objective)
            row = {"arm": arm, "seed": seed, "own": float(mine.mean()), "any": float(other.mean())}
            rows.append(row | {"error": float((other - mine).std() / math.sqrt(len(mine)))})
            write_json(FILE, {"study": "fashion-own-loss", "images": IMAGES, "draws": DRAWS, "rows": rows})
            print(rows[-1], flush=True)


if __name__ == "__main__":
    main()
