"""Kill a command with SIGKILL again and again, let it finish, and compare what it leaves with an undisturbed run.

Attempts are forked from a process that has torch in memory, so a kill costs a fraction of a second. Kills come at a
random moment, or at the k-th call that changes the disk: fsync, rename, link or write (of which half is written).
"""

import builtins
import io
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from accelerate.state import AcceleratorState

from soak.jobs import Job, content, losses, progress

PATIENCE = 1800
"""Seconds after which an attempt that does not end is a failure."""


class Fault:
    """Counts the calls that change the disk, and ends the process at number `at`: before it, after it, or half way."""

    def __init__(self, at: int | None, counts: Path) -> None:
        self.at, self.count, self.counts = at, 0, counts
        for name in ("fsync", "replace", "rename", "link"):
            setattr(os, name, self._wrapped(getattr(os, name)))
        real = io.open

        def opened(file: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
            if "b" not in mode or not set(mode) & set("wxa") or options.get("opener"):
                return real(file, mode, *rest, **options)
            return io.BufferedWriter(_Raw(file, mode.replace("b", ""), self))

        io.open = builtins.open = opened  # type: ignore[assignment]

    def _wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            if self.count == self.at and self.at % 2:
                self.end()
            result = function(*arguments, **options)
            if self.count == self.at:
                self.end()
            return result

        return inner

    def end(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def note(self) -> None:
        with os.fdopen(os.open(self.counts, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w") as file:
            file.write(str(self.count))


class _Raw(io.FileIO):
    """A file that dies in the middle of a write."""

    def __init__(self, file: Any, mode: str, fault: Fault) -> None:
        super().__init__(file, mode)
        self.fault = fault

    def write(self, data: Any) -> int:
        self.fault.count += 1
        if self.fault.count == self.fault.at:
            super().write(bytes(data)[: len(bytes(data)) // 2])
            self.fault.end()
        return super().write(data)


@dataclass
class Tally:
    """What became of a job's kills."""

    kills: int = 0
    rounds: int = 0
    lost: int = 0
    """Kills after which less was there than before."""
    different: list[str] = field(default_factory=list)
    """Rounds whose result differs from the undisturbed run's."""

    def __str__(self) -> str:
        return f"{self.kills} kills in {self.rounds} runs, {self.lost} lost, {len(self.different)} different"


class Killer:
    """The rounds of one job in a scratch directory."""

    def __init__(self, job: Job, scratch: Path, seed: int) -> None:
        self.job, self.scratch, self.seed = job, scratch, seed
        shutil.rmtree(scratch, ignore_errors=True)
        started = time.monotonic()
        self.whole = self._directory("whole")
        self.finish(self.whole, job.processes)
        self.seconds = time.monotonic() - started
        counts = self.whole / ".count-0"
        self.points = int(counts.read_text()) if counts.exists() else 0
        self.expected = content(self.whole / "out")
        if not self.expected:
            raise AssertionError(f"{job.name} left nothing to compare: {self.log(self.whole)}")

    def _directory(self, name: str) -> Path:
        """A place for one run; its name is the same for all, because some results record it."""
        place = self.scratch / name
        place.mkdir(parents=True)
        return place

    def log(self, place: Path) -> str:
        return "".join(path.read_text(errors="replace")[-1500:] for path in sorted(place.glob(".log-*")))

    def start(self, place: Path, processes: int, at: int | None = None) -> list[int]:
        """Fork the processes of one attempt."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        pids = []
        sys.stdout.flush()
        for rank in range(processes):
            pid = os.fork()
            if pid == 0:
                self._child(place, rank, processes, port, at if rank == 0 else None)
            pids.append(pid)
        return pids

    def _child(self, place: Path, rank: int, processes: int, port: int, at: int | None) -> None:
        code = 70
        try:
            os.chdir(place)
            log = os.open(place / f".log-{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            if processes > 1:
                group = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
                os.environ |= {name: str(value) for name, value in group.items()}
                os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            AcceleratorState._reset_state(reset_partial_state=True)  # the parent made its inputs as a single process
            fault = Fault(at, place / f".count-{rank}")
            code = self.job.run()
            fault.note()
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)

    def wait(self, pids: list[int], seconds: float) -> dict[int, int]:
        """Wait until the processes have ended, at most some seconds; returns how those that ended did."""
        ended: dict[int, int] = {}
        limit = time.monotonic() + seconds
        while len(ended) < len(pids) and time.monotonic() < limit:
            for pid in set(pids) - ended.keys():
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    ended[pid] = os.waitstatus_to_exitcode(status)
            if any(code < 0 for code in ended.values()):
                break
            time.sleep(0.002)
        return ended

    def kill(self, pids: list[int], ended: dict[int, int]) -> int:
        """Kill what still runs; returns how many processes died of a kill in this attempt."""
        for pid in set(pids) - ended.keys():
            os.kill(pid, signal.SIGKILL)
            ended[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return sum(code == -signal.SIGKILL for code in ended.values())

    def finish(self, place: Path, processes: int) -> None:
        """Run to the end without a kill."""
        pids = self.start(place, processes)
        ended = self.wait(pids, PATIENCE)
        self.kill(pids, ended)
        if any(ended.values()):
            raise AssertionError(f"{self.job.name} ended with {sorted(ended.values())}: {self.log(place)}")

    def round(self, number: int, tally: Tally) -> None:
        """Start in an empty directory, kill a few times, finish, compare."""
        rng = Random(f"{self.seed} {self.job.name} {number}")
        place = self.scratch / "round"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        there = 0
        for attempt in range(rng.randint(1, 4)):
            processes = rng.choice((1, 2)) if self.job.alternate else self.job.processes
            injected = rng.random() < 0.6 and self.points
            pids = self.start(place, processes, rng.randint(1, self.points) if injected else None)
            moment = rng.uniform(0, 1.1 * self.seconds / (attempt + 1))
            dead = self.kill(pids, self.wait(pids, PATIENCE if injected else moment))
            tally.kills += 1 if dead else 0
            now = progress(place / "out")
            if now < there:
                tally.lost += 1
            there = now
        tally.rounds += 1
        if self.job.refuses and not self.compare(place / "out"):
            return
        self.finish(place, 1 if self.job.alternate else self.job.processes)
        problem = self.compare(place / "out")
        if problem:
            tally.different.append(f"{self.job.name} #{number}: {problem}")

    def compare(self, out: Path) -> str:
        """What differs from the undisturbed run; empty if nothing does."""
        if not self.job.exact:
            ours, theirs = losses(out), losses(self.whole / "out")
            close = len(ours) == len(theirs) and all(
                abs(a - b) <= 1e-5 * abs(b) for a, b in zip(ours, theirs, strict=True)
            )
            return "" if close else f"losses {ours} instead of {theirs}"
        found = content(out)
        wrong = sorted(
            name for name in found.keys() | self.expected.keys() if found.get(name) != self.expected.get(name)
        )
        return f"{', '.join(wrong[:5])} differ" if wrong else ""
