"""Guard against steps that are not finite: their updates are skipped on the device, and the host reads counts later."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Review:
    """What the guard has seen, as numbers on the host."""

    bad: int
    """Non-finite steps in a row."""
    skipped: int
    """Non-finite steps in total."""
    last: int
    """The last non-finite step."""
    tripped: bool
    """Whether too many steps in a row were not finite; all steps after that are void."""


class Guard:
    """Counts on the device, so that no step waits for it.

    Once `limit` steps in a row were not finite, every later update is skipped and nothing is counted: what happens
    does not depend on when the host looks.
    """

    def __init__(self, device: torch.device, limit: int, bad: int = 0, skipped: int = 0) -> None:
        self.limit = limit
        self.bad, self.skipped, self.last = (torch.tensor(n, device=device) for n in (bad, skipped, 0))
        self.tripped = torch.tensor(False, device=device)

    def check(self, norm: Tensor, step: int) -> Tensor:
        """Count this step, and return 1 if its update must be skipped, else 0: float32, for AdamW's `found_inf`."""
        finite = torch.isfinite(norm)
        lost = ~finite & ~self.tripped
        self.skipped += lost
        self.last.masked_fill_(lost, step)
        self.bad = torch.where(self.tripped, self.bad, (self.bad + 1) * lost)
        self.tripped |= self.bad >= self.limit
        return (~finite | self.tripped).float()

    def review(self) -> Review:
        """Read the counts (waits for the device)."""
        bad, skipped, last, tripped = torch.stack([self.bad, self.skipped, self.last, self.tripped.long()]).tolist()
        return Review(bad, skipped, last, bool(tripped))
