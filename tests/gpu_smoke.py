"""The first minutes on a GPU: some steps without a single wait, a save, a resumption, samples; beside the plan.

    python tests/gpu_smoke.py OUT [PRESET]            (make test-gpu runs it with lwd-xl)

torchrun works as well. Latents and features are random: speed and memory do not depend on them.
"""

import json
import sys
from contextlib import contextmanager
from pathlib import Path

import torch

import lwd
from lwd.latents.batch import Batch
from lwd.training.config import load_config, with_changes
from lwd.training.devices import Devices
from lwd.training.journal import read_metrics
from lwd.training.plan import plan
from lwd.training.plan_settings import PlanSettings
from lwd.training.task import RunOptions
from lwd.training.train import train
from lwd.training.trainer import Trainer

STEPS, MORE, SAMPLES = 50, 5, 64


class RandomLatents:
    """Random latents of a layout, with alignment features."""

    def __init__(self, layout, side, features, classes=1000, count=512):
        latents = torch.randn(count, layout.channels, side, side, generator=torch.Generator().manual_seed(0))
        self.inner = lwd.MemoryReader(latents, torch.arange(count) % classes, layout, classes=classes)
        self.targets = torch.randn(32, features, side, side, dtype=torch.float16) if features else None

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def batch(self, *args):
        found = self.inner.batch(*args)
        features = None if self.targets is None else self.targets[found.index % len(self.targets)].float()
        return Batch(found.latents, found.labels, found.index, features)


@contextmanager
def without_waits(mode):
    """Run every step after the third under a mode that fails if the step waits for the device."""
    advance = Trainer.advance

    def strict(trainer):
        if trainer.step < 3:  # caches, compilation and the optimizer's state
            return advance(trainer)
        with mode():
            return advance(trainer)

    Trainer.advance = strict
    try:
        yield
    finally:
        Trainer.advance = advance


@contextmanager
def cuda_errors():
    """CUDA's own check."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def smoke(out, config, data, devices, mode, settings):
    """Train, save, resume, sample; return what was measured and what `lwd plan` predicts."""
    run = {"steps": STEPS, "log_every": 10, "save_every": STEPS, "sample_every": 0, "keep_at": ()}
    config = with_changes(config, run=run)
    with without_waits(mode):
        first = train(config, data, out, RunOptions(devices))
    again = train(with_changes(config, run={"steps": STEPS + MORE}), data, out, RunOptions(devices))
    lines = read_metrics(Path(out) / "metrics.jsonl")
    predicted = plan(config, settings)
    way = next(w for w in predicted.ways if (w.parallel, w.recompute) == ("ddp", config.network.recompute))
    model = lwd.load(out, devices.device)
    labels = [i % model.config.classes for i in range(SAMPLES)]
    where = {"size": tuple(data.size), "device": devices.device, "labels": labels, "seeds": range(SAMPLES)}
    z = lwd.sample(model.velocity, model.schedule, model.layout, method="heun", steps=4, **where).z
    return {
        "steps": [first.step, again.step],
        "losses finite": all(torch.isfinite(torch.tensor(line["total"])).item() for line in lines),
        "samples finite": bool(torch.isfinite(z).all()),
        "samples": len(z),
        "steps per second": lines[-2]["steps per second"],
        "MFU": lines[-2].get("MFU"),
        "data wait": lines[-2]["data wait"],
        "peak memory, GB": lines[-2]["peak memory"] / 1e9,
        "planned memory, GB": way.total / 1e9,
    }


def main(out, preset):
    devices = Devices()
    share = 32 * devices.world  # images per step: 32 on each GPU, as 256 on eight
    changes = [f"run.batch={share}", "schedule=offset:0.3"]
    config = load_config(preset, changes)
    settings = PlanSettings(gpus=devices.world, memory=torch.cuda.get_device_properties(0).total_memory / 1e9)
    data = RandomLatents(lwd.Layout.of(texture=32, semantic=16), 16, 768 if config.objective.align else 0)
    found = smoke(out, config, data, devices, cuda_errors, settings)
    if devices.main:
        print(json.dumps(found, indent=2))
    return found


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "lwd-xl")
