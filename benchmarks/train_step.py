"""The parts of a training step, and its overhead over forward and backward of the bare network.

    python benchmarks/train_step.py [--json] [--size small B/1] [--rounds 5] [--cpu]

`bare` is the same network on a preloaded batch: velocity, mean squared error, backward. `step` is Trainer.advance:
reading, noise, schedule, objective, backward, checks, AdamW, EMA. Both alternate in one process; the overhead is
median step / median bare - 1. `probe` is the same step with a learned schedule, `compiled` the same step with compiled
blocks, as multiples of Stage II's. --cpu measures the overhead alone, in CPU time of one thread, which other jobs on
the machine disturb less than wall time.
"""

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from lwd.groups import Layout
from lwd.latents.memory import MemoryReader
from lwd.objective import FlowObjective
from lwd.schedule.fixed import Offset
from lwd.schedule.learned import Polynomial
from lwd.training.config import Config, config_from_dict
from lwd.training.devices import Devices
from lwd.training.rho import RhoProbe
from lwd.training.task import RunOptions, Task
from lwd.training.train import build_network
from lwd.training.trainer import Trainer

SETTINGS: dict[str, dict[str, Any]] = {
    "small": {
        "layout": Layout.of(texture=16, semantic=16),
        "side": 8,
        "batch": 128,
        "network": {"patch": 2},
        "inner": 8,
    },
    "B/1": {
        "layout": Layout.of(texture=32, semantic=16),
        "side": 16,
        "batch": 4,
        "network": {"size": "B/1"},
        "inner": 1,
    },
}


def build(name: str, out: str, probe: bool, compiled: bool = False) -> Trainer:
    """Build a trainer on random latents, with the network of a preset."""
    s = SETTINGS[name]
    network = s["network"] | {"compile": compiled}
    run = {"batch": s["batch"], "steps": 10**6, "save_every": 10**9, "label_drop": 0.1}
    config: Config = config_from_dict({"network": network, "run": run, "objective": {"cosine": 1.0}})
    layout, side = s["layout"], s["side"]
    latents = torch.randn(4 * s["batch"], layout.channels, side, side)
    data = MemoryReader(latents, torch.arange(len(latents)) % 10, layout)
    objective = FlowObjective(layout, cosine=0.0 if probe else 1.0, kinetic=0.04 if probe else 0.0)
    schedule = Polynomial() if probe else Offset(0.3)
    rho = RhoProbe(schedule) if isinstance(schedule, Polynomial) else None
    task = Task(build_network(config, data), objective, schedule, rho)
    return Trainer(config, data, out, task, RunOptions(Devices(cpu=True)))


def bare(trainer: Trainer) -> float:
    """Return the seconds of forward and backward alone."""
    batch = trainer.data.batch(0, trainer.config.run.batch, 0)
    times = torch.rand(len(batch.labels), 2)
    trainer.optimizer.zero_grad()
    start = time.perf_counter()
    (trainer.network(batch.latents, times, batch.labels) - batch.latents).square().mean().backward()
    return time.perf_counter() - start


def in_cpu_time(name: str, rounds: int) -> dict[str, float]:
    """Measure the overhead in CPU time of one thread."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as out:
        trainer = build(name, out, False)
        alone: list[float] = []
        step: list[float] = []
        for _ in range(rounds * SETTINGS[name]["inner"]):
            for function, found in ((bare, alone), (Trainer.advance, step)):
                start = time.process_time()
                function(trainer)
                found.append(time.process_time() - start)
    overhead = median(step[2:]) / median(alone[2:]) - 1
    print(f"{name}: {median(step[2:]):.3f} s of CPU time per step, overhead {100 * overhead:.1f}% ({len(step)} steps)")
    return {f"{name} overhead, CPU": round(overhead, 3)}


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    value = function()
    return time.perf_counter() - start, value


def parts(trainer: Trainer) -> dict[str, float]:
    """Measure one step, part by part."""
    data, batches = timed(trainer._fetch)
    trainer.optimizer.zero_grad()
    draws, drawn = timed(lambda: trainer._draws(0, len(batches[0].labels)))
    forward, losses = timed(lambda: trainer.losses(batches[0], drawn))
    backward, _ = timed(losses.total.backward)
    guard, _ = timed(trainer._norm)
    optimizer, _ = timed(trainer.optimizer.step)
    ema, _ = timed(lambda: trainer.ema.update(1))
    return {"data and draws": data + draws, "forward": forward, "backward": backward, "guard": guard} | {
        "optimizer": optimizer,
        "EMA": ema,
    }


def measure(name: str, rounds: int) -> dict[str, float]:
    """Measure overhead, share of each part, factors of probe and compilation, and peak memory of one network."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two, tempfile.TemporaryDirectory() as c:
        trainer, prober, fast = build(name, one, False), build(name, two, True), build(name, c, False, True)
        for warm in (trainer, prober, fast):
            bare(warm)
            warm.advance()
        alone, step, probing, compiled, split = [], [], [], [], []
        for _ in range(rounds * SETTINGS[name]["inner"]):
            alone.append(bare(trainer))
            step.append(timed(trainer.advance)[0])
            probing.append(timed(prober.advance)[0])
            compiled.append(timed(fast.advance)[0])
            split.append(parts(trainer))
    medians = {key: median(part[key] for part in split) for key in split[0]}
    total, overhead, factor = sum(medians.values()), median(step) / median(alone) - 1, median(probing) / median(step)
    shares = ", ".join(f"{key} {100 * value / total:.1f}%" for key, value in medians.items())
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{name}: {total:.3f} s per step ({shares})")
    print(
        f"{name}: overhead beyond forward + backward {100 * overhead:.1f}% (medians of {len(step)} alternating steps)"
    )
    gain = median(compiled) / median(step)
    print(f"{name}: a probe's step is {factor:.2f} of a training step, a compiled step {gain:.2f}")
    print(f"{name}: peak memory so far {memory:.2f} GiB, three trainers")
    ratios = {"overhead": overhead, "probe over train": factor, "compiled over eager": gain}
    return {f"{name} {key}": round(value, 3) for key, value in ratios.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the ratios as one JSON object on the last line")
    parser.add_argument("--size", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--rounds", type=int, default=5, help="alternating rounds (default 5)")
    parser.add_argument("--cpu", action="store_true", help="only the overhead, in CPU time of one thread")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    results: dict[str, float] = {}
    for name in arguments.size:
        results |= (in_cpu_time if arguments.cpu else measure)(name, arguments.rounds)
    if arguments.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
