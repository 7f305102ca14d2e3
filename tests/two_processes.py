"""One of two processes: runs every check of test_parallel.py, and writes what it saw: `python two_processes.py OUT`.

One launch for all checks, because starting two processes takes longer than the checks.
"""

import json
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import torch

from audits import Copies, Kinds, collectives
from lwd.latents.batch import Batch
from lwd.models import layers
from lwd.training import train as stage
from lwd.training.devices import Devices
from lwd.training.journal import read_metrics
from lwd.training.task import RunOptions
from lwd.training.train import train
from lwd.training.trainer import Trainer
from train_data import images, settings

BLOCKS = 3


class WithFeatures:
    """Latents with alignment targets: a fixed function of the latents."""

    def __init__(self, data):
        self.data = data

    def __getattr__(self, name):
        return getattr(self.data, name)

    def batch(self, *args):
        found = self.data.batch(*args)
        features = found.latents.repeat(1, 128, 1, 1).cumsum(1)
        return Batch(found.latents, found.labels, found.index, features)


def losses(out, devices, data=None, **changes):
    """The losses of a short run."""
    network = {"depth": BLOCKS} | changes.pop("network", {})
    run = {"steps": 4, "save_every": 2} | changes.pop("run", {})
    train(settings(network=network, run=run, **changes), data or images(), out, RunOptions(devices))
    devices.wait()
    return [line["total"] for line in read_metrics(out / "metrics.jsonl")]


def counted(out, devices):
    """Collectives of a step after the first."""
    seen, advance = {}, Trainer.advance

    def audited(trainer):
        with Kinds() as seen[trainer.step + 1]:
            advance(trainer)

    Trainer.advance = audited
    try:
        losses(out, devices)
    finally:
        Trainer.advance = advance
    return collectives(seen[3])


def alive(out, devices):
    """Bytes of bf16 weights after a forward pass of eight blocks, and of one block's."""
    shape, seen, mode = {"depth": 8, "width": 64}, [], None

    class Watched(Trainer):
        def losses(self, batch, draws):
            with mode:
                found = super().losses(batch, draws)
            seen.append(mode.bytes())
            return found

    block = stage.build_network(settings(network=shape), images()).blocks[0]
    sizes = [p.numel() for part in (block.attn, block.mlp) for p in part.parameters() if p.ndim == 2]
    mode = Copies(set(sizes))
    stage.Trainer, kept = Watched, stage.Trainer
    try:
        losses(out, devices, network=shape, run={"batch": 40})  # no activation is as large as a weight
    finally:
        stage.Trainer = kept
    return {"bytes": seen, "block": 2 * sum(sizes)}


def compiled(out, devices):
    """Three steps, compiled in full graphs; the number of graphs without and with recomputation."""
    layers.BACKEND = "aot_eager"
    graphs = []
    for again in (False, True):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        losses(out / str(again), devices, network={"compile": True, "recompute": again}, run={"steps": 3})
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    return graphs


def main(out):
    everywhere = {"network": {"tap": 1, "recompute": True}, "objective": {"align": 0.5}, "optimizer": {"clip": 0.05}}
    found = {}
    for parallel in ("ddp", "fsdp2"):
        exact, mixed = Devices("fp32", parallel, cpu=True), Devices("bf16", parallel, cpu=True)
        here = out / parallel
        found[parallel] = {
            "clip, recompute, REPA": losses(here / "all", exact, WithFeatures(images()), **everywhere),
            "bf16": losses(here / "bf16", mixed),
            "collectives": counted(here / "counted", mixed),
            "compiled": compiled(here / "compiled", mixed),
        }
        found[parallel]["alive"] = alive(here / "alive", mixed)
    if exact.main:
        (out / "found.json").write_text(json.dumps(found))
    exact.wait()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
