"""The random draws of a training step, which depend only on (seed, attempt, step, index in the global batch)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lwd.compute.order import mix
from lwd.schedule.base import Schedule


@dataclass(frozen=True)
class Draws:
    """tau (b,) float64, noise (b, c, ...) float32, and which labels are dropped (b,)."""

    tau: Tensor
    noise: Tensor
    dropped: Tensor
    local: Tensor
    """Independent local times (b, n), stratified for each group; empty unless requested."""
    local_rates: Tensor | None = None
    """Rates (b, n) at the local times; by default 1."""

    def clocks(self, schedule: Schedule | None) -> tuple[Tensor, Tensor]:
        """Local times and rates (b, n) of the schedule, or independent ones without one."""
        if schedule is None:
            return self.local, torch.ones_like(self.local) if self.local_rates is None else self.local_rates
        return schedule.times(self.tau), schedule.rates(self.tau)


@dataclass(frozen=True)
class Focus:
    """Schedules that see more training: this share of the independent times is replaced by theirs, in turn."""

    schedules: Sequence[Schedule] = ()
    share: float = 0.0

    def to_dict(self) -> dict[str, Any] | None:
        """The schedules, for comparison with an earlier run; None without any."""
        return {"focus": [schedule.to_dict() for schedule in self.schedules]} if self.schedules else None

    def __call__(self, draws: Draws, first: int) -> Draws:
        """Replace rows, chosen by their number in the global batch; `first` is that of the first row."""
        if not self.schedules:
            return draws
        times, rates = draws.clocks(None)
        place = ((first + torch.arange(len(times) + 1, dtype=torch.float64)) * self.share).floor().long()
        for k, schedule in enumerate(self.schedules):
            chosen = (place.diff() > 0) & (place[:-1] % len(self.schedules) == k)
            rows = chosen.to(times.device, non_blocking=True)[:, None]
            there, speeds = draws.clocks(schedule)
            times, rates = torch.where(rows, there, times), torch.where(rows, speeds, rates)
        return replace(draws, local=times, local_rates=rates)


def draw(
    key: Sequence[int],
    shape: Sequence[int],
    part: slice,
    tau: str | tuple[str, float] = "uniform",
    label_drop: float = 0.0,
    device: torch.device | str = "cpu",
    groups: int = 0,
) -> Draws:
    """Return the rows `part` of the draws of the global batch, whose noise has this shape: (batch, c, ...).

    Every process draws the full batch and keeps its rows: this takes a few milliseconds at ImageNet size, and results
    do not depend on the number of processes. Other kinds of devices have other generators, and so other draws.
    tau: distribution of the times: uniform, or logit-normal, the latter also with the mean of its logit. groups: number
    of independent local times to draw as well.
    """
    batch = shape[0]
    generator = torch.Generator(device).manual_seed(mix(*key))
    options: Any = {"generator": generator, "device": device}
    clock = _distributed(torch.rand(batch, dtype=torch.float64, **options), tau)
    coin = torch.rand(batch, **options)
    noise = torch.randn(*shape, **options)
    strata = [torch.randperm(batch, **options) for _ in range(groups)]
    local = torch.empty(batch, 0, dtype=torch.float64, device=device)
    if strata:
        inside = torch.rand(batch, groups, dtype=torch.float64, **options)
        local = _distributed((torch.stack(strata, 1) + inside) / batch, tau)
    return Draws(clock[part], noise[part], coin[part] < label_drop, local[part])


def _distributed(uniform: Tensor, how: str | tuple[str, float]) -> Tensor:
    """Map uniform numbers to times of the distribution."""
    kind, mean = (how, 0.0) if isinstance(how, str) else how
    if kind == "uniform":
        return uniform
    return torch.sigmoid(mean + torch.special.ndtri(uniform.clamp(1e-12, 1 - 1e-12)))
