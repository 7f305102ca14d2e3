"""Reading rows of many files: through file descriptors that several threads share, and hints about memory maps."""

import ctypes
import mmap
import os
import resource
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from lwd.errors import InputError

PAGE = mmap.PAGESIZE


class OpenFiles:
    """Files by number; the most recently used stay open, up to half of what the system allows."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths, self.most = paths, max(64, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self._open: dict[int, int] = {}  # in order of use
        self._used: dict[int, int] = {}
        self._lock = Lock()

    @contextmanager
    def take(self, numbers: Iterable[int]) -> Iterator[dict[int, int]]:
        """Yield the file descriptors of some files, which stay open for the block."""
        numbers = set(numbers)
        with self._lock:
            found = {number: self._take(number) for number in numbers}
        try:
            yield found
        finally:
            with self._lock:
                for number in numbers:
                    self._used[number] -= 1
                self._close_some()

    def _take(self, number: int) -> int:
        handle = self._open.pop(number, None)
        if handle is None:
            try:
                handle = os.open(self.paths[number], os.O_RDONLY)
            except OSError as error:
                raise InputError(f"cannot read {self.paths[number]}: {error.strerror or error}") from error
            if hasattr(os, "posix_fadvise"):  # rows are read in random order: no readahead
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)
        self._open[number] = handle
        self._used[number] = self._used.get(number, 0) + 1
        return handle

    def _close_some(self) -> None:
        idle = [number for number in self._open if not self._used[number]]
        for number in idle[: max(0, len(self._open) - self.most)]:
            os.close(self._open.pop(number))

    def read(self, number: int, handle: int, buffer: memoryview, start: int) -> None:
        """Fill the buffer with the bytes from `start` on."""
        done = 0
        while done < len(buffer):
            try:
                count = os.preadv(handle, [buffer[done:]], start + done)
            except OSError as error:
                raise InputError(f"cannot read {self.paths[number]}: {error.strerror or error}") from error
            if not count:
                raise InputError(f"{self.paths[number]} was truncated after it was opened")
            done += count

    def __del__(self) -> None:
        for handle in self._open.values():
            os.close(handle)


def _madvise() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    call = ctypes.CDLL(None).madvise
    call.argtypes, call.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
    return call


MADVISE = _madvise()


def read_at_random(address: int, size: int) -> None:
    """Turn off readahead for a memory map; by default a fault reads 128 KiB or more around it."""
    if MADVISE is not None:
        MADVISE(address, size, mmap.MADV_RANDOM)


def will_need(address: int, size: int) -> None:
    """Start reading a part of a memory map from the disk, without waiting for it."""
    if MADVISE is not None:
        first = address - address % PAGE
        MADVISE(first, address + size - first, mmap.MADV_WILLNEED)


def waits() -> int:
    """How often this thread has waited for the disk in a memory map."""
    kind = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
    return resource.getrusage(kind).ru_majflt
