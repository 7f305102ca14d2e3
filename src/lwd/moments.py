"""Mean and covariance in one pass, in float64, in any chunks."""

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from lwd.errors import InputError


def as_features(x: Tensor, name: str = "features") -> Tensor:
    """A finite matrix (n, d) in float64."""
    x = torch.as_tensor(x)
    if x.ndim != 2 or not x.numel():
        raise InputError(f"{name} are a matrix (n, d) with at least one row, got shape {tuple(x.shape)}")
    x = x.detach().to("cpu", torch.float64)
    if not torch.isfinite(x).all():
        raise InputError(f"{name} hold NaN or infinity")
    return x


@dataclass
class Moments:
    """Streaming mean and scatter; merging parts in any order gives the same to rounding."""

    count: int = 0
    mean: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    scatter: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.float64))

    def update(self, features: Tensor) -> Self:
        """Take in rows (n, d); returns self."""
        x = as_features(features)
        mean = x.mean(0)
        centred = x - mean
        return self.merge(Moments(len(x), mean, centred.T @ centred))

    def merge(self, other: "Moments") -> Self:
        """Take in another part of the data (Chan's formula); returns self."""
        if not self.count:
            self.count, self.mean, self.scatter = other.count, other.mean, other.scatter
            return self
        if not other.count:
            return self
        if len(self.mean) != len(other.mean):
            raise InputError(f"features have {len(other.mean)} dimensions here and {len(self.mean)} before")
        total, delta = self.count + other.count, other.mean - self.mean
        self.scatter = self.scatter + other.scatter + torch.outer(delta, delta) * (self.count * other.count / total)
        self.mean = self.mean + delta * (other.count / total)
        self.count = total
        return self

    @property
    def covariance(self) -> Tensor:
        """With the divisor n - 1, as ADM's evaluator has it."""
        if self.count < 2:
            raise InputError(f"a covariance needs at least two rows, got {self.count}")
        return self.scatter / (self.count - 1)
