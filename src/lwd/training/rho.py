"""The part of Stage I (Algorithm 1) that concerns rho: its optimizer, average, trace and verdict."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.schedule.learned import Learnable
from lwd.surfaces.verdict import Verdict, judge


class RhoAverage:
    """The buffer of Algorithm 1 as a running mean: rho after step s counts if s > burn_in."""

    def __init__(self, burn_in: int) -> None:
        if burn_in < 0:
            raise InputError(f"burn_in must be a number of steps >= 0, got {burn_in}")
        self.burn_in = burn_in
        self.count: Tensor | int = 0
        self.mean: Tensor | None = None

    def update(self, step: int, schedule: Learnable, weight: Tensor | int = 1) -> None:
        """Add rho after `step` to the mean (the first step is 1). weight: 0, perhaps on a device, leaves it out."""
        if step <= self.burn_in:
            return
        rho = schedule.rho.detach()
        mean = torch.zeros_like(rho) if self.mean is None else self.mean
        self.count = self.count + weight
        self.mean = mean + (rho - mean) * weight / (self.count + (1 - weight))

    def frozen(self, schedule: Learnable) -> Learnable:
        """Return a frozen copy of `schedule` at the mean of rho (not the mean of the curves)."""
        if self.mean is None or not self.count:
            raise InputError(f"there was no step after the burn-in of {self.burn_in}; run longer or lower the burn-in")
        return schedule.at(self.mean)


@dataclass
class RhoProbe:
    """Learns rho together with a denoiser: call `update` after each backward pass, and `finish` at the end.

    The denoiser and rho minimise the same loss; rho has its own optimizer (no weight decay) and learning rate.
    """

    schedule: Learnable
    lr: float = 0.01
    burn_in: int = 5000
    average: RhoAverage = field(init=False)
    trace: list[tuple[int, list[float]]] = field(default_factory=list)
    """rho at some steps, flattened, to plot how the curve moved."""

    def __post_init__(self) -> None:
        if not self.schedule.rho.numel():
            raise InputError("a single group has no schedule to learn; a probe needs at least two groups")
        self.schedule.rho.requires_grad_(True)
        self.optimizer = torch.optim.AdamW([self.schedule.rho], lr=self.lr, weight_decay=0.0, fused=True)
        self.average = RhoAverage(self.burn_in)

    def update(self, step: int, keep: bool, skip: Tensor | None = None) -> None:
        """Take one optimizer step of rho; keep: also add it to the trace; skip: 1 on the device leaves rho as it is."""
        self.optimizer.found_inf = skip  # type: ignore[attr-defined]
        self.optimizer.step()
        self.average.update(step, self.schedule, 1 if skip is None else 1 - skip)
        if keep:
            self.record(step)

    def record(self, step: int) -> None:
        self.trace.append((step, self.schedule.rho.detach().flatten().tolist()))

    def finish(self) -> tuple[Learnable, Verdict]:
        """Return the frozen schedule at the mean of rho after burn-in, and its verdict."""
        frozen = self.average.frozen(self.schedule).cpu()
        return frozen, judge(frozen, self.curves())

    def curves(self, points: int = 101) -> tuple[list[int], Tensor]:
        """Steps of the trace, and the times of the schedule at these steps: (steps, points, n)."""
        tau, steps, rows = torch.linspace(0, 1, points, dtype=torch.float64), [], []
        for step, rho in self.trace:
            steps.append(step)
            rows.append(self.schedule.at(torch.tensor(rho, dtype=torch.float64)).cpu().times(tau).detach())
        return steps, torch.stack(rows) if rows else torch.empty(0, points, len(self.schedule.groups))
