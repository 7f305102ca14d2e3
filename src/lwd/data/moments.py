"""Exact streaming mean and variance per channel: the same for any chunking, and mergeable."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from lwd.errors import InputError

CHUNK = 2**21  # numbers taken at once: 16 MiB in float64, of which a handful of copies exist at a time


@dataclass
class ChannelMoments:
    """Count, mean and sum of squared deviations per channel, in float64 (Chan, Golub & LeVeque's merge)."""

    count: int = 0
    mean: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    squares: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))

    def update(self, latents: Tensor) -> "ChannelMoments":
        """Take in latents (b, c, ...); returns self, unchanged if some are NaN or infinite."""
        found = ChannelMoments()
        per_image = max(1, latents[:1].numel())
        for chunk in torch.split(latents.detach(), max(1, CHUNK // per_image)):
            rows = chunk.to(torch.float64).transpose(0, 1).flatten(1)
            if not torch.isfinite(rows).all():
                raise InputError("latents hold NaN or infinity; their encoder failed on some image")
            if rows.shape[1]:
                mean = rows.mean(1)
                found.merge(ChannelMoments(rows.shape[1], mean, (rows - mean[:, None]).square().sum(1)))
        return self.merge(found)

    def merge(self, other: "ChannelMoments") -> "ChannelMoments":
        """Take in another part of the data; returns self."""
        if not other.count:
            return self
        if not self.count:
            self.count, self.mean, self.squares = other.count, other.mean, other.squares
            return self
        total = self.count + other.count
        delta = other.mean - self.mean
        self.mean = self.mean + delta * (other.count / total)
        self.squares = self.squares + other.squares + delta.square() * (self.count * other.count / total)
        self.count = total
        return self

    @property
    def std(self) -> Tensor:
        """Standard deviation per channel (divided by the count)."""
        if not self.count:
            raise InputError("there are no latents to take statistics of")
        return (self.squares / self.count).sqrt()
