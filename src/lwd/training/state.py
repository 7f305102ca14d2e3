"""Training checkpoints on disk: written aside, checksummed, renamed; found, verified and pruned."""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from lwd.errors import InputError
from lwd.io.files import atomic_directory, sha256, write_bytes, write_json
from lwd.io.tensors import read_safetensors, write_safetensors
from lwd.training.formats import TrainingState

STATE, TENSORS, MODEL, LATEST = "state.json", "training.safetensors", "model.safetensors", "latest"


@dataclass(frozen=True)
class Saved:
    """A verified checkpoint: its directory, its numbers, its tensors by name, and the averaged weights."""

    path: Path
    state: TrainingState
    tensors: Mapping[str, Tensor]
    average: Mapping[str, Tensor]

    @property
    def step(self) -> int:
        return self.state.step


@contextmanager
def writing(folder: Path, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> Iterator[Path]:
    """Write one checkpoint; the block adds model.safetensors, and more.

    It appears whole under its name, and only then `latest` moves.
    """
    path = folder / f"{step:08}"
    with atomic_directory(path, replace=True) as aside:
        write_safetensors(aside / TENSORS, tensors)
        yield aside
        sums = {file.name: sha256(file) for file in sorted(aside.iterdir())}
        TrainingState(step=step, sha256=sums, **state).write(aside / STATE)
        # What makes the directory one of ours, so that an older one of the same step may be replaced.
        if not (aside / "config.json").exists():
            write_json(aside / "config.json", {"format": TrainingState.format_name(), "version": 1})
    write_bytes(folder / LATEST, path.name.encode())


def candidates(folder: Path) -> list[Path]:
    """Checkpoint directories, best first: the one that `latest` names, then the others from new to old."""
    found = sorted((p for p in folder.glob("[0-9]*") if p.is_dir() and p.name.isdecimal()), reverse=True)
    try:
        named = folder / (folder / LATEST).read_text(errors="replace").strip()
    except OSError:
        return found
    return [named, *(p for p in found if p != named)] if named in found else found


def newest(folder: Path, warn: Callable[[str], object]) -> Saved | None:
    """The newest whole checkpoint; damaged ones are put aside, with a message. None where there never was one."""
    problems: list[tuple[Path, str]] = []
    for path in candidates(folder):
        try:
            found = read(path)
        except InputError as error:
            problems.append((path, str(error)))
            continue
        for damaged, reason in problems:
            warn(f"skipped a damaged checkpoint: {reason}")
            with suppress(OSError):
                os.replace(damaged, damaged.parent / f"damaged-{damaged.name}-{secrets.token_hex(3)}")
        return found
    if problems:
        reasons = "; ".join(reason for _, reason in problems[:3])
        raise InputError(f"none of the checkpoints in {folder} can be read ({reasons}); move it away to start anew")
    return None


def read(path: Path, verify: bool = True) -> Saved:
    """Read one checkpoint and verify every file of it (processes beside the main one need not do that again)."""
    state = TrainingState.read(path / STATE)
    if not {TENSORS, MODEL} <= set(state.sha256):
        raise InputError(f"{path / STATE} lacks the checksum of {TENSORS} or {MODEL}")
    for name, expected in state.sha256.items() if verify else ():
        file = path / Path(str(name)).name
        if not file.is_file():
            raise InputError(f"{file} is missing")
        if sha256(file) != expected:
            raise InputError(f"{file} was changed or truncated: its checksum is not the recorded one")
    return Saved(path, state, read_safetensors(path / TENSORS), read_safetensors(path / MODEL))


def keep_model(path: Path, folder: Path) -> None:
    """Keep a checkpoint's model directory for good, without the optimizer's state: a fifth of its size."""
    target = folder / path.name
    if target.exists():
        return
    with atomic_directory(target) as aside:
        for file in sorted(path.iterdir()):
            if file.name not in (STATE, TENSORS):
                shutil.copyfile(file, aside / file.name)


def prune(folder: Path, keep_last: int, kept: Path, is_kept: Callable[[int], bool]) -> None:
    """Remove all but the last `keep_last` checkpoints; models that are kept for good are in `kept` first."""
    latest = (folder / LATEST).read_text(errors="replace").strip() if (folder / LATEST).exists() else ""
    for path in sorted((p for p in folder.glob("[0-9]*") if p.name.isdecimal()), reverse=True)[keep_last:]:
        if path.name == latest:
            continue
        if is_kept(int(path.name)):  # saved by an earlier version, or just before a kill
            keep_model(path, kept)
        shutil.rmtree(path, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove what a killed process left under temporary names."""
    for leftover in folder.glob(".[0-9]*.*"):
        shutil.rmtree(leftover, ignore_errors=True)


def check_space(folder: Path, size: int) -> None:
    """Refuse to start where one checkpoint of `size` bytes does not fit."""
    free = shutil.disk_usage(_existing(folder)).free
    if free < size:
        raise InputError(f"{folder} has {free / 1e9:.2f} GB free; one checkpoint needs {size / 1e9:.2f} GB")


def _existing(path: Path) -> Path:
    path = Path(os.path.abspath(path))
    return path if path.exists() else _existing(path.parent)
