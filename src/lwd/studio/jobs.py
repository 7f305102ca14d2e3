"""Computations of the studio's users: one per user at a time, one after another, each can be cancelled."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from lwd.errors import InputError, SolveError
from lwd.studio.settings import SECONDS, WAITING

PAUSE = 0.1
"""Seconds between two reports."""


class Cancelled(Exception):
    """The user cancelled the computation."""


class Job:
    """One computation: it reports how far it is, and ends at the next report after it was cancelled."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._cancelled = threading.Event()
        self._until, self._seconds = 0.0, seconds
        self.share, self.text = 0.0, "waiting"
        self._low, self._high = 0.0, 1.0

    def start(self) -> None:
        self._until = time.monotonic() + self._seconds

    def cancel(self) -> None:
        self._cancelled.set()

    def stage(self, low: float, high: float, text: str) -> None:
        """What follows is this part of the work."""
        self._low, self._high, self.text = low, high, text
        self.report(0.0)

    def report(self, share: float) -> None:
        """Say how much of the stage is done; raises if the job was cancelled or takes too long."""
        if self._cancelled.is_set():
            raise Cancelled
        if self._until and time.monotonic() > self._until:
            raise InputError(f"stopped after {self._seconds:g} seconds; ask for fewer samples or steps")
        self.share = self._low + (self._high - self._low) * min(max(share, 0.0), 1.0)


class Desk:
    """The jobs of all users. One thread computes, so that users do not slow each other down."""

    def __init__(self, waiting: int = WAITING) -> None:
        self._executor = ThreadPoolExecutor(1, "studio")
        self._jobs: dict[str, Job] = {}
        self._lock, self._waiting = threading.Lock(), waiting

    def run(self, user: str, work: Callable[[Job], Any]) -> Iterator[dict[str, Any]]:
        """Queue `work` for a user and yield its reports; the last one has `result`, `error` or `cancelled`."""
        job = Job()
        with self._lock:
            if user in self._jobs:
                raise InputError("a computation of yours is still running; wait for it, or cancel it")
            if len(self._jobs) >= self._waiting:
                raise InputError(f"{self._waiting} computations are already waiting; try again in a minute")
            self._jobs[user] = job
        try:
            future = self._executor.submit(_guarded, job, work)
            yield from self._reports(user, job, future)
            yield _last(future)
        finally:  # also if the page went away
            job.cancel()
            with self._lock:
                self._jobs.pop(user, None)

    def _reports(self, user: str, job: Job, future: "Future[Any]") -> Iterator[dict[str, Any]]:
        while not wait([future], PAUSE).done:
            with self._lock:
                ahead = list(self._jobs).index(user) if job.text == "waiting" else 0
            text = f"waiting for {ahead} other computation{'s' * (ahead > 1)}" if ahead else job.text
            yield {"share": round(job.share, 3), "text": text}

    def cancel(self, user: str) -> bool:
        """Cancel the user's computation; returns whether there was one."""
        with self._lock:
            job = self._jobs.get(user)
        if job is not None:
            job.cancel()
        return job is not None

    def close(self) -> None:
        for user in list(self._jobs):
            self.cancel(user)
        self._executor.shutdown(wait=False, cancel_futures=True)


def _guarded(job: Job, work: Callable[[Job], Any]) -> Any:
    job.start()
    job.report(0.0)
    return work(job)


def _last(future: "Future[Any]") -> dict[str, Any]:
    try:
        return {"result": future.result()}
    except Cancelled:
        return {"cancelled": True}
    except (InputError, SolveError) as error:
        return {"error": str(error)}
