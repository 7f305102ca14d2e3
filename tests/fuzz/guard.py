"""What a loader may never do, whatever it is given: run code, write elsewhere, take a gigabyte or ten seconds."""

import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fuzz.formats import CANARY

MEMORY = 2**30
SECONDS = 10
WAIT = float(os.environ.get("FUZZ_WAIT", 120))
"""Seconds after which a read that blocks (a pipe) is given up; far more than SECONDS, for busy machines."""
ADDRESSES = 12 * 2**30
"""Limit of a worker's address space: an allocation far beyond MEMORY fails instead of filling the machine."""
RUNS = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "subprocess.Popen",
    "socket.connect",
    "ctypes.dlopen",
)
WRITES = {
    "os.remove": (0,),
    "os.rename": (0, 1),
    "os.mkdir": (0,),
    "os.rmdir": (0,),
    "os.link": (1,),
    "os.symlink": (1,),
}
WRITES |= {"os.truncate": (0,), "os.chmod": (0,), "shutil.rmtree": (0,)}


class Violation(BaseException):
    """Not an Exception, so that no loader catches it."""


class Watch:
    """The audit hook of this process; it records what the code under test does while `inside` is set."""

    def __init__(self) -> None:
        self.inside: Path | None = None
        self.seen: list[str] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.inside is None:
            return
        if event in RUNS:
            self.seen.append(f"{event} {arguments!r:.200}")
        elif event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
                self._wrote("open", path)
        elif event in WRITES:
            for i in WRITES[event]:
                self._wrote(event, arguments[i])

    def _wrote(self, event: str, path: Any) -> None:
        if isinstance(path, int):
            return
        inside, self.inside = self.inside, None  # realpath must not come back here
        real = os.path.realpath(os.fsdecode(path))
        if not (real.startswith((f"{inside}/", "/dev/null")) or real == str(inside)):
            self.seen.append(f"{event} outside the directory: {real}")
        self.inside = inside


_watch: list[Watch] = []


def _peak() -> int:
    """The most memory that this process had since `_reset_peak`, in bytes."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


def _reset_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def limit_addresses() -> None:
    """For a worker process; not for pytest's own."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))


def _late(*_: Any) -> None:
    raise Violation(f"took more than {SECONDS} s of CPU time")


def _stuck(*_: Any) -> None:
    raise Violation("waits for something that never comes")


@contextmanager
def guarded(directory: Path, size: int) -> Iterator[None]:
    """Raise Violation if the block does what no loader may; size: of the files in `directory`, in bytes."""
    if not _watch:
        _watch.append(Watch())
    watch, canary = _watch[0], Path(os.environ[CANARY])
    old = [signal.signal(number, handler) for number, handler in ((signal.SIGPROF, _late), (signal.SIGALRM, _stuck))]
    _reset_peak()
    before = _peak()
    watch.seen, watch.inside = [], Path(os.path.realpath(directory))
    # CPU time, so that a busy machine is not a violation; the other clock is for reads that block.
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, WAIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        watch.inside = None
        for number, handler in zip((signal.SIGPROF, signal.SIGALRM), old, strict=True):
            signal.signal(number, handler)
        grown = _peak() - before - size
        if os.path.lexists(canary):
            canary.rmdir() if canary.is_dir() else canary.unlink()
            raise Violation("code in the file was executed")
        if watch.seen:
            raise Violation("; ".join(watch.seen))
        if grown > MEMORY:
            raise Violation(f"took {grown / 2**30:.1f} GB more than the files have")
