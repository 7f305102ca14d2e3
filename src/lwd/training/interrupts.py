"""Graceful handling of SIGTERM, SIGUSR1 and Ctrl-C."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass


class Interrupted(Exception):
    """A training was interrupted by SIGTERM or Ctrl-C; its state is saved."""


@dataclass
class Stop:
    """Whether the run was asked to stop."""

    asked: bool = False


@contextmanager
def interrupts() -> Iterator[Stop]:
    """Let the current step finish after SIGTERM, SIGUSR1 or Ctrl-C; a second Ctrl-C stops immediately.

    SIGUSR1 is the early warning of batch systems: it leaves more time to save than SIGTERM.
    """
    stop = Stop()

    def ask(number: int, _frame: object) -> None:
        if stop.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.asked = True

    old = {}
    with suppress(ValueError):  # not in the main thread, which alone may handle signals
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            old[number] = signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
