"""A flow to integrate, for step placement and solver benchmarks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lwd.compute.conditions import Rows
from lwd.groups import Layout
from lwd.path import Velocity
from lwd.sampler import sample
from lwd.schedule.base import Schedule
from lwd.solver import Solution


@dataclass(frozen=True)
class Flow:
    """A velocity under a schedule, for `count` seeds whose labels cycle through `labels`."""

    velocity: Velocity
    schedule: Schedule
    layout: Layout
    size: Sequence[int] = (16, 16)
    labels: Sequence[int] = (0,)
    count: int = 32
    device: torch.device | str = "cpu"
    dtype: torch.dtype = torch.float32
    first: int = 0
    """Seed of the first sample."""
    prompts: Rows | None = None
    """Conditions that the labels number, for networks that do not take labels."""

    def label(self, count: int) -> list[int]:
        """Return one label for each of `count` samples."""
        return [self.labels[i % len(self.labels)] for i in range(count)]

    def condition(self, count: int) -> Any:
        """Return what the network takes for each of `count` samples."""
        label = torch.tensor(self.label(count))
        return label.to(self.device) if self.prompts is None else self.prompts[label].to(self.device)

    def solve(self, **options: Any) -> Solution:
        """Sample `count` seeds from `first` on; options are those of `lwd.sample`."""
        where: dict[str, Any] = {"size": self.size, "device": self.device, "dtype": self.dtype}
        seeds, labels = range(self.first, self.first + self.count), self.condition(self.count)
        return sample(self.velocity, self.schedule, self.layout, seeds=seeds, labels=labels, **where, **options)

    def truth(self) -> Tensor:
        """Return the final states, accurate to about 1e-6."""
        return self.solve(rtol=1e-6, atol=1e-8, adaptive="sample", max_nfe=100_000).z
