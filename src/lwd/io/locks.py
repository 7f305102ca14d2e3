"""Locks: one process at a time in a directory, with `filelock`."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from lwd.errors import InputError


class BusyError(InputError):
    """Another process has locked a directory."""


@contextmanager
def alone(directory: str | os.PathLike[str]) -> Iterator[None]:
    """Lock a directory for this process, or raise BusyError if another has it. The lock ends with the process."""
    with held(Path(directory) / ".lock", wait=False, busy=str(directory)):
        yield


@contextmanager
def held(path: Path, wait: bool = True, busy: str = "") -> Iterator[None]:
    """Lock the file `path`; if another process has it, wait or raise BusyError."""
    busy = busy or str(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, timeout=-1 if wait else 0)
        lock.acquire()
    except Timeout as error:
        raise BusyError(f"another process is working in {busy}; wait for it, or use another directory") from error
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot lock {path}: {reason}; use a file system that supports locks") from error
    try:
        yield
    finally:
        lock.release()
