"""One-pass mean and covariance in float64; parts can be merged in any order."""

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from lwd.errors import InputError

CHUNK = 2**21
"""Values per chunk in ChannelMoments: 16 MiB in float64, with a few copies in memory at a time."""


def as_features(x: Tensor, name: str = "features") -> Tensor:
    """Return a finite float64 matrix (n, d)."""
    x = torch.as_tensor(x)
    if x.ndim != 2 or not x.numel():
        raise InputError(f"{name} must be a matrix (n, d) with at least one row, got shape {tuple(x.shape)}")
    x = x.detach().to("cpu", torch.float64)
    if not torch.isfinite(x).all():
        raise InputError(f"{name} contain NaN or infinity")
    return x


@dataclass
class Moments:
    """Streaming mean and scatter (the sum of outer products of deviations), merged by Chan's formula."""

    count: int = 0
    mean: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    scatter: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))

    def update(self, features: Tensor) -> Self:
        """Add rows (n, d); returns self."""
        x = as_features(features)
        mean = x.mean(0)
        return self.merge(type(self)(len(x), mean, self._scatter(x - mean)))

    def merge(self, other: "Moments") -> Self:
        """Add the moments of another part of the data; returns self."""
        if not other.count:
            return self
        if not self.count:
            self.count, self.mean, self.scatter = other.count, other.mean, other.scatter
            return self
        if len(self.mean) != len(other.mean):
            raise InputError(f"features have {len(other.mean)} dimensions here and {len(self.mean)} before")
        total, delta = self.count + other.count, other.mean - self.mean
        between = self._scatter(delta[None]) * (self.count * other.count / total)
        self.scatter = self.scatter + other.scatter + between
        self.mean = self.mean + delta * (other.count / total)
        self.count = total
        return self

    @staticmethod
    def _scatter(centred: Tensor) -> Tensor:
        return centred.T @ centred

    @property
    def covariance(self) -> Tensor:
        """With the divisor n - 1, as in ADM's evaluator."""
        if self.count < 2:
            raise InputError(f"a covariance needs at least two rows, got {self.count}")
        return self.scatter / (self.count - 1)


class ChannelMoments(Moments):
    """Mean and variance of each channel of latents (b, c, ...); `scatter` holds only the sums of squares, (c,)."""

    def update(self, latents: Tensor) -> Self:
        """Add latents (b, c, ...); returns self, unchanged if some are NaN or infinite."""
        added = ChannelMoments()
        per_image = max(1, latents[:1].numel())
        for chunk in torch.split(latents.detach(), max(1, CHUNK // per_image)):
            rows = chunk.to(torch.float64).transpose(0, 1).flatten(1)
            if not torch.isfinite(rows).all():
                raise InputError("latents contain NaN or infinity; the encoder failed on some image")
            if rows.shape[1]:
                mean = rows.mean(1)
                added.merge(ChannelMoments(rows.shape[1], mean, (rows - mean[:, None]).square().sum(1)))
        return self.merge(added)

    @staticmethod
    def _scatter(centred: Tensor) -> Tensor:
        return centred.square().sum(0)

    @property
    def std(self) -> Tensor:
        """Standard deviation of each channel (divided by the count)."""
        if not self.count:
            raise InputError("there are no latents to compute statistics from")
        return (self.scatter / self.count).sqrt()
