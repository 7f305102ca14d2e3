"""The processes of one fit (torchrun): each computes its share of a batch, gradients are averaged, rank 0 writes."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from lwd.compute.moments import Moments
from lwd.errors import InputError
from lwd.io.jobs import process

Index = np.ndarray[Any, Any]
Value = TypeVar("Value")
Part = TypeVar("Part", bound=Moments)


class Processes:
    """Rank and number of the processes that share a fit; batch: images per step, over all of them."""

    def __init__(self, batch: int, device: str = "cpu") -> None:
        self.batch = batch
        self.rank, self.world = process()
        self.main = self.rank == 0
        if batch % self.world:
            raise InputError(
                f"a batch of {batch} cannot be divided among {self.world} processes; use a multiple", argument="batch"
            )
        if self.world > 1 and not dist.is_initialized():
            self._connect(torch.device(device))

    def _connect(self, device: torch.device) -> None:
        backend = "gloo"
        if device.type == "cuda":
            torch.cuda.set_device(device)
            backend = "cpu:gloo,cuda:nccl"
        try:
            # Long: the others wait while the main process reads all held-out images.
            dist.init_process_group(backend, timeout=timedelta(hours=2))
        except (ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"cannot reach the other {self.world - 1} processes ({reason}); use torchrun") from error

    def positions(self, step: int) -> Index:
        """Positions of this process's images of a step, in the endless order of images."""
        share = self.batch // self.world
        first = step * self.batch + self.rank * share
        return np.arange(first, first + share)

    def noise(self, count: int, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Noise for the first `count` images of this process's share; the same draws for any number of processes."""
        if self.world == 1:
            return torch.randn(count, *shape, generator=generator)
        first = self.rank * (self.batch // self.world)
        return torch.randn(self.batch, *shape, generator=generator)[first : first + count]

    def weigh(self, loss: Tensor, count: int) -> Tensor:
        """Scale the mean loss of `count` images so that the mean over processes is that over all images."""
        if self.world == 1:
            return loss
        total = torch.tensor(float(count))
        dist.all_reduce(total)
        return loss * (count * self.world / float(total))

    def average(self, model: nn.Module) -> None:
        """Average the gradients over processes."""
        if self.world == 1:
            return
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        flat = torch.cat([(torch.zeros_like(w) if w.grad is None else w.grad).flatten() for w in weights])
        dist.all_reduce(flat)
        parts = (flat / self.world).split_with_sizes([weight.numel() for weight in weights])
        for weight, part in zip(weights, parts, strict=True):
            weight.grad = part.view_as(weight)

    def mean(self, value: float) -> float:
        """The mean over processes."""
        if self.world == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(total)
        return float(total) / self.world

    def share(self, index: Index) -> Index:
        """Every world-th batch of images, for one pass over them."""
        batches = [index[low : low + self.batch] for low in range(0, len(index), self.batch)]
        mine = batches[self.rank :: self.world]
        return np.concatenate(mine) if mine else index[:0]

    def merge(self, mine: Part) -> Part:
        """The moments of all processes, in the order of their ranks; equal on all of them."""
        found: list[Any] = [None] * self.world
        if self.world > 1:
            dist.all_gather_object(found, (mine.count, mine.mean, mine.scatter))
            mine = type(mine)()
            for part in found:
                mine.merge(type(mine)(*part))
        return mine

    def from_main(self, value: Value) -> Value:
        """The main process's value, on all processes; they wait for it."""
        if self.world == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]
