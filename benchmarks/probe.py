"""Schedules and cost of the surface probe and the joint probe, with the same number of steps.

    python benchmarks/probe.py [LATENTS] [--preset fashion-small] [--steps 300] [--kinetic 0.016,0.06] [--out DIR]

Without LATENTS: the embedded images. One surface probe, its lambda path, and a joint probe ("exact", starting at the
fraction --start of the way from the identity to the collapsed curve) for each lambda of --kinetic. Finished probes in
--out are reused; times are relative to one joint probe, and printed only if all probes ran in this process.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from lwd.latents.embedded import encode_embedded
from lwd.objective import FlowObjective
from lwd.probing.joint import probe
from lwd.probing.surface import surface_probe
from lwd.representations.texture import TextureAutoencoder
from lwd.schedule.learned import Polynomial
from lwd.surfaces.integral import path_objective
from lwd.surfaces.lambda_path import lambda_path, largest_gap, solve_for
from lwd.surfaces.table import smooth
from lwd.training.config import Config, load_config, with_changes
from lwd.training.devices import Devices
from lwd.training.task import RunOptions
from lwd.training.train import open_data


def embedded_latents(out: Path) -> Path:
    return encode_embedded("train", TextureAutoencoder.load("fashion"), out, "shipped")


def joint(config: Config, data: Any, out: Path, kinetic: float) -> tuple[Polynomial, float]:
    """Run a joint probe, independent of the surfaces, and measure its time."""
    started = time.perf_counter()
    config = with_changes(config, probe={"kinetic": kinetic})
    found = probe(config, data, out / f"joint-{kinetic:g}", RunOptions(Devices(cpu=True)))
    assert isinstance(found.schedule, Polynomial)
    return found.schedule, time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("latents", nargs="?", help="a directory of shards (default: the embedded images)")
    parser.add_argument("--preset", default="fashion-small")
    parser.add_argument("--steps", type=int, default=300, help="steps of every probe (default 300)")
    parser.add_argument("--kinetic", default="0.016,0.06", help="lambdas of the joint probes (default 0.016,0.06)")
    parser.add_argument("--rho-lr", type=float, default=0.1, help="learning rate of rho (default 0.1)")
    parser.add_argument("--start", type=float, default=0.5, help="initial curve: 0 identity to 1 collapsed")
    parser.add_argument("--out", help="directory to keep the probes in")
    parser.add_argument("--json", action="store_true", help="print the numbers as one JSON object on the last line")
    arguments = parser.parse_args()
    out = Path(arguments.out or tempfile.mkdtemp())
    steps = arguments.steps
    config = load_config(arguments.preset, [f"probe.steps={steps}", f"probe.burn_in={steps * 7 // 10}"])
    config = with_changes(
        config, probe={"rho_lr": arguments.rho_lr, "start": arguments.start}, optimizer={"decay": "constant"}
    )
    latents = arguments.latents or embedded_latents(out / "latents")
    data: Any = open_data(latents, config)
    kinetics = [float(part) for part in arguments.kinetic.split(",")]
    fresh = not any((out / name).exists() for name in ("surface", *(f"joint-{kinetic:g}" for kinetic in kinetics)))
    started = time.perf_counter()
    _, table = surface_probe(config, data, out / "surface", RunOptions(Devices(cpu=True)))
    probed = time.perf_counter() - started
    assert table is not None
    o = config.objective
    surfaces, objective = smooth(table), FlowObjective(data.layout, o.weights, o.reduction)
    started = time.perf_counter()
    path = lambda_path(Polynomial(), surfaces, objective)
    solved = time.perf_counter() - started
    print("| lambda | curve at 0.25, 0.5, 0.75 (surface) | (joint) | sup norm | J on the surfaces, surface | joint |")
    print("| --- | --- | --- | --- | --- | --- |")
    result: dict[str, float] = {}
    times = []
    tau = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    for kinetic in kinetics:
        mine = solve_for(kinetic, Polynomial(), surfaces, objective, [p.schedule for p in path.points])
        theirs, seconds = joint(config, data, out, kinetic)
        times.append(seconds)
        gap = result[f"gap at {kinetic:g}"] = largest_gap(mine.schedule, theirs)
        goal = FlowObjective(data.layout, o.weights, o.reduction, kinetic=kinetic)
        values = [float(path_objective(one, surfaces, goal).detach()) for one in (mine.schedule, theirs)]
        curves = [", ".join(f"{t:.3f}" for t in one.times(tau)[:, 0].tolist()) for one in (mine.schedule, theirs)]
        row = (f"{kinetic:g}", *curves, f"{gap:.3f}", *(f"{value:.4f}" for value in values))
        print("| " + " | ".join(row) + " |", flush=True)
    result |= {"steps, surface over joint": 1.0, "lambdas": len(path.points)}
    print(f"\n{len(path.points)} lambdas from {steps} steps, threshold {path.threshold}")
    if fresh:
        one = sum(times) / len(times)
        result |= {"surface probe over joint probe": probed / one, "lambda path over joint probe": solved / one}
        print(f"time: surface probe with its table {probed / one:.2f} of a joint probe, the path {solved / one:.2f}")
    if arguments.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
