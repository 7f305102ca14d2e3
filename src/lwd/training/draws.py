"""The randomness of a training step, as a function of (seed, attempt, step, index in the global batch) alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lwd.compute.order import mix
from lwd.schedule.base import Schedule


@dataclass(frozen=True)
class Draws:
    """tau (b,) float64, noise (b, c, ...) float32, and whose label is dropped (b,)."""

    tau: Tensor
    noise: Tensor
    dropped: Tensor
    local: Tensor
    """Independent local times (b, n), each group's spread evenly over [0, 1]; empty unless they are asked for."""

    def clocks(self, schedule: Schedule | None) -> tuple[Tensor, Tensor]:
        """Local times and rates (b, n): on the schedule, or, without one, anywhere in the box (all rates 1)."""
        if schedule is None:
            return self.local, torch.ones_like(self.local)
        return schedule.times(self.tau), schedule.rates(self.tau)


def draw(
    key: Sequence[int],
    batch: int,
    part: slice,
    shape: Sequence[int],
    tau: str = "uniform",
    label_drop: float = 0.0,
    device: torch.device | str = "cpu",
    groups: int = 0,
) -> Draws:
    """The rows `part` of the global batch's draws.

    Every process draws the whole batch and keeps its rows: a few milliseconds at ImageNet size, and nothing depends on
    how many processes share the work. Devices of another kind have other generators, so other (equally good) draws.
    groups: how many independent local times to draw as well.
    """
    generator = torch.Generator(device).manual_seed(mix(*key))
    options: Any = {"generator": generator, "device": device}
    clock = torch.rand(batch, dtype=torch.float64, **options)
    if tau == "logit-normal":
        clock = torch.sigmoid(torch.special.ndtri(clock.clamp(1e-12, 1 - 1e-12)))
    coin = torch.rand(batch, **options)
    noise = torch.randn(batch, *shape, **options)
    strata = [torch.randperm(batch, **options) for _ in range(groups)]
    local = torch.empty(batch, 0, dtype=torch.float64, device=device)
    if strata:
        inside = torch.rand(batch, groups, dtype=torch.float64, **options)
        local = (torch.stack(strata, 1) + inside) / batch
    return Draws(clock[part], noise[part], coin[part] < label_drop, local[part])
