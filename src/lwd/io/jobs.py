"""Long jobs in one directory, shared by processes that communicate only by files and may be killed at any time."""

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lwd.errors import InputError
from lwd.io.files import changes, read_json, write_json
from lwd.io.launch import adopt_slurm


def process() -> tuple[int, int]:
    """Return the rank of this process and the number of processes ($RANK, $WORLD_SIZE: torchrun, accelerate; srun)."""
    adopt_slurm()
    rank, world = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    if not (rank.isdecimal() and world.isdecimal() and int(rank) < int(world)):
        raise InputError(f"RANK must be below WORLD_SIZE, got {rank!r} and {world!r}; use torchrun, or unset both")
    return int(rank), int(world)


@contextmanager
def shared(path: Path) -> Iterator[None]:
    """Tolerate a failed write if `path` exists: a faster process wrote it and removed our temporary file."""
    try:
        yield
    except InputError:
        if not path.exists():
            raise


def keep_plan(path: Path, plan: Mapping[str, Any], started: bool) -> None:
    """Write the settings of a job; raise an error if the directory was started with different ones."""
    if started and not path.exists():
        raise InputError(f"{path.parent.parent} contains other files; use another directory", argument="out")
    if write_once(path, plan):
        return
    changed = _changed(path, plan)
    if changed and started:
        raise InputError(
            f"{path.parent.parent} was started with different settings ({'; '.join(changed)}); use another directory",
            argument="out",
        )
    if changed:  # the old plan has no results yet
        with shared(path):
            write_json(path, plan)


def check_plan(path: Path, plan: Mapping[str, Any]) -> None:
    """Check before writing a result that no process with different settings started at the same time."""
    if changed := _changed(path, plan):
        where = path.parent.parent
        raise InputError(
            f"another process works in {where} with different settings ({'; '.join(changed)}); run again later"
        )


def _changed(path: Path, plan: Mapping[str, Any]) -> list[str]:
    old = read_json(path)
    return changes(old if isinstance(old, Mapping) else {}, plan)


def write_once(path: Path, value: Any) -> bool:
    """Write JSON unless the file exists, and return whether this process wrote it; exactly one of several does."""
    if path.exists():
        return False
    temporary = path.parent / f".{path.name}.{secrets.token_hex(6)}"
    write_json(temporary, value)
    try:
        os.link(temporary, path)  # fails if the name is taken, and never exposes a partial file
    except FileExistsError:
        return False
    except OSError:  # no hard links on this file system
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return True
