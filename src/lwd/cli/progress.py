"""Progress of long commands: a bar on a terminal; in a log, a line with the time left every half minute."""

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

EVERY = 30.0
"""Seconds between two lines."""


def bar(total: float, title: str, unit: str = "image", shown: bool = True, done: float = 0) -> Any:
    """Show the progress of `total` units; use it in a `with` block and call `update(count)`. `done` took no time."""
    if shown and not sys.stderr.isatty():
        return Lines(total, title, unit, done=done)
    from tqdm import tqdm

    return tqdm(total=total, desc=title, unit=unit, initial=done, disable=not shown, dynamic_ncols=True)


class Later:
    """A bar that opens with its first update: neither its clock nor its speed counts what came before."""

    def __init__(self, total: float, title: str, unit: str = "image", shown: bool = True) -> None:
        self.about = total, title, unit, shown
        self.bar: Any = None

    def update(self, count: float = 1) -> None:
        """Add to the units done."""
        if self.bar is not None:
            self.bar.update(count)
            return
        self.bar = bar(*self.about, done=count)

    def __enter__(self) -> "Later":
        return self

    def __exit__(self, *problem: object) -> None:
        if self.bar is not None:
            self.bar.close()


class Lines:
    """Progress for a log file; the time left follows from the speed of the last minutes."""

    def __init__(
        self, total: float, title: str, unit: str, clock: Callable[[], float] = time.monotonic, done: float = 0
    ) -> None:
        self.total, self.title, self.unit, self.clock = total, title, unit, clock
        self.n, self.note = done, ""
        self.started = self.said = clock()
        self.marks = deque([(self.started, self.n)], maxlen=10)

    def update(self, count: float = 1) -> None:
        """Add to the units done, and print a line if the last one was long ago."""
        self.n += count
        now = self.clock()
        if now - self.said >= EVERY:
            self.said = now
            print(self.line(now), file=sys.stderr, flush=True)
            self.marks.append((now, self.n))

    def line(self, now: float) -> str:
        """What is done, and how long the rest will take."""
        then, before = self.marks[0]
        speed = (self.n - before) / max(now - then, 1e-9)
        left = f", about {_minutes((self.total - self.n) / speed)} left" if speed > 0 else ""
        done = f"{self.n:.0f} of {self.total:.0f} {self.unit}s" if self.unit else f"{100 * self.n / self.total:.0f}%"
        return f"{self.title}: {done} in {_minutes(now - self.started)}{left}{self.note}"

    def set_postfix(self, refresh: bool = True, **values: str) -> None:
        """Add values to the lines, as tqdm does."""
        del refresh
        self.note = "".join(f", {name} {value}" for name, value in values.items())

    def close(self) -> None:
        """Nothing is left open."""

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


def _minutes(seconds: float) -> str:
    whole = int(seconds + 0.5)
    return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"
