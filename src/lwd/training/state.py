"""Training checkpoints on disk: write atomically with checksums, find, verify and prune."""

import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lwd.errors import InputError
from lwd.io.files import atomic_directory, sha256, write_bytes, write_json
from lwd.io.tensors import write_safetensors
from lwd.training.formats import TensorIndex, TrainingState
from lwd.training.shards import INDEX, Piece, Stored, write_parts

STATE, TENSORS, MODEL, LATEST = "state.json", "training.safetensors", "model.safetensors", "latest"


@dataclass(frozen=True)
class Saved:
    """A verified checkpoint: its directory, state, training tensors by name, and averaged weights."""

    path: Path
    state: TrainingState
    tensors: Stored
    average: Stored

    @property
    def step(self) -> int:
        return self.state.step


@dataclass(frozen=True)
class Snapshot:
    """What a process writes: pieces of the training tensors; the main process also the rest of the state."""

    step: int
    pieces: Mapping[str, Piece]
    state: Mapping[str, Any]
    write_model: Callable[[Path], None]
    """Writes model.safetensors and other files into a directory."""


def write(folder: Path, snapshot: Snapshot, prepared: str = "", group: Any = None) -> None:
    """Write one checkpoint. The directory appears when it is complete; `latest` is updated after that.

    prepared: name of the directory in `folder` that several processes fill, those of `group`; the main process calls
    `write`, the others `write_parts`.
    """
    path = folder / f"{snapshot.step:08}"
    with atomic_directory(path, replace=True, prepared=prepared) as temporary:
        sums = {}
        if group is None:
            write_safetensors(temporary / TENSORS, {name: piece.data for name, piece in snapshot.pieces.items()})
        else:
            write_parts(temporary, snapshot.pieces, group)
            sums = TensorIndex.read(temporary / INDEX).sha256  # not computed twice
        snapshot.write_model(temporary)
        sums |= {file.name: sha256(file) for file in sorted(temporary.iterdir()) if file.name not in sums}
        TrainingState(step=snapshot.step, sha256=sums, **snapshot.state).write(temporary / STATE)
        # atomic_directory replaces only directories with a config.json.
        if not (temporary / "config.json").exists():
            write_json(temporary / "config.json", {"format": TrainingState.format_name(), "version": 1})
    write_bytes(folder / LATEST, path.name.encode())


def candidates(folder: Path) -> list[Path]:
    """Return checkpoint directories, best first: the one in `latest`, then the others from new to old."""
    found = sorted((p for p in folder.glob("[0-9]*") if p.is_dir() and p.name.isdecimal()), reverse=True)
    named = folder / _latest(folder)
    return [named, *(p for p in found if p != named)] if named in found else found


def _latest(folder: Path) -> str:
    """Return the name in `latest`; empty if there is none."""
    try:
        return (folder / LATEST).read_text("utf-8", errors="replace").strip() if (folder / LATEST).is_file() else ""
    except OSError:
        return ""


def newest(folder: Path, warn: Callable[[str], object]) -> Saved | None:
    """Read the newest intact checkpoint, and rename damaged ones with a warning; None if there is none at all."""
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
        raise InputError(f"none of the checkpoints in {folder} can be read ({reasons}); to start again, move it away")
    return None


def read(path: Path, verify: bool = True) -> Saved:
    """Read one checkpoint and verify all its files (`verify` is needed only in the main process)."""
    state = TrainingState.read(path / STATE)
    tensors = INDEX if INDEX in state.sha256 else TENSORS
    if not {tensors, MODEL} <= set(state.sha256):
        raise InputError(f"{path / STATE} lacks the checksum of {TENSORS} or {MODEL}")
    for name, expected in state.sha256.items() if verify else ():
        file = path / Path(str(name)).name
        if not file.is_file():
            raise InputError(f"{file} is missing")
        if sha256(file) != expected:
            raise InputError(f"{file} was changed or truncated: its checksum differs from the recorded one")
    stored = Stored(path, TensorIndex.read(path / INDEX)) if tensors == INDEX else Stored.single(path / TENSORS)
    return Saved(path, state, stored, Stored.single(path / MODEL))


def keep_model(path: Path, folder: Path) -> None:
    """Keep a checkpoint's model directory for good, without the optimizer's state: a fifth of its size."""
    target = folder / path.name
    if target.exists():
        return
    with atomic_directory(target) as aside:
        for file in sorted(path.iterdir()):
            if file.name != STATE and not file.name.startswith("training"):
                shutil.copyfile(file, aside / file.name)


def prune(folder: Path, keep_last: int, kept: Path, is_kept: Callable[[int], bool]) -> None:
    """Remove all but the last `keep_last` checkpoints; models that are kept for good are in `kept` first."""
    latest = _latest(folder)
    for path in sorted((p for p in folder.glob("[0-9]*") if p.name.isdecimal()), reverse=True)[keep_last:]:
        if path.name == latest:
            continue
        if is_kept(int(path.name)):  # saved by an earlier version, or just before a kill
            keep_model(path, kept)
        shutil.rmtree(path, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove temporary directories that killed processes left behind."""
    for leftover in folder.glob(".[0-9]*.*"):
        shutil.rmtree(leftover, ignore_errors=True)


def check_space(folder: Path, size: int) -> None:
    """Raise an error if there is no space for one checkpoint of `size` bytes."""
    free = shutil.disk_usage(_existing(folder)).free
    if free < size:
        raise InputError(f"{folder} has {free / 1e9:.2f} GB free, but one checkpoint needs {size / 1e9:.2f} GB")


def _existing(path: Path) -> Path:
    path = Path(os.path.abspath(path))
    return path if path.exists() else _existing(path.parent)
