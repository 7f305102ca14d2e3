"""Logs of a run: metrics as JSON lines, and trackers."""

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.io.files import cannot_write, check_file, write_bytes
from lwd.training.devices import Devices
from lwd.training.formats import LogSums

METRICS = "metrics.jsonl"


class Averages:
    """Means of loss terms over the steps since the last line; values stay on the device until they are read."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.count = 0

    def add(self, terms: Mapping[str, Tensor], share: float = 1.0) -> None:
        for name, value in terms.items():
            value = value.detach().double() * share
            self.sums[name] = self.sums[name] + value if name in self.sums else value

    def means(self, devices: Devices) -> dict[str, float]:
        """Return the means by name, over all processes."""
        totals = self.sums_over(devices)
        return {name: value / max(self.count, 1) for name, value in totals["sums"].items()}

    def sums_over(self, devices: Devices) -> dict[str, Any]:
        """Return the sums as plain numbers, averaged over processes in one call, for logs and checkpoints."""
        if not self.sums:
            return {"count": self.count, "sums": {}}
        values = devices.mean(torch.stack([value.double().to(devices.device) for value in self.sums.values()]))
        return {"count": self.count, "sums": dict(zip(self.sums, values.tolist(), strict=True))}

    @classmethod
    def of(cls, saved: LogSums | None, devices: Devices) -> "Averages":
        """Restore the sums of a checkpoint, so that the next line equals that of an uninterrupted run."""
        averages = cls()
        if saved is not None:
            averages.count = saved.count
            options: Any = {"dtype": torch.float64, "device": devices.device}
            averages.sums = {name: torch.tensor(value, **options) for name, value in saved.sums.items()}
        return averages


class Journal:
    """Writes metrics.jsonl, TensorBoard if installed, and W&B if requested; only in the main process."""

    def __init__(self, out: Path, devices: Devices, config: Mapping[str, Any], wandb: bool = False) -> None:
        self.path, self.main = out / METRICS, devices.main
        self.trackers: list[Any] = []
        if not self.main:
            return
        if find_spec("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter

            try:
                self.trackers.append(SummaryWriter(str(out / "tensorboard")))
            except OSError as error:
                raise cannot_write(out / "tensorboard", error) from error
        if wandb:
            if not find_spec("wandb"):
                raise InputError("logging to Weights & Biases needs wandb; install it with: pip install wandb")
            from accelerate.tracking import WandBTracker

            self.trackers.append(WandBTracker("lwd", dir=str(out)))
            self.trackers[-1].start()
            self.trackers[-1].store_init_configuration(dict(config))

    def rewind(self, step: int) -> None:
        """Remove lines after `step`, which a resumed run writes again, and incomplete lines."""
        if self.main and self.path.exists():
            lines = [line for line in read_metrics(self.path) if line.get("step", 0) <= step]
            write_bytes(self.path, "".join(json.dumps(line) + "\n" for line in lines).encode())

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        if not self.main:
            return
        try:
            with self.path.open("a") as file:
                file.write(json.dumps({"step": step} | dict(numbers)) + "\n")
            self._track(step, numbers)
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def _track(self, step: int, numbers: Mapping[str, float]) -> None:
        for tracker in self.trackers:
            if hasattr(tracker, "add_scalar"):
                for name, value in numbers.items():
                    tracker.add_scalar(name, value, step)
            else:
                tracker.log(dict(numbers), step=step)

    def say(self, text: str) -> None:
        if self.main:
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        for tracker in self.trackers:
            with suppress(OSError):  # everything that matters is in metrics.jsonl
                tracker.close() if hasattr(tracker, "add_scalar") else tracker.finish()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a metrics file: those with a step, and their numbers; others are incomplete or damaged."""
    check_file(path)
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    lines = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and type(value.get("step")) is int:
            lines.append({name: number for name, number in value.items() if _is_number(number)})
    return [line for line in lines if "step" in line]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300
