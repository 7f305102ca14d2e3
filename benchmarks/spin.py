"""What it costs and saves that idle OpenMP threads spin: steps of a small network, alone and beside a busy process.

    python benchmarks/spin.py [--seconds 5] [--repeats 3]

Ratios over the setting of lwd (lwd/compute/spin.py), with two threads. Four minutes.
"""

import argparse
import os
import statistics
import subprocess
import sys

from lwd.compute.spin import COUNT, NAME

COUNTS = ("0", "300", "1000", COUNT, "5000", "20000")
BUSY = "while True: pass"
STEPS = """
import sys, time
import torch
from torch import nn

torch.set_num_threads(2)
layers = [nn.Sequential(nn.Linear(64, 192), nn.SiLU(), nn.Linear(192, 64), nn.LayerNorm(64)) for _ in range(6)]
network, seconds = nn.Sequential(*layers), float(sys.argv[1])
optimizer, data = torch.optim.AdamW(network.parameters()), torch.randn(1024, 64)
start = since = time.perf_counter()
count = 0
while time.perf_counter() - start < seconds + 1:
    optimizer.zero_grad()
    network(data).square().mean().backward()
    optimizer.step()
    if time.perf_counter() - start < 1:
        since, count = time.perf_counter(), 0
    else:
        count += 1
print(count / (time.perf_counter() - since))
"""


def rate(count: str, seconds: float) -> float:
    """Steps per second of a new process."""
    call = [sys.executable, "-c", STEPS, str(seconds)]
    return float(subprocess.run(call, env=os.environ | {NAME: count}, capture_output=True, check=True).stdout)


def rates(seconds: float, repeats: int) -> dict[str, float]:
    """The median rate of each setting, which take turns."""
    found: dict[str, list[float]] = {count: [] for count in COUNTS}
    for _ in range(repeats):
        for count in COUNTS:
            found[count].append(rate(count, seconds))
    return {count: statistics.median(values) for count, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    a = parser.parse_args()
    alone = rates(a.seconds, a.repeats)
    with subprocess.Popen([sys.executable, "-c", BUSY]) as busy:
        try:
            beside = rates(a.seconds, a.repeats)
        finally:
            busy.kill()
    print(f"| {NAME} | alone | beside a busy process | of {COUNT} alone |\n| --- | --- | --- | --- |")
    for count in COUNTS:
        ratios = (alone[count] / alone[COUNT], beside[count] / beside[COUNT], beside[count] / alone[COUNT])
        print(f"| {count} | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |")


if __name__ == "__main__":
    main()
