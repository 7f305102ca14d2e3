"""A batch of latents, as it is stored and as networks take it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lwd.compute.conditions import moved


@dataclass(frozen=True)
class Batch:
    """Normalised latents (b, c, h, w) float32, labels (b,), image numbers (b,), and alignment targets.

    Instead of labels there may be another condition with b rows, such as `lwd.Prompts`.
    """

    latents: Tensor
    labels: Any
    index: Tensor
    features: Tensor | None = None

    def to(self, device: torch.device | str) -> "Batch":
        """The batch on a device; copies from pinned memory do not wait."""
        latents = self.latents.to(device, non_blocking=True)
        features = None if self.features is None else self.features.to(device, non_blocking=True)
        return Batch(latents, moved(self.labels, device), self.index, features)


@dataclass(frozen=True)
class StoredBatch:
    """A batch as it is stored: latents (b, c, h, w) of each group and features in their own dtype."""

    parts: Sequence[Tensor]
    labels: Any
    index: Tensor
    features: Tensor | None
    scale: "Scale"

    def to(self, device: torch.device | str) -> Batch:
        """Convert and normalise on a device; the same bits as from `LatentReader.batch`."""
        latents = torch.cat([part.to(device, non_blocking=True).float() for part in self.parts], dim=1)
        factor, shift = self.scale.on(torch.device(device))
        features = None if self.features is None else self.features.to(device, non_blocking=True).float()
        return Batch(latents.mul_(factor).add_(shift), moved(self.labels, device), self.index, features)


class Scale:
    """Factor and shift of every channel, (c, 1, 1), copied to each device once."""

    def __init__(self, factor: Tensor, shift: Tensor) -> None:
        self._on = {torch.device("cpu"): (factor, shift)}

    def on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        if device not in self._on:
            factor, shift = self._on[torch.device("cpu")]
            self._on[device] = factor.to(device), shift.to(device)
        return self._on[device]
