"""Per-channel mean and standard deviation of each group's latents, which normalise the network's input."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lwd.compute.moments import ChannelMoments
from lwd.errors import InputError
from lwd.groups import Layout
from lwd.io.tensors import read_pickle
from lwd.latents.formats import GroupStatistics, StatisticsFile


@dataclass(frozen=True)
class Statistics:
    """Mean and standard deviation by group, float32 vectors with one entry per channel."""

    mean: Mapping[str, Tensor]
    std: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        if set(self.mean) != set(self.std) or not self.mean:
            raise InputError(
                f"mean is for {', '.join(self.mean) or 'no group'}, but std for {', '.join(self.std) or 'no group'}"
            )
        for name, mean in self.mean.items():
            std = self.std[name]
            if mean.ndim != 1 or mean.shape != std.shape:
                raise InputError(
                    f"statistics of {name!r} need one mean and std per channel, got shapes {tuple(mean.shape)} "
                    f"and {tuple(std.shape)}"
                )
            if not (torch.isfinite(mean) & torch.isfinite(std) & (std > 0) & torch.isfinite(1 / std)).all():
                raise InputError(f"statistics of {name!r} must be finite, with every std > 0")

    def normalize(self, latents: Tensor, layout: Layout) -> Tensor:
        """(latents - mean) / std."""
        mean, std = self._tables(layout, latents)
        return (latents - mean) / std

    def denormalize(self, z: Tensor, layout: Layout) -> Tensor:
        """z std + mean."""
        mean, std = self._tables(layout, z)
        return z * std + mean

    def check(self, layout: Layout) -> None:
        """Raise an error if these statistics are for other groups or channels."""
        have = {name: len(mean) for name, mean in self.mean.items()}
        if have != {group.name: group.channels for group in layout}:
            given = ",".join(f"{name}={count}" for name, count in have.items())
            raise InputError(f"the statistics are for {given}, the layout is {layout}")

    def _tables(self, layout: Layout, like: Tensor) -> tuple[Tensor, Tensor]:
        self.check(layout)
        shape = (1, -1, *(1,) * (like.ndim - 2))
        mean, std = (
            torch.cat([part[n] for n in layout.names]).to(like).reshape(shape) for part in (self.mean, self.std)
        )
        return mean, std

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Statistics) and self.groups() == other.groups()

    __hash__ = object.__hash__

    def groups(self) -> dict[str, GroupStatistics]:
        """Return the records of a statistics file."""
        return {n: GroupStatistics(mean=self.mean[n].tolist(), std=self.std[n].tolist()) for n in self.mean}


def statistics_of(moments: Mapping[str, ChannelMoments]) -> Statistics:
    """Compute statistics from the moments of each group."""
    means, stds = ({n: getattr(m, part).float() for n, m in moments.items()} for part in ("mean", "std"))
    return Statistics(means, stds)


def unit_statistics(layout: Layout) -> Statistics:
    """Mean 0 and standard deviation 1: latents that stay as they are."""
    zeros = {group.name: torch.zeros(group.channels) for group in layout}
    return Statistics(zeros, {name: torch.ones_like(mean) for name, mean in zeros.items()})


def save_statistics(statistics: Statistics, path: str | os.PathLike[str]) -> None:
    """Write as JSON; float32 values round-trip bit for bit."""
    StatisticsFile(groups=statistics.groups()).write(path)


def load_statistics(path: str | os.PathLike[str]) -> Statistics:
    """Read a statistics file."""
    try:
        return statistics_from(StatisticsFile.read(path).groups)
    except InputError as error:
        raise InputError(str(error) if str(path) in str(error) else f"{path}: {error}") from error


def statistics_from(groups: Mapping[str, GroupStatistics]) -> Statistics:
    """Build statistics from the records of a file."""
    parts = {key: {name: _vector(getattr(row, key)) for name, row in groups.items()} for key in ("mean", "std")}
    return Statistics(**parts)


def read_reference_statistics(files: Mapping[str, str | os.PathLike[str]]) -> Statistics:
    """Read SFD's `latents_stats.pt` files, one per group: {'mean', 'std'} of shape (1, c, 1, 1)."""
    mean, std = {}, {}
    for name, path in files.items():
        value = read_pickle(path)
        if not isinstance(value, Mapping) or not {"mean", "std"} <= value.keys():
            raise InputError(f"{path} must contain a dictionary with 'mean' and 'std'")
        try:
            mean[name], std[name] = (_vector(value[key]) for key in ("mean", "std"))
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise InputError(f"{path}: 'mean' and 'std' must be tensors of numbers ({error})") from error
    return Statistics(mean, std)


def _vector(value: Any) -> Tensor:
    return torch.as_tensor(value, dtype=torch.float32).reshape(-1).clone()
