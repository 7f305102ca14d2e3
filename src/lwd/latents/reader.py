"""Reading batches from shards, in an order that depends only on (seed, epoch, position)."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lwd.compute.order import coin, order
from lwd.errors import InputError
from lwd.groups import Group, Layout
from lwd.latents.batch import Batch, Scale, StoredBatch
from lwd.latents.files import OpenFiles, read_at_random, waits, will_need
from lwd.latents.formats import CaptionsFile, Manifest
from lwd.latents.shards import (
    CAPTIONS,
    FEATURES,
    FLIP,
    Shard,
    find_key,
    have_twins,
    manifest_layout,
    open_shard,
    read_manifest,
    released_statistics,
)
from lwd.latents.statistics import Statistics, statistics_from

CHUNK = 32  # rows copied and normalised at a time: few enough to stay in the CPU cache
MAX_SEED = 2**63 - 1
HINTS = 16
"""Batches whose rows are announced to the system after one that had to wait for the disk."""


class LatentReader:
    """Read a directory of shards, written by lwd or released by SFD.

    groups: names of the groups to read, in channel order (default: those of the manifest, or texture and semantic).
    statistics: by default those of the manifest, or of SFD's files next to the shards. features: also read alignment
    targets.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        groups: Sequence[str] | None = None,
        statistics: Statistics | None = None,
        features: bool = False,
        classes: int | None = None,
    ) -> None:
        self.directory = directory = Path(directory)
        manifest = read_manifest(directory)
        self.shards = _open_all(directory, manifest)
        if groups is None:
            groups = manifest_layout(manifest).names if manifest else ("texture", "semantic")
        self.keys = {name: find_key(self.shards[0], name) for name in groups}
        self.features = features
        wanted = (*self.keys.values(), *((FEATURES,) if features else ()))
        self.layout, self.size = _layout(self.shards, self.keys, wanted)
        if manifest:
            _check_layout(directory, manifest_layout(manifest), self.layout)
        self.statistics = statistics or _statistics(directory, manifest, self.keys)
        self.statistics.check(self.layout)
        self.ends = np.cumsum([shard.count for shard in self.shards])
        self.labels = torch.cat([shard.load("labels").to(torch.int64) for shard in self.shards])
        self.classes = _classes(self.shards, self.labels, classes or (manifest.classes if manifest else None))
        self.class_names = manifest.class_names if manifest and manifest.classes == self.classes else ()
        self.encoders = manifest.encoders if manifest else {}
        self.mirrored = have_twins(self.shards, wanted)
        self._fingerprint = _fingerprint(manifest, self.shards, groups)
        self._wanted = (*wanted, *(key + FLIP for key in wanted)) if self.mirrored else wanted
        self._maps: dict[int, dict[str, np.ndarray[Any, Any]]] = {}
        mean, std = (torch.cat([part[name] for name in groups]) for part in (self.statistics.mean, self.statistics.std))
        self._scale = Scale((1 / std)[:, None, None], (-mean / std)[:, None, None])
        self._files = OpenFiles([shard.path for shard in self.shards])
        self._hints = 0

    def __len__(self) -> int:
        return int(self.ends[-1])

    @cached_property
    def captions(self) -> list[str]:
        """One text for each image; empty if the shards have none."""
        if not (self.directory / CAPTIONS).is_file():
            return []
        texts = CaptionsFile.read(self.directory / CAPTIONS).captions
        if len(texts) != len(self):
            raise InputError(f"{self.directory / CAPTIONS} has {len(texts)} captions for {len(self)} images")
        return texts

    @property
    def fingerprint(self) -> str:
        """Identifies the data: from the manifest's checksums, or from names and headers if there is no manifest."""
        return self._fingerprint

    @property
    def feature_width(self) -> int | None:
        """Channels of the alignment targets; None if they are not read."""
        return self.shards[0].entries[FEATURES].shape[1] if self.features else None

    def gather(self, index: np.ndarray[Any, Any], flip: np.ndarray[Any, Any]) -> Batch:
        """Return the images `index` (b,), mirrored where `flip`; each row is copied once, from a memory map."""
        picks = self._picks(index, flip)
        self._map({shard for shard, _, _ in picks})
        before = waits()
        if self._hints:
            self._announce(picks)
        latents = torch.empty(len(index), self.layout.channels, *self.size)
        features = torch.empty(len(index), *self.shards[0].entries[FEATURES].row) if self.features else None
        factor, shift = self._scale.on(latents.device)
        for low in range(0, len(index), CHUNK):
            here = slice(low, low + CHUNK)
            chunk = latents[here]
            for part, key in zip(chunk.split_with_sizes(self.layout.sizes, 1), self.keys.values(), strict=True):
                self._fill(part.flatten(1), key, picks[here])
            chunk.mul_(factor).add_(shift)
            if features is not None:
                self._fill(features[here].flatten(1), FEATURES, picks[here])
        # Once a batch had to wait for the disk, the rows of the next ones are announced before they are copied.
        self._hints = HINTS if waits() > before else max(0, self._hints - 1)
        chosen = torch.from_numpy(index.astype(np.int64))
        return Batch(latents, self.labels[chosen], chosen, features)

    def gather_stored(self, index: np.ndarray[Any, Any], flip: np.ndarray[Any, Any], pin: bool = False) -> StoredBatch:
        """Read the same rows as they are stored, with one call for each; threads may read several batches at once.

        pin: into memory from which a GPU copies without waiting.
        """
        picks = self._picks(index, flip)
        keys = (*self.keys.values(), *((FEATURES,) if self.features else ()))
        found = []
        for key in keys:
            entry = self.shards[0].entries[key]
            found.append(torch.empty(len(index), *entry.row, dtype=entry.kind, pin_memory=pin))
        for low in range(0, len(index), CHUNK):
            rows = picks[low : low + CHUNK]
            with self._files.take(shard for shard, _, _ in rows) as handles:
                for key, out in zip(keys, found, strict=True):
                    self._read(out[low : low + CHUNK], key, rows, handles)
        chosen = torch.from_numpy(index.astype(np.int64))
        labels = self.labels[chosen].pin_memory() if pin else self.labels[chosen]
        features = found.pop() if self.features else None
        return StoredBatch(found, labels, chosen, features, self._scale)

    def _read(self, out: Tensor, key: str, rows: Sequence[tuple[int, int, bool]], handles: Mapping[int, int]) -> None:
        width, names = out[0].numel() * out.element_size(), (key, key + FLIP)
        place = memoryview(out.flatten().view(torch.uint8).numpy())  # type: ignore[arg-type]
        for i, (shard, row, flip) in enumerate(rows):
            start = self.shards[shard].entries[names[flip]].start + row * width
            self._files.read(shard, handles[shard], place[i * width : (i + 1) * width], start)

    def _picks(self, index: np.ndarray[Any, Any], flip: np.ndarray[Any, Any]) -> list[tuple[int, int, bool]]:
        """Shard, row and whether it is mirrored, of every image."""
        if len(index) and not 0 <= index.min() <= index.max() < len(self):
            raise InputError(f"image numbers must be in 0..{len(self) - 1}, got {index.min()} to {index.max()}")
        shard_of = np.searchsorted(self.ends, index, side="right")
        row = index - np.where(shard_of > 0, self.ends[shard_of - 1], 0)
        return list(zip(shard_of.tolist(), row.tolist(), flip.tolist(), strict=True))

    def _announce(self, picks: Sequence[tuple[int, int, bool]]) -> None:
        for key in (*self.keys.values(), *((FEATURES,) if self.features else ())):
            names = (key, key + FLIP)
            for shard, row, flip in picks:
                rows = self._maps[shard][names[flip]]
                will_need(rows.ctypes.data + row * rows.shape[1], rows.shape[1])

    def ignore_labels(self) -> None:
        """Make all images one class, for training without labels."""
        self.labels, self.classes, self.class_names = torch.zeros_like(self.labels), 1, ()

    def _fill(self, out: Tensor, key: str, picks: Sequence[tuple[int, int, bool]]) -> None:
        """Copy rows one by one: unlike grouping by shard, this costs the same for any number of shards."""
        kind, names = self.shards[0].entries[key].kind, (key, key + FLIP)
        raw = out if kind == torch.float32 else torch.empty(out.shape, dtype=kind)
        place, maps = raw.view(torch.uint8).numpy(), self._maps
        for i, (shard, row, flip) in enumerate(picks):
            place[i] = maps[shard][names[flip]][row]
        if raw is not out:
            out.copy_(raw)

    def _map(self, shards: set[int]) -> None:
        for number in shards - self._maps.keys():
            shard, content = self.shards[number], self.shards[number].bytes()
            read_at_random(content.data_ptr(), len(content))
            self._maps[number] = {key: shard.rows(key, content).numpy() for key in self._wanted}

    def batches(
        self, batch: int, seed: int, start: int = 0, rank: int = 0, world: int = 1, flip: bool | None = None
    ) -> Iterator[Batch]:
        """Yield batches without end from step `start` on: this process's share of each global batch of size `batch`.

        The image at a position of the endless sequence, and whether it is mirrored, depends only on (seed, position),
        not on the batch size, the number of processes or `start`. flip: by default, if shards have mirrored latents.
        """
        for step in count(start):
            yield self.batch(step, batch, seed, rank, world, flip)

    def batch(self, step: int, batch: int, seed: int, rank: int = 0, world: int = 1, flip: bool | None = None) -> Batch:
        """Return the batch of one step, as in `batches`."""
        return self.gather(*self._sequence(step, batch, seed, (rank, world), flip))

    def stored(
        self, step: int, batch: int, seed: int, rank: int = 0, world: int = 1, flip: bool | None = None
    ) -> StoredBatch:
        """Return the batch of one step as it is stored, in pinned memory where there is a GPU."""
        index, mirror = self._sequence(step, batch, seed, (rank, world), flip)
        return self.gather_stored(index, mirror, torch.cuda.is_available())

    def _sequence(
        self, step: int, batch: int, seed: int, share: tuple[int, int], flip: bool | None
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Image numbers of a step, and whether each is mirrored."""
        rank, world = share
        if batch < 1 or batch % world or not 0 <= rank < world:
            raise InputError(f"a global batch of {batch} cannot be divided among {world} processes (rank {rank})")
        if not 0 <= seed <= MAX_SEED or step < 0:
            raise InputError(f"seed must be 0..2**63 - 1 and step at least 0, got seed {seed} and step {step}")
        if flip and not self.mirrored:
            raise InputError("these shards have no mirrored latents ('..._flip'); use flip=False")
        mirror, count = self.mirrored if flip is None else flip, batch // world
        first = step * batch + rank * count
        positions = np.arange(first, first + count)
        return order(len(self), seed, positions), mirror & coin(seed, positions)


def _open_all(directory: Path, manifest: Manifest | None) -> list[Shard]:
    if not directory.is_dir():
        raise InputError(f"{directory} is not a directory of shards")
    names = (
        [line.file for line in manifest.shards] if manifest else sorted(p.name for p in directory.glob("*.safetensors"))
    )
    if not names:
        raise InputError(f"{directory} has no shards (*.safetensors)")
    shards = [open_shard(directory / name) for name in names]
    if manifest and sum(shard.count for shard in shards) != manifest.count:
        count = sum(shard.count for shard in shards)
        raise InputError(f"{directory} has {count} images, but its manifest lists {manifest.count}")
    if not any(shard.count for shard in shards):
        raise InputError(f"{directory} has {len(shards)} shards without a single image")
    return shards


def _layout(shards: Sequence[Shard], keys: Mapping[str, str], wanted: Sequence[str]) -> tuple[Layout, tuple[int, int]]:
    first = shards[0]
    for shard in shards:
        for key in wanted:
            if key not in shard.entries:
                raise InputError(f"{shard.path} has no {key!r}; it has {', '.join(shard.entries)}")
            here, there = shard.entries[key], first.entries[key]
            if (here.dtype, here.row) != (there.dtype, there.row):
                raise InputError(
                    f"{shard.path}: {key!r} has rows of {here.dtype} {here.row}, "
                    f"{first.path.name} of {there.dtype} {there.row}; encode all shards with the same settings"
                )
    sizes = {first.entries[key].shape[2:] for key in keys.values()}
    if len(sizes) > 1:
        raise InputError(f"{first.path}: the groups have different grids {sorted(sizes)}")
    return Layout(tuple(Group(name, first.entries[key].shape[1]) for name, key in keys.items())), sizes.pop()  # type: ignore[return-value]


def _check_layout(directory: Path, listed: Layout, found: Layout) -> None:
    channels = {group.name: group.channels for group in listed}
    for group in found:
        if channels.get(group.name, group.channels) != group.channels:
            raise InputError(f"{directory}: the manifest's layout is {listed}, but the shards have {found}")


def _statistics(directory: Path, manifest: Manifest | None, keys: Mapping[str, str]) -> Statistics:
    if manifest:
        missing = [name for name in keys if name not in manifest.statistics]
        if missing:
            raise InputError(f"{directory}: the manifest has no statistics of {', '.join(missing)}; pass statistics")
        listed = statistics_from(manifest.statistics)
        return Statistics({name: listed.mean[name] for name in keys}, {name: listed.std[name] for name in keys})
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
            raise InputError(f"{shard.path}: labels must be in 0..{classes - 1}, got {part.min()} to {part.max()}")
        start += shard.count
    return classes


def fingerprint_of(directory: str | os.PathLike[str], groups: Sequence[str] = ()) -> str:
    """The fingerprint of a reader of this directory, from its manifest alone if it has one."""
    manifest = read_manifest(directory)
    if manifest is None or not manifest.shards:
        return LatentReader(directory, groups or None).fingerprint
    return _fingerprint(manifest, (), groups or manifest_layout(manifest).names)


def _fingerprint(manifest: Manifest | None, shards: Sequence[Shard], groups: Sequence[str]) -> str:
    lines = [f"{line.file} {line.sha256}" for line in manifest.shards] if manifest else []
    lines = lines or [f"{shard.path.name} {shard.entries}" for shard in shards]
    return hashlib.sha256("\n".join((*groups, *lines)).encode()).hexdigest()[:16]
