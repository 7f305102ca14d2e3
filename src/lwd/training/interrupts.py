"""SIGTERM and Ctrl-C as a question instead of an end."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass


@dataclass
class Stop:
    """Whether someone asked the run to stop."""

    asked: bool = False


@contextmanager
def interrupts() -> Iterator[Stop]:
    """SIGTERM and Ctrl-C let the step finish; a second Ctrl-C ends at once."""
    stop = Stop()

    def ask(number: int, _frame: object) -> None:
        if stop.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.asked = True

    old = {}
    with suppress(ValueError):  # not the main thread: signals are someone else's
        for number in (signal.SIGTERM, signal.SIGINT):
            old[number] = signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
