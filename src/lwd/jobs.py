"""Long jobs in one directory, shared by processes that only meet in the file system and may be killed at any moment."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from lwd.errors import InputError
from lwd.files import changes, read_json, write_json


def process() -> tuple[int, int]:
    """This process's number and how many there are, as torchrun and accelerate set them ($RANK, $WORLD_SIZE)."""
    rank, world = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    if not (rank.isdecimal() and world.isdecimal() and int(rank) < int(world)):
        raise InputError(f"RANK is a number below WORLD_SIZE, got {rank!r} and {world!r}; use torchrun, or unset both")
    return int(rank), int(world)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with so many threads: sums depend on it in the last bit, and torchrun would choose one."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
    if path.exists():
        old = read_json(path)
        changed = changes(old if isinstance(old, Mapping) else {}, plan)
        if not changed:
            return
        if begun:
            raise InputError(
                f"{path.parent.parent} was begun otherwise ({'; '.join(changed)}); choose another directory"
            )
    elif begun:
        raise InputError(f"{path.parent.parent} holds something else; choose another directory")
    with shared(path):
        write_json(path, plan)
