"""Latents in memory, read like shards: for small sets and synthetic data."""

import hashlib

import numpy as np
import torch
from torch import Tensor

from lwd.compute.order import order
from lwd.errors import InputError
from lwd.groups import Layout
from lwd.latents.batch import Batch
from lwd.latents.statistics import Statistics


class MemoryReader:
    """Latents (n, c, h, w), already normalised, with labels (n,), integers from 0."""

    mirrored = False

    def __init__(
        self, latents: Tensor, labels: Tensor, layout: Layout, statistics: Statistics | None = None, classes: int = 0
    ) -> None:
        layout.check(latents)
        if labels.shape != (len(latents),) or not len(latents):
            raise InputError(f"{len(latents)} latents need {len(latents)} labels, got shape {tuple(labels.shape)}")
        if not torch.isfinite(latents).all():
            raise InputError("the latents contain NaN or infinity")
        self.latents, self.labels, self.layout = latents.float(), labels.to(torch.int64), layout
        self.size: tuple[int, ...] = tuple(latents.shape[2:])
        self.classes = classes or int(labels.max()) + 1
        if labels.min() < 0 or labels.max() >= self.classes:
            raise InputError(f"labels must be in 0..{self.classes - 1}, got {labels.min()} to {labels.max()}")
        self.statistics = statistics
        content = self.latents.contiguous().numpy().tobytes() + self.labels.numpy().tobytes()
        about = f"{layout} {self.classes}".encode()
        self.fingerprint = hashlib.sha256(about + content).hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.latents)

    def batch(self, step: int, batch: int, seed: int, rank: int = 0, world: int = 1, flip: bool | None = None) -> Batch:
        """Return this process's share of the global batch of `step`, in the same order as from shards."""
        if batch < 1 or batch % world or not 0 <= rank < world:
            raise InputError(f"a global batch of {batch} cannot be divided among {world} processes (rank {rank})")
        if flip:
            raise InputError("latents in memory have no mirrored copies; use flip=False")
        first = step * batch + rank * (batch // world)
        index = torch.from_numpy(order(len(self), seed, np.arange(first, first + batch // world)))
        return Batch(self.latents[index], self.labels[index], index)
