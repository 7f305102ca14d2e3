"""Forward + backward of LightningDiT as a share of the matrix-multiply peak measured in the same run.

    python benchmarks/backbone.py [--json] [--eager] [--profile] [--quick]

The peak is the best of several square float32 products; the work of the network is 3 x 2 x (multiplications of its
linear layers and of attention), the usual count for a forward and a backward pass. Only ratios within one run count.
"""

import argparse
import json
import time
from collections.abc import Callable

import torch
from torch import Tensor

import lwd
from lwd.models.lightningdit import LightningDiT, LightningDiTConfig

LAYOUT = lwd.Layout.of(texture=32, semantic=16)
MODELS = {
    "B/1": (LightningDiTConfig.of("B/1", LAYOUT), 2),
    "small": (LightningDiTConfig(LAYOUT, depth=5, width=128, heads=4, classes=10, grid=(4, 4)), 128),
}


def best(work: Callable[[], object], seconds: float) -> float:
    """Return the shortest of repeated timings: on a shared machine, noise only adds time."""
    work()
    shortest, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        work()
        shortest = min(shortest, time.perf_counter() - start)
    return shortest


def peak(seconds: float) -> float:
    """Float operations per second of the best square matrix product."""
    rates = []
    for n in (512, 1024, 2048):
        a, b = torch.randn(n, n), torch.randn(n, n)
        rates.append(2 * n**3 / best(lambda a=a, b=b: a @ b, seconds))  # type: ignore[misc]
    return max(rates)


def operations(config: LightningDiTConfig, batch: int) -> float:
    """Float operations of the matrix products in one forward and backward pass."""
    tokens, d = config.grid[0] * config.grid[1] // config.patch**2, config.width
    per_token = config.depth * (4 * d * d + 3 * d * config.mlp_width + 2 * tokens * d) + 2 * d * LAYOUT.channels
    per_sample = config.depth * 6 * d * d + 4 * d * d
    return 3 * 2 * batch * (tokens * per_token + per_sample)


def step(config: LightningDiTConfig, batch: int, compile: bool) -> Callable[[], Tensor]:
    """One forward and backward pass with fixed inputs."""
    network = LightningDiT(config, compile=compile)
    z, times = torch.randn(batch, LAYOUT.channels, *config.grid), torch.rand(batch, 2)
    label = torch.zeros(batch, dtype=torch.int64)

    def run() -> Tensor:
        network.zero_grad(set_to_none=True)
        loss = network(z, times, label).square().mean()
        loss.backward()
        return loss

    return run


def profile(run: Callable[[], object], rows: int = 14) -> str:
    """Return a profile by operator."""
    with torch.profiler.profile() as recorded:
        for _ in range(3):
            run()
    events = sorted(recorded.key_averages(), key=lambda e: -e.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in events)
    return "\n".join(f"{e.self_cpu_time_total / total:6.1%}  {e.key}" for e in events[:rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the ratios as one JSON object on the last line")
    parser.add_argument("--eager", action="store_true", help="skip torch.compile, which takes minutes")
    parser.add_argument("--profile", action="store_true", help="print a profile by operator")
    parser.add_argument("--quick", action="store_true", help="the small model only, short timings")
    arguments = parser.parse_args()
    seconds = 1.0 if arguments.quick else 12.0
    result: dict[str, float] = {}
    for name, (config, batch) in MODELS.items():
        if arguments.quick and name != "small":
            continue
        for compiled in (False,) if arguments.eager else (False, True):
            run = step(config, batch, compiled)
            rate = operations(config, batch) / best(run, seconds)
            share = rate / peak(seconds / 6)
            label = f"{name}, batch {batch}, {'compiled' if compiled else 'eager'}"
            result[label] = round(share, 3)
            print(f"{label}: {share:.1%} of the matrix-multiply peak")
            if arguments.profile and not compiled:
                print(profile(run))
    if arguments.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
