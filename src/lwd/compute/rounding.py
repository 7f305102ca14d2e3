"""Matrix products that round the same for every batch size. Imported before torch, whose MKL reads the setting once.

On some Intel CPUs (seen with AMX) MKL otherwise picks kernels by the number of rows, and a sample would depend on its
batch. Products are a little slower there. Other CPUs keep their default.
"""

import os
from pathlib import Path

NAME, MODE = "MKL_CBWR", "AUTO,STRICT"
CPU = Path("/proc/cpuinfo")


def is_intel(cpu: Path = CPU) -> bool:
    """Whether this is a machine with an Intel CPU; False where the file cannot be read."""
    try:
        with cpu.open(errors="replace") as lines:
            return any("GenuineIntel" in line for _, line in zip(range(10), lines, strict=False))
    except OSError:
        return False


if is_intel():
    os.environ.setdefault(NAME, MODE)
