"""Long jobs in one directory, shared by processes that only meet in the file system and may be killed at any moment."""

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lwd.errors import InputError
from lwd.io.files import changes, read_json, write_json


def process() -> tuple[int, int]:
    """This process's number and how many there are, as torchrun and accelerate set them ($RANK, $WORLD_SIZE)."""
    rank, world = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    if not (rank.isdecimal() and world.isdecimal() and int(rank) < int(world)):
        raise InputError(f"RANK is a number below WORLD_SIZE, got {rank!r} and {world!r}; use torchrun, or unset both")
    return int(rank), int(world)


@contextmanager
def shared(path: Path) -> Iterator[None]:
    """Every process writes the same file; a faster one may have swept our temporary file away."""
    try:
        yield
    except InputError:
        if not path.exists():
            raise


def keep_plan(path: Path, plan: Mapping[str, Any], begun: bool) -> None:
    """Write down what is to be done; refuse to go on with something else that was begun in the same place."""
    if begun and not path.exists():
        raise InputError(f"{path.parent.parent} holds something else; use another directory", argument="out")
    if write_once(path, plan):
        return
    changed = _changed(path, plan)
    if changed and begun:
        raise InputError(
            f"{path.parent.parent} was started with different settings ({'; '.join(changed)}); use another directory",
            argument="out",
        )
    if changed:  # nothing was made by the old plan yet
        with shared(path):
            write_json(path, plan)


def check_plan(path: Path, plan: Mapping[str, Any]) -> None:
    """Before a result is written: the plan is still ours, and not that of a process that began at the same time."""
    if changed := _changed(path, plan):
        where = path.parent.parent
        raise InputError(f"another process works in {where} with other settings ({'; '.join(changed)}); start again")


def _changed(path: Path, plan: Mapping[str, Any]) -> list[str]:
    old = read_json(path)
    return changes(old if isinstance(old, Mapping) else {}, plan)


def write_once(path: Path, value: Any) -> bool:
    """Write JSON unless the file is there; of several processes exactly one writes. Whether it was this one."""
    if path.exists():
        return False
    aside = path.parent / f".{path.name}.{secrets.token_hex(6)}"
    write_json(aside, value)
    try:
        os.link(aside, path)  # fails if the name is taken, and never shows half a file
    except FileExistsError:
        return False
    except OSError:  # no hard links on this file system
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    return True
