"""The benefit of `lwd train --init-from PROBE`: losses on held-out images by training steps.

    python benchmarks/init_from.py [--probe 1000] [--steps 500] [--schedule offset:0.3] [--json]

On the embedded images: a surface probe, then the same training under one schedule from its weights and from scratch,
with the same batches and noise. The loss is the flow loss of the averaged weights on the 2,000 embedded test images.
Both trainings see the same images in the same order; the training from scratch also runs for probe + steps, the total
cost of the other one.
"""

import argparse
import json
import tempfile
from pathlib import Path

import torch

from lwd.checkpoints.directory import load, locate
from lwd.latents.embedded import encode_embedded
from lwd.latents.reader import LatentReader
from lwd.objective import FlowObjective
from lwd.path import interpolate
from lwd.probing.surface import surface_probe
from lwd.representations.texture import TextureAutoencoder
from lwd.training.config import load_config, with_changes
from lwd.training.devices import Devices
from lwd.training.task import RunOptions
from lwd.training.train import train


@torch.no_grad()
def held_out(run: Path, test: LatentReader, batches: int = 16, size: int = 125) -> float:
    """Compute the flow loss of the newest averaged weights, with the same images, noise and times for every run."""
    checkpoint, total = load(locate(run)), 0.0
    objective, generator = FlowObjective(checkpoint.layout), torch.Generator().manual_seed(1)
    for number in range(batches):
        batch = test.batch(number, size, 0, 0, 1, False)
        noise = torch.randn(batch.latents.shape, generator=generator)
        tau = (torch.arange(size) + torch.rand(size, generator=generator)) / size
        times, rates = checkpoint.schedule.times(tau.double()), checkpoint.schedule.rates(tau.double())
        z, target = interpolate(batch.latents, noise, times.float(), checkpoint.layout)
        total += float(objective(checkpoint.velocity(z, times.float(), batch.labels), target, rates.float()).total)
    return total / batches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probe", type=int, default=1000, help="steps of the surface probe (default 1000)")
    parser.add_argument("--steps", type=int, default=500, help="steps from the probe's weights (default 500)")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--schedule", default="offset:0.3")
    parser.add_argument("--json", action="store_true", help="print the numbers as one JSON object on the last line")
    a = parser.parse_args()
    out, options = Path(tempfile.mkdtemp()), RunOptions(Devices(cpu=True))
    autoencoder = TextureAutoencoder.load("fashion")
    data = LatentReader(encode_embedded("train", autoencoder, out / "train", "shipped"))
    test = LatentReader(encode_embedded("test", autoencoder, out / "test", "shipped"), statistics=data.statistics)
    config = load_config("fashion-small", [f"run.batch={a.batch}", "run.sample_every=0", "optimizer.warmup=50"])
    config = config.changed(schedule=a.schedule)
    probe = {"steps": a.probe, "burn_in": 0, "points": 5, "samples": 32}
    surface_probe(with_changes(config, probe=probe), data, out / "probe", options)
    rows: dict[str, float] = {}
    train(with_changes(config, run={"steps": a.steps}), data, out / "from", options, init_from=out / "probe")
    rows[f"from the probe, {a.steps} steps"] = held_out(out / "from", test)
    for steps in (a.steps, a.probe, a.probe + a.steps):
        run = out / f"scratch-{steps}"  # each with its own learning rate decay
        train(with_changes(config, run={"steps": steps}), data, run, options)
        rows[f"from scratch, {steps} steps"] = held_out(run, test)
    print("| run | held-out flow loss |\n| --- | --- |")
    for name, value in rows.items():
        print(f"| {name} | {value:.4f} |")
    if a.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
