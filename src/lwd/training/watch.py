"""When to look up from training: to stop, to save by the clock, to see that a save is done; equal on all processes."""

import time
from dataclasses import dataclass

from lwd.training.devices import Devices

PAUSE = 1.0
"""Seconds between two looks."""
MOST = 100
"""Largest number of steps between two looks."""


@dataclass(frozen=True)
class Look:
    """What all processes agreed on."""

    stop: bool = False
    save: bool = False
    """The last save is too long ago."""
    saving: bool = False
    """A save is still under way on some process."""


class Watch:
    """Exchanges a few flags between processes, on the CPU, about once a second.

    minutes: time between saves, in addition to those by steps; 0 = none.
    """

    def __init__(self, devices: Devices, minutes: float) -> None:
        self.devices, self.minutes = devices, minutes
        self.every_step = devices.world == 1 and devices.device.type == "cpu"  # where it costs nothing
        self.start(0)
        self.saved()

    def start(self, step: int) -> None:
        """Look up at the next step: a run starts here, or returned here."""
        self.next, self.looked = step, (step, time.monotonic())

    def saved(self) -> None:
        """Restart the clock of saves."""
        self.last_save = time.monotonic()

    def is_due(self, step: int) -> bool:
        return self.every_step or step >= self.next

    def look(self, step: int, stop: bool, saving: bool) -> Look:
        """Exchange the flags; all processes must call it at the same steps."""
        now, (before, then) = time.monotonic(), self.looked
        late = bool(self.minutes) and now - self.last_save > 60 * self.minutes
        seconds = (now - then) / max(step - before, 1)
        asked, due, busy, slowest = self.devices.largest([float(stop), float(late), float(saving), seconds])
        self.looked = (step, now)
        self.next = step + int(min(max(PAUSE / max(slowest, 1e-9), 1), MOST))
        return Look(asked > 0, due > 0, busy > 0)
