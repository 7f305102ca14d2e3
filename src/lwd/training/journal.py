"""Logs of a run: metrics as JSON lines, and trackers."""

import json
import secrets
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.io.files import cannot_write, check_file, read_json, write_bytes
from lwd.training.devices import Devices
from lwd.training.formats import LogSums, RunFile

METRICS, RUN = "metrics.jsonl", "run.json"
STEP = "step"


class Averages:
    """Means of loss terms over the steps since the last line; values stay on the device until they are read."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.sums: Tensor | None = None
        self.count: Tensor | int = 0

    def add(self, parts: Sequence[Mapping[str, Tensor]], keep: Tensor | None = None) -> None:
        """Add the mean over the parts of a step. keep: 0 on the device leaves the step out, whatever its values."""
        self.names = self.names or tuple(parts[0])
        values = torch.stack([torch.stack([part[name].detach() for name in self.names]) for part in parts])
        value = values.double().mean(0)
        if keep is not None:
            value = value.masked_fill(keep == 0, 0.0)
        self.sums = value if self.sums is None else self.sums + value
        self.count = self.count + (1 if keep is None else keep)

    def means(self, devices: Devices) -> dict[str, float]:
        """Return the means by name, over all processes."""
        totals = self.sums_over(devices)
        return {name: value / max(totals["count"], 1) for name, value in totals["sums"].items()}

    def sums_over(self, devices: Devices) -> dict[str, Any]:
        """Return the sums as plain numbers, averaged over processes in one call, for logs and checkpoints."""
        if self.sums is None:
            return {"count": int(self.count), "sums": {}}
        values = devices.mean(self.sums.to(devices.device))
        return {"count": int(self.count), "sums": dict(zip(self.names, values.tolist(), strict=True))}

    @classmethod
    def of(cls, saved: LogSums | None, devices: Devices) -> "Averages":
        """Restore the sums of a checkpoint, so that the next line equals that of an uninterrupted run."""
        averages = cls()
        if saved is not None and saved.sums:
            averages.names = tuple(saved.sums)
            averages.count = torch.tensor(float(saved.count), device=devices.device)
            averages.sums = torch.tensor(list(saved.sums.values()), dtype=torch.float64, device=devices.device)
        return averages


class Journal:
    """Writes metrics.jsonl, TensorBoard if installed, and W&B if requested; only in the main process."""

    def __init__(self, out: Path, devices: Devices, config: Mapping[str, Any], wandb: bool = False) -> None:
        self.path, self.main = out / METRICS, devices.main
        self.trackers: list[Any] = []
        self.wandb = _kept_id(out / RUN)
        """Id of the W&B run, the same whenever this run continues; empty if it has none."""
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
            self.wandb = self.wandb or secrets.token_hex(8)
            self.trackers.append(_wandb_run(self.wandb, out, config))

    def rewind(self, step: int) -> None:
        """Remove lines after `step`, which a resumed run writes again, and incomplete lines."""
        if self.main and self.path.exists():
            lines = [line for line in read_metrics(self.path) if line.get("step", 0) <= step]
            write_bytes(self.path, "".join(json.dumps(line) + "\n" for line in lines).encode())

    def losses(self) -> list[float]:
        """The totals of all lines so far, in the main process."""
        lines = read_metrics(self.path) if self.main and self.path.exists() else []
        return [float(line["total"]) for line in lines if isinstance(line.get("total"), int | float)]

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
                tracker.log({STEP: step} | dict(numbers))

    def say(self, text: str) -> None:
        if self.main:
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        for tracker in self.trackers:
            with suppress(OSError):  # everything that matters is in metrics.jsonl
                tracker.close() if hasattr(tracker, "add_scalar") else tracker.finish()


def _kept_id(path: Path) -> str:
    return RunFile.parse(read_json(path), str(path)).wandb if path.exists() else ""


def _wandb_run(name: str, out: Path, config: Mapping[str, Any]) -> Any:
    """Open the W&B run with this id again, or a new one.

    Our own axis: W&B drops what is logged at a step before its last one, and a run returns to its last checkpoint.
    """
    import wandb

    run = wandb.init(project="lwd", id=name, resume="allow", name=out.name, dir=str(out), config=dict(config))
    run.define_metric(STEP)
    run.define_metric("*", step_metric=STEP)
    return run


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
