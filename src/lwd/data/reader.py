"""The reader: shards opened once, batches gathered by shard, an order that is a function of (seed, epoch, position)."""

import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lwd.data.order import coin, order
from lwd.data.shards import (
    FEATURES,
    Shard,
    group_key,
    manifest_layout,
    manifest_statistics,
    open_shard,
    read_manifest,
    released_statistics,
    sha256,
)
from lwd.errors import InputError
from lwd.groups import Group, Layout
from lwd.representations.statistics import Statistics


@dataclass(frozen=True)
class Batch:
    """Normalised latents (b, c, h, w) float32, labels (b,), which images they are (b,), and alignment targets."""

    latents: Tensor
    labels: Tensor
    index: Tensor
    features: Tensor | None = None


class LatentReader:
    """A directory of shards, ours or SFD's as released.

    groups: names of the groups to read, in channel order (default: what the manifest says, or texture and semantic).
    statistics: by default the manifest's, or SFD's files beside the shards. features: also read alignment targets.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        groups: Sequence[str] | None = None,
        statistics: Statistics | None = None,
        features: bool = False,
        classes: int | None = None,
    ) -> None:
        directory = Path(directory)
        manifest = read_manifest(directory)
        self.shards = _open_all(directory, manifest)
        if groups is None:
            groups = manifest_layout(manifest).names if manifest else ("texture", "semantic")
        self.keys = {name: _key(self.shards[0], name) for name in groups}
        self.features = features
        wanted = (*self.keys.values(), *((FEATURES,) if features else ()))
        self.layout, self.size = _layout(self.shards, self.keys, wanted)
        self.statistics = statistics or _statistics(directory, manifest, self.keys)
        self.statistics.check(self.layout)
        self.ends = np.cumsum([shard.count for shard in self.shards])
        self.labels = torch.cat([shard.rows("labels")[:, 0].to(torch.int64) for shard in self.shards])
        self.classes = _classes(self.shards, self.labels, classes or (manifest["classes"] if manifest else None))
        self.mirrored = all(f"{key}_flip" in shard.entries for key in wanted for shard in self.shards)
        self._fingerprint = _fingerprint(manifest, self.shards, groups)
        self._maps: dict[tuple[int, str], Tensor] = {}
        mean, std = (torch.cat([part[name] for name in groups]) for part in (self.statistics.mean, self.statistics.std))
        self._scale, self._shift = (1 / std)[:, None, None], (-mean / std)[:, None, None]

    def __len__(self) -> int:
        return int(self.ends[-1])

    @property
    def fingerprint(self) -> str:
        """Which data these are: from the manifest's checksums, or from names and headers where there are none."""
        return self._fingerprint

    def gather(self, index: np.ndarray[Any, Any], flip: np.ndarray[Any, Any]) -> Batch:
        """The images `index` (b,), mirrored where `flip`; a loop over the shards touched, none over images."""
        shard_of = np.searchsorted(self.ends, index, side="right")
        row = index - np.where(shard_of > 0, self.ends[shard_of - 1], 0)
        parts = []
        for part in np.unique(2 * shard_of + flip):
            where = np.flatnonzero(2 * shard_of + flip == part)
            parts.append((int(part) // 2, int(part) % 2, torch.from_numpy(where), torch.from_numpy(row[where])))
        latents = torch.empty(len(index), self.layout.channels, *self.size)
        flat, start = latents.flatten(1), 0
        for key in self.keys.values():
            width = math.prod(self.shards[0].entries[key].shape[1:])
            self._fill(flat[:, start : start + width], key, parts)
            start += width
        for chunk in torch.split(latents, 16):  # small enough to stay in the cache between the two operations
            chunk.mul_(self._scale).add_(self._shift)
        features = None
        if self.features:
            features = torch.empty(len(index), *self.shards[0].entries[FEATURES].shape[1:])
            self._fill(features.flatten(1), FEATURES, parts)
        chosen = torch.from_numpy(index.astype(np.int64))
        return Batch(latents, self.labels[chosen], chosen, features)

    def _fill(self, out: Tensor, key: str, parts: list[tuple[int, int, Tensor, Tensor]]) -> None:
        for shard, twin, where, row in parts:
            out.index_copy_(0, where, self._rows(shard, key + ("_flip" if twin else "")).index_select(0, row).float())

    def _rows(self, shard: int, key: str) -> Tensor:
        if (shard, key) not in self._maps:
            self._maps[shard, key] = self.shards[shard].rows(key)
        return self._maps[shard, key]

    def batches(
        self, batch: int, seed: int, start: int = 0, rank: int = 0, world: int = 1, flip: bool | None = None
    ) -> Iterator[Batch]:
        """Batches without end from step `start` on; this process's share of each global batch of size `batch`.

        Which image stands at a position of the endless sequence, and whether it is mirrored, depends on
        (seed, position) alone: not on batch size, processes, or where one enters. flip: default, where shards have it.
        """
        for step in count(start):
            yield self.batch(step, batch, seed, rank, world, flip)

    def batch(self, step: int, batch: int, seed: int, rank: int = 0, world: int = 1, flip: bool | None = None) -> Batch:
        """One step of `batches`."""
        if batch < 1 or batch % world or not 0 <= rank < world:
            raise InputError(f"a global batch of {batch} cannot be shared by {world} processes (rank {rank})")
        if flip and not self.mirrored:
            raise InputError("these shards have no mirrored latents ('..._flip'), so flips cannot be had")
        mirror, share = self.mirrored if flip is None else flip, batch // world
        first = step * batch + rank * share
        positions = np.arange(first, first + share)
        return self.gather(order(len(self), seed, positions), mirror & coin(seed, positions))


def verify(directory: str | os.PathLike[str]) -> list[str]:
    """Everything that is wrong with a directory of shards, as sentences; empty if it is whole."""
    directory, problems = Path(directory), []
    if not directory.is_dir():
        return [f"{directory} is not a directory of shards"]
    manifest = read_manifest(directory)
    if manifest is None:
        return [f"{directory} has no manifest.json, so there are no checksums to verify"]
    for line in manifest["shards"]:
        path = directory / str(line.get("file"))
        try:
            count = open_shard(path).count
        except InputError as error:
            problems.append(str(error))
            continue
        if count != line.get("count"):
            problems.append(f"{path} has {count} images, the manifest says {line.get('count')}")
        elif sha256(path) != line.get("sha256"):
            problems.append(f"{path} was changed: its checksum is not the manifest's")
    listed = {str(line.get("file")) for line in manifest["shards"]}
    problems += [
        f"{path} is not in the manifest" for path in sorted(directory.glob("*.safetensors")) if path.name not in listed
    ]
    return problems


def _open_all(directory: Path, manifest: Mapping[str, Any] | None) -> list[Shard]:
    if not directory.is_dir():
        raise InputError(f"{directory} is not a directory of shards")
    names = (
        [str(line["file"]) for line in manifest["shards"]]
        if manifest
        else sorted(p.name for p in directory.glob("*.safetensors"))
    )
    if not names:
        raise InputError(f"{directory} holds no shards (*.safetensors)")
    shards = [open_shard(directory / name) for name in names]
    if manifest and sum(shard.count for shard in shards) != manifest["count"]:
        raise InputError(
            f"{directory} holds {sum(s.count for s in shards)} images, its manifest says {manifest['count']}"
        )
    return shards


def _key(shard: Shard, group: str) -> str:
    names = (group_key(group), "latents_dino") if group == "semantic" else (group_key(group),)
    found = next((name for name in names if name in shard.entries), None)
    if found is None:
        raise InputError(
            f"{shard.path} has no {' or '.join(names)} for the group {group!r}; it has {', '.join(shard.entries)}"
        )
    return found


def _layout(shards: Sequence[Shard], keys: Mapping[str, str], wanted: Sequence[str]) -> tuple[Layout, tuple[int, int]]:
    first = shards[0]
    for shard in shards:
        for key in wanted:
            if key not in shard.entries:
                raise InputError(f"{shard.path} has no {key!r}; it has {', '.join(shard.entries)}")
            if shard.entries[key].shape[1:] != first.entries[key].shape[1:]:
                here, there = shard.entries[key].shape[1:], first.entries[key].shape[1:]
                raise InputError(f"{shard.path}: {key!r} has rows of {here}, {first.path.name} of {there}")
    sizes = {first.entries[key].shape[2:] for key in keys.values()}
    if len(sizes) > 1:
        raise InputError(f"{first.path}: the groups have different grids {sorted(sizes)}")
    return Layout(tuple(Group(name, first.entries[key].shape[1]) for name, key in keys.items())), sizes.pop()  # type: ignore[return-value]


def _statistics(directory: Path, manifest: Mapping[str, Any] | None, keys: Mapping[str, str]) -> Statistics:
    if manifest:
        whole = manifest_statistics(manifest)
        return Statistics(
            {n: whole.mean[n] for n in keys if n in whole.mean}, {n: whole.std[n] for n in keys if n in whole.std}
        )
    found = released_statistics(directory, keys)
    if found is None:
        raise InputError(f"{directory} has no manifest.json and no latents_stats.pt files; pass statistics")
    return found


def _classes(shards: Sequence[Shard], labels: Tensor, classes: int | None) -> int:
    classes = int(labels.max()) + 1 if classes is None else classes
    start = 0
    for shard in shards:
        part = labels[start : start + shard.count]
        if shard.count and (part.min() < 0 or part.max() >= classes):
            raise InputError(f"{shard.path}: labels lie in 0..{classes - 1}, got {part.min()} to {part.max()}")
        start += shard.count
    return classes


def _fingerprint(manifest: Mapping[str, Any] | None, shards: Sequence[Shard], groups: Sequence[str]) -> str:
    lines = [f"{line.get('file')} {line.get('sha256')}" for line in manifest["shards"]] if manifest else []
    lines = lines or [f"{shard.path.name} {shard.entries}" for shard in shards]
    return hashlib.sha256("\n".join((*groups, *lines)).encode()).hexdigest()[:16]
