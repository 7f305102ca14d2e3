"""Speed and health of a run over the last window: rate, utilisation, waiting for data, memory, loss spikes."""

import resource
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from statistics import median

import torch

PEAKS = {
    "GB200": 2500, "B200": 2250, "H200": 989, "GH200": 989, "H100 PCIe": 756, "H100 NVL": 835, "H100": 989, "H800": 989,
    "A100": 312, "A800": 312, "L40S": 362, "A10G": 70, "RTX 4090": 165, "RTX 3090": 71, "MI300X": 1307, "MI250X": 383,
}  # fmt: skip
"""Peak TFLOP/s of a device in dense bf16, by a part of its name; the first match counts."""
WINDOW, LEAST = 50, 20
"""Lines of metrics that a spike is compared with, at most and at least."""
FAR = 8.0
"""A spike is this many robust standard deviations above the median, and a tenth of it."""


def peak(device: torch.device) -> float | None:
    """Operations per second of a device in dense bf16, or None if it is not known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((1e12 * value for part, value in PEAKS.items() if part in name), None)


class Meter:
    """operations: of one step, forward and backward, over all processes; 0 if they are not known."""

    def __init__(self, device: torch.device, world: int, operations: float, peak: float | None) -> None:
        self.device, self.world, self.operations, self.peak = device, world, operations, peak
        self.start(0)

    def start(self, step: int) -> None:
        """Start a window after this step."""
        self.step, self.began, self.waited = step, time.monotonic(), 0.0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time of this block as waiting for data."""
        start = time.monotonic()
        yield
        self.waited += time.monotonic() - start

    def read(self, step: int) -> dict[str, float]:
        """Return the numbers of the window that ends with this step, and start the next one."""
        seconds, steps = max(time.monotonic() - self.began, 1e-9), step - self.step
        numbers = {"steps per second": steps / seconds, "data wait": self.waited / seconds}
        if self.peak and self.operations:
            numbers["MFU"] = self.operations * steps / seconds / (self.peak * self.world)
        self.start(step)
        return numbers | {"peak memory": self._memory()}

    def _memory(self) -> float:
        """Largest memory so far in bytes: of the device, or of this process on a CPU."""
        if self.device.type == "cuda":
            return float(torch.cuda.max_memory_allocated(self.device))
        unit = 1 if sys.platform == "darwin" else 1024
        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


class Spikes:
    """Finds lines whose loss is far above the lines before."""

    def __init__(self, before: Iterable[float] = ()) -> None:
        self.losses = deque(before, maxlen=WINDOW)

    def is_spike(self, loss: float) -> bool:
        """Whether a loss is a spike, compared with the lines before; it then counts for later ones."""
        found = False
        if len(self.losses) >= LEAST:
            middle = median(self.losses)
            spread = 1.4826 * median(abs(value - middle) for value in self.losses)
            found = loss > middle + max(FAR * spread, 0.1 * abs(middle))
        self.losses.append(loss)
        return found
