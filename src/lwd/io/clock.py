"""Progress of several stages: a bar for the current one, and the time left for all of them."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

PRIOR = 20.0
"""Weight of the first estimate, in seconds of work, so that a short stage does not change it much."""


class Clock:
    """Expected seconds of every stage, corrected by the speed of this machine."""

    def __init__(self, expected: dict[str, float], show: Callable[[str], object] = print) -> None:
        self.expected, self.show = expected, show
        self.done: list[str] = []
        self.work = self.spent = 0.0

    @contextmanager
    def stage(self, name: str, total: int = 1) -> Iterator[Callable[[float], object]]:
        """Show the progress of a stage; yields a function to call with the number of units done, out of `total`."""
        title, started, worked = f"[{len(self.done) + 1}/{len(self.expected)}] {name}", time.monotonic(), 0.0
        # disable=None: no bar in log files or CI; the line at the end is always printed.
        form = "{desc:<34} {percentage:3.0f}% |{bar}|{postfix}"
        with tqdm(total=total, desc=title, bar_format=form, leave=False, disable=None, dynamic_ncols=True) as bar:
            bar.set_postfix_str(self._left(name, 0.0), refresh=True)

            def advance(count: float) -> None:
                nonlocal worked
                worked += count / total
                bar.set_postfix_str(self._left(name, worked, time.monotonic() - started), refresh=False)
                bar.update(count)

            yield advance
        seconds = time.monotonic() - started
        self.work += self.expected[name] * max(worked, 1e-9)
        self.spent += seconds
        self.done.append(name)
        self.show(f"{title:<34} {_minutes(seconds)}   {self._left(None, 0.0)}")
        sys.stdout.flush()

    def _left(self, name: str | None, share: float, seconds: float = 0.0) -> str:
        """Estimate the time left for all stages from the time taken so far."""
        work = self.work + (self.expected[name] * share if name else 0.0)
        pace = (self.spent + seconds + PRIOR) / (work + PRIOR)
        rest = sum(value for key, value in self.expected.items() if key not in self.done)
        rest -= self.expected[name] * min(share, 1.0) if name else 0.0
        return f"about {_minutes(pace * rest)} left in all" if rest > 0 else ""


def _minutes(seconds: float) -> str:
    return f"{int(seconds + 0.5) // 60}:{int(seconds + 0.5) % 60:02}"
