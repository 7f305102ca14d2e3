"""One process at a time in a directory, by `filelock`."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from lwd.errors import InputError


class BusyError(InputError):
    """Another process holds a directory."""


@contextmanager
def alone(directory: str | os.PathLike[str]) -> Iterator[None]:
    """Hold a directory for this process; raise BusyError if another has it. A killed process lets go."""
    with held(Path(directory) / ".lock", wait=False, busy=str(directory)):
        yield


@contextmanager
def held(path: Path, wait: bool = True, busy: str = "") -> Iterator[None]:
    """Hold the lock file `path`; wait for whoever has it, or raise BusyError."""
    busy = busy or str(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, timeout=-1 if wait else 0)
        lock.acquire()
    except Timeout as error:
        raise BusyError(f"another process is working in {busy}; wait for it, or use another directory") from error
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot lock {path}: {reason}; use a directory on a file system that supports it") from error
    try:
        yield
    finally:
        lock.release()
