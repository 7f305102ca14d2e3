"""Saving in the background: training goes on while every process writes its part of a checkpoint."""

import copy
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from lwd.checkpoints.directory import write_checkpoint
from lwd.checkpoints.text import write_text
from lwd.errors import InputError
from lwd.io.files import check_destination
from lwd.io.tensors import write_safetensors
from lwd.latents.statistics import Statistics
from lwd.models.lightningdit import LightningDiT
from lwd.models.sefi import SeFiNetwork
from lwd.schedule.base import Schedule
from lwd.training import state
from lwd.training.config import Config
from lwd.training.devices import Devices, full_copy
from lwd.training.shards import host_copies, write_parts
from lwd.training.text import model_record

CHECKPOINTS, KEPT = "checkpoints", "kept"


class Saver:
    """Writes one checkpoint at a time. `start` and `finish` are called on all processes at the same steps."""

    def __init__(self, out: Path, devices: Devices, keep_last: int, is_kept: Callable[[int], bool]) -> None:
        self.folder, self.kept, self.devices = out / CHECKPOINTS, out / KEPT, devices
        self.keep_last, self.is_kept = keep_last, is_kept
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="save")
        self._running: tuple[int, Future[None]] | None = None

    @property
    def busy(self) -> bool:
        """Whether this process is still writing."""
        return self._running is not None and not self._running[1].done()

    @property
    def pending(self) -> bool:
        """Whether a save was started and not finished."""
        return self._running is not None

    def start(self, snapshot: state.Snapshot) -> None:
        """Write a snapshot in the background; the one before must be finished."""
        assert self._running is None, "finish the save before"
        job = self._pool.submit(self._write, snapshot, self._prepare(snapshot.step))
        self._running = (snapshot.step, job)

    def _prepare(self, step: int) -> str:
        """Create the directory that all processes fill; returns its name. One process needs none."""
        if self.devices.world == 1:
            return ""
        token, problem = secrets.randbits(48) | 1, None
        if self.devices.main:
            try:
                check_destination(self.folder / f"{step:08}", replace=True)
                (self.folder / _name(step, token)).mkdir(parents=True)
            except (OSError, InputError) as error:
                problem, token = error, 0
        token = self.devices.from_main(token)
        if not token:
            raise InputError(
                f"cannot write {self.folder}: {problem or 'the main process could not create a directory'}"
            )
        return _name(step, token)

    def _write(self, snapshot: state.Snapshot, prepared: str) -> None:
        if self.devices.main:
            state.write(self.folder, snapshot, prepared, self.devices.savers)
        else:
            write_parts(self.folder / prepared, snapshot.pieces, self.devices.savers)

    def finish(self) -> int | None:
        """Wait for the save under way on all processes, and return its step; raises its error, if it had one."""
        if self._running is None:
            return None
        step, job = self._running
        self._running = None
        problem = job.exception()
        failed = self.devices.largest([float(problem is not None)])[0] > 0
        if problem is not None:
            raise problem
        if failed:
            raise InputError(f"the checkpoint of step {step} could not be written by another process")
        if self.devices.main:
            if self.is_kept(step):
                state.keep_model(self.folder / f"{step:08}", self.kept)
            state.prune(self.folder, self.keep_last, self.kept, self.is_kept)
        return step

    def newest(self, warn: Callable[[str], object]) -> state.Saved | None:
        """Read the newest intact checkpoint; the main process chooses it, so that all processes use the same."""
        found = state.newest(self.folder, warn) if self.devices.main else None
        step = self.devices.from_main(-1 if found is None else found.step)
        if step < 0 or found is not None:
            return found
        path = self.folder / f"{step:08}"
        if not path.is_dir():
            raise InputError(f"{path} is not on this machine; all nodes must share the directory of the run")
        return state.read(path, verify=False)

    def __enter__(self) -> "Saver":
        return self

    def __exit__(self, *problem: object) -> None:
        self._pool.shutdown()


def averages_on_host(names: Sequence[str], shadow: Sequence[Tensor], devices: Devices) -> dict[str, Tensor]:
    """Copy the averaged weights to the CPU of the main process (a collective call if they are sharded)."""
    if devices.mesh is None:
        copies = host_copies(shadow) if devices.main else []
    else:
        copies = [full_copy(tensor, devices.main) for tensor in shadow]
    return dict(zip(names, copies, strict=True)) if devices.main else {}


def model_writer(
    network: nn.Module,
    average: Mapping[str, Tensor],
    schedule: Schedule,
    statistics: Statistics | None,
    record: Mapping[str, Any],
    config: Config,
) -> Callable[[Path], None]:
    """Return what writes the averaged weights as a model directory, or the weights alone of a custom network."""
    schedule = copy.deepcopy(schedule)  # a probe goes on changing it

    def write(folder: Path) -> None:
        if isinstance(network, LightningDiT):
            write_checkpoint(folder, network.config, average, schedule, statistics, record, config.sampling)
        elif isinstance(network, SeFiNetwork):
            about = model_record(config, schedule, dict(record))
            write_text(folder, network.config, average, schedule, statistics, about)
        else:
            write_safetensors(folder / state.MODEL, average)

    return write


def _name(step: int, token: int) -> str:
    return f".{step:08}.{token:012x}"
