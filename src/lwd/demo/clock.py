"""Progress of many stages: a bar for the one at hand, and how long all of them will still take."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

BELIEF = 20.0
"""Seconds of work for which the first estimate counts: a short stage must not upset it."""


class Clock:
    """Expected seconds of every stage, corrected by how long things really take on this machine."""

    def __init__(self, expected: dict[str, float], show: Callable[[str], object] = print) -> None:
        self.expected, self.show = expected, show
        self.done: list[str] = []
        self.work = self.spent = 0.0

    @contextmanager
    def stage(self, name: str, total: int = 1) -> Iterator[Callable[[float], object]]:
        """The function it gives takes how many of `total` were done since it was last called."""
        title, begun, worked = f"[{len(self.done) + 1}/{len(self.expected)}] {name}", time.monotonic(), 0.0
        # disable=None: no bar where nobody watches (a log file, CI); the line at the end is for all.
        form = "{desc:<34} {percentage:3.0f}% |{bar}|{postfix}"
        with tqdm(total=total, desc=title, bar_format=form, leave=False, disable=None, dynamic_ncols=True) as bar:
            bar.set_postfix_str(self._left(name, 0.0), refresh=True)

            def advance(count: float) -> None:
                nonlocal worked
                worked += count / total
                bar.set_postfix_str(self._left(name, worked, time.monotonic() - begun), refresh=False)
                bar.update(count)

            yield advance
        seconds = time.monotonic() - begun
        self.work += self.expected[name] * max(worked, 1e-9)
        self.spent += seconds
        self.done.append(name)
        self.show(f"{title:<34} {_minutes(seconds)}   {self._left(None, 0.0)}")
        sys.stdout.flush()

    def _left(self, name: str | None, share: float, seconds: float = 0.0) -> str:
        """How long everything will still take, from how long things took so far."""
        work = self.work + (self.expected[name] * share if name else 0.0)
        pace = (self.spent + seconds + BELIEF) / (work + BELIEF)
        rest = sum(value for key, value in self.expected.items() if key not in self.done)
        rest -= self.expected[name] * min(share, 1.0) if name else 0.0
        return f"about {_minutes(pace * rest)} left in all" if rest > 0 else ""


def _minutes(seconds: float) -> str:
    return f"{int(seconds + 0.5) // 60}:{int(seconds + 0.5) % 60:02}"
