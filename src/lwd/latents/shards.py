"""Shards of latents in SFD's format: safetensors files with one row per image, read through memory maps.

Keys: `latents` (texture), `latents_sv` or `latents_dino` (semantic), `latents_NAME` (any other group), each with a
mirrored copy `..._flip`; `labels`; optionally `feats_dino` and its mirrored copy, the alignment targets.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.groups import Group, Layout
from lwd.io.files import check_file, sha256
from lwd.io.tensors import DTYPES, write_safetensors
from lwd.latents.formats import Manifest, ShardLine
from lwd.latents.statistics import Statistics, read_reference_statistics

MANIFEST = "manifest.json"
CAPTIONS = "captions.json"
FEATURES = "feats_dino"
MAX_HEADER = 2**20
TORCH = {name: dtype for dtype, name in DTYPES.items()}
INTEGERS = ("I64", "I32", "I16", "I8", "U8")
FLIP = "_flip"
STATISTICS_FILES = {
    "latents": "latents_stats.pt",
    "latents_sv": "latents_sv_stats.pt",
    "latents_dino": "latents_dino_stats.pt",
}


def group_key(group: str) -> str:
    """Return the key of a group's latents in new shards."""
    return {"texture": "latents", "semantic": "latents_sv"}.get(group, f"latents_{group}")


@dataclass(frozen=True)
class Entry:
    """One tensor of a shard: its dtype, shape and position in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def kind(self) -> torch.dtype:
        return TORCH[self.dtype]

    @property
    def row(self) -> tuple[int, ...]:
        """Shape of one row."""
        return self.shape[1:]

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.kind.itemsize


@dataclass(frozen=True)
class Shard:
    """The header of a shard, checked against the length of the file; the contents are read through `bytes`."""

    path: Path
    entries: Mapping[str, Entry]

    @property
    def count(self) -> int:
        return self.entries["labels"].shape[0]

    def bytes(self) -> Tensor:
        """Memory-map the file: nothing is read until it is used, and no file descriptor stays open."""
        try:
            size = self.path.stat().st_size
            content = torch.from_file(str(self.path), shared=False, size=size, dtype=torch.uint8)
        except (OSError, RuntimeError) as error:
            raise InputError(f"cannot map {self.path} into memory: {str(error).splitlines()[0]}") from error
        if any(entry.start + entry.size > size for entry in self.entries.values()):
            raise InputError(f"{self.path} was truncated to {size} bytes after it was opened")
        return content

    def load(self, key: str) -> Tensor:
        """Read a tensor, and nothing else, from the file."""
        entry = self.entries[key]
        try:
            with self.path.open("rb", buffering=0) as file:
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
                content = os.pread(file.fileno(), entry.size, entry.start)
        except OSError as error:
            raise InputError(f"cannot read {self.path}: {error.strerror or error}") from error
        if len(content) != entry.size:
            raise InputError(f"{self.path} was truncated after it was opened")
        if not content:
            return torch.empty(entry.shape, dtype=entry.kind)
        return torch.frombuffer(bytearray(content), dtype=entry.kind).reshape(entry.shape)

    def rows(self, key: str, content: Tensor) -> Tensor:
        """Return the bytes of a tensor, one row per image, as a view of `bytes()`."""
        entry = self.entries[key]
        width = math.prod(entry.row) * entry.kind.itemsize
        return content[entry.start : entry.start + entry.size].reshape(self.count, width)

    def read(self, key: str, content: Tensor, rows: slice = slice(None)) -> Tensor:
        """Copy some rows of a tensor; unlike `bytes()`, a copy is always aligned."""
        entry = self.entries[key]
        part = self.rows(key, content)[rows]
        return part.flatten().clone().view(entry.kind).reshape(len(part), *entry.row)


def open_shard(path: str | os.PathLike[str]) -> Shard:
    """Read the header of a shard; errors name a missing, truncated or malformed file."""
    path = Path(path)
    check_file(path)
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            head = file.read(length) if 0 < length <= MAX_HEADER else b""
        size = path.stat().st_size
        header = json.loads(head) if len(head) == length else None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a shard: its header is not JSON") from error
    if not isinstance(header, dict):
        raise InputError(f"{path} is not a shard, or is truncated")
    entries = {}
    for key, value in header.items():
        if key != "__metadata__":
            entries[key] = _entry(path, key, value, 8 + length, size)
    return _checked(Shard(path, entries))


def _entry(path: Path, key: str, value: Any, base: int, size: int) -> Entry:
    try:
        dtype, shape, (start, end) = value["dtype"], tuple(map(int, value["shape"])), map(int, value["data_offsets"])
        entry = Entry(dtype, shape, base + start)
        fits = start >= 0 and min(shape, default=0) >= 0 and end - start == entry.size
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{path}: the header's entry {key!r} is malformed ({error})") from error
    if not fits or base + end > size:
        raise InputError(f"{path} is truncated: {key!r} ends at byte {base + end}, the file has {size}")
    return entry


def _checked(shard: Shard) -> Shard:
    labels = shard.entries.get("labels")
    if labels is None or len(labels.shape) != 1:
        raise InputError(f"{shard.path} has no 'labels' (one per image); it has {', '.join(shard.entries)}")
    if labels.dtype not in INTEGERS:
        raise InputError(f"{shard.path}: 'labels' are {labels.dtype}, must be integers ({', '.join(INTEGERS)})")
    for key, entry in shard.entries.items():
        if not entry.shape or entry.shape[0] != shard.count:
            raise InputError(f"{shard.path}: {key!r} has shape {entry.shape} for {shard.count} labels")
        if key.startswith("latents") and (len(entry.shape) != 4 or not all(entry.row)):
            raise InputError(f"{shard.path}: {key!r} must be (n, channels, height, width), got {entry.shape}")
        if key.startswith(FEATURES) and (len(entry.shape) < 2 or not all(entry.row)):
            raise InputError(f"{shard.path}: {key!r} must be (n, features, ...), got {entry.shape}")
        if key.startswith(("latents", FEATURES)) and not entry.kind.is_floating_point:
            raise InputError(f"{shard.path}: {key!r} is {entry.dtype}, must be floating point (F32, F16, BF16, F64)")
        plain = shard.entries.get(key.removesuffix(FLIP), entry)
        if (entry.dtype, entry.shape) != (plain.dtype, plain.shape):
            raise InputError(
                f"{shard.path}: {key!r} is {entry.dtype} {entry.shape}, but its original is {plain.dtype} {plain.shape}"
            )
    return shard


def find_key(shard: Shard, group: str) -> str:
    """Return the key of a group's latents in a shard."""
    names = (group_key(group), "latents_dino") if group == "semantic" else (group_key(group),)
    found = next((name for name in names if name in shard.entries), None)
    if found is None:
        raise InputError(
            f"{shard.path} has no {' or '.join(names)} for the group {group!r}; it has {', '.join(shard.entries)}"
        )
    return found


def have_twins(shards: Sequence[Shard], wanted: Sequence[str]) -> bool:
    """Whether all latents have mirrored copies; an error if only some do, which would silently disable flips."""
    has = {(shard, key): key + FLIP in shards[shard].entries for shard in range(len(shards)) for key in wanted}
    if any(has.values()) and not all(has.values()):
        shard, key = next(place for place, there in has.items() if not there)
        raise InputError(f"{shards[shard].path} has no {key + FLIP!r}, but other latents have mirrored copies; add it")
    return all(has.values())


def write_shard(path: str | os.PathLike[str], tensors: Mapping[str, Tensor]) -> ShardLine:
    """Write one shard atomically; returns its entry for the manifest."""
    write_safetensors(path, tensors)
    shard = open_shard(path)
    return ShardLine(file=Path(path).name, count=shard.count, sha256=sha256(path))


def write_manifest(
    directory: str | os.PathLike[str],
    layout: Layout,
    classes: int,
    shards: Sequence[ShardLine],
    statistics: Statistics,
    provenance: Mapping[str, Any] | None = None,
) -> None:
    """Write the manifest of a directory of shards; done last, so that a directory with a manifest is complete."""
    manifest = Manifest(
        layout={group.name: group.channels for group in layout},
        classes=classes,
        count=sum(shard.count for shard in shards),
        shards=list(shards),
        statistics=statistics.groups(),
        provenance=dict(provenance or {}),
    )
    manifest.write(Path(directory) / MANIFEST)


def read_manifest(directory: str | os.PathLike[str]) -> Manifest | None:
    """Read the manifest of a directory; None if there is none (SFD's released shards)."""
    path = Path(directory) / MANIFEST
    return Manifest.read(path) if path.exists() else None


def manifest_layout(manifest: Manifest) -> Layout:
    """Return the layout in a manifest."""
    return Layout(tuple(Group(name, channels) for name, channels in manifest.layout.items()))


def released_statistics(directory: Path, keys: Mapping[str, str]) -> Statistics | None:
    """Read SFD's statistics files next to its shards, if all groups have one."""
    files = {group: directory / STATISTICS_FILES.get(key, f"{key}_stats.pt") for group, key in keys.items()}
    return read_reference_statistics(files) if all(path.is_file() for path in files.values()) else None
