"""Shards of latents in SFD's format: safetensors files with one row per image, read through memory maps.

Keys: `latents` (texture), `latents_sv` or `latents_dino` (semantic), `latents_NAME` (any other group), each with a
mirrored twin `..._flip`; `labels`; optionally `feats_dino` and its twin, the alignment targets.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.files import read_json, write_json
from lwd.groups import Group, Layout
from lwd.representations.statistics import Statistics, read_reference_statistics
from lwd.weights import write_safetensors

FORMAT = "lwd.shards"
VERSION = 1
MANIFEST = "manifest.json"
FEATURES = "feats_dino"
MAX_HEADER = 2**20
NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "U8": "|u1"}
STATISTICS_FILES = {
    "latents": "latents_stats.pt",
    "latents_sv": "latents_sv_stats.pt",
    "latents_dino": "latents_dino_stats.pt",
}


def group_key(group: str) -> str:
    """The key under which a group's latents are written."""
    return {"texture": "latents", "semantic": "latents_sv"}.get(group, f"latents_{group}")


@dataclass(frozen=True)
class Entry:
    """One tensor of a shard: where its rows lie in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(NUMPY[self.dtype]).itemsize


@dataclass(frozen=True)
class Shard:
    """A shard's header, checked against the file's length; rows are read by `rows`."""

    path: Path
    entries: Mapping[str, Entry]

    @property
    def count(self) -> int:
        return self.entries["labels"].shape[0]

    def rows(self, key: str) -> Tensor:
        """A tensor of the shard as (count, numbers per row), memory-mapped: nothing is read until it is used."""
        entry = self.entries[key]
        # Mode "c": torch wants writable memory; what is written would stay private, and nothing is.
        mapped = np.memmap(self.path, NUMPY[entry.dtype], "c", entry.start, entry.shape)
        rows = torch.from_numpy(mapped).reshape(self.count, -1)
        return rows.view(torch.bfloat16) if entry.dtype == "BF16" else rows


def open_shard(path: str | os.PathLike[str]) -> Shard:
    """Read a shard's header; a missing, truncated or malformed file is named."""
    path = Path(path)
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
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: the header's entry {key!r} is malformed ({error})") from error
    if not fits or base + end > size:
        raise InputError(f"{path} is truncated: {key!r} ends at byte {base + end}, the file has {size}")
    return entry


def _checked(shard: Shard) -> Shard:
    if "labels" not in shard.entries or len(shard.entries["labels"].shape) != 1:
        raise InputError(f"{shard.path} has no 'labels' (one per image); it has {', '.join(shard.entries)}")
    for key, entry in shard.entries.items():
        if not entry.shape or entry.shape[0] != shard.count:
            raise InputError(f"{shard.path}: {key!r} has shape {entry.shape} for {shard.count} labels")
        if key.startswith("latents") and len(entry.shape) != 4:
            raise InputError(f"{shard.path}: {key!r} must be (n, channels, height, width), got {entry.shape}")
    return shard


def write_shard(path: str | os.PathLike[str], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Write one shard atomically; returns its line of the manifest."""
    write_safetensors(path, tensors)
    shard = open_shard(path)
    return {"file": Path(path).name, "count": shard.count, "sha256": sha256(path)}


def write_manifest(
    directory: str | os.PathLike[str],
    layout: Layout,
    classes: int,
    shards: Sequence[Mapping[str, Any]],
    statistics: Statistics,
    provenance: Mapping[str, Any] | None = None,
) -> None:
    """Say what a directory of shards holds; written last, so that a directory with a manifest is whole."""
    value = {
        "format": FORMAT,
        "version": VERSION,
        "layout": {group.name: group.channels for group in layout},
        "classes": classes,
        "count": sum(int(shard["count"]) for shard in shards),
        "shards": [dict(shard) for shard in shards],
        "statistics": statistics.to_dict()["groups"],
    }
    write_json(Path(directory) / MANIFEST, value | ({"provenance": dict(provenance)} if provenance else {}))


def read_manifest(directory: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The manifest of a directory of ours; None where there is none (SFD's released shards)."""
    path = Path(directory) / MANIFEST
    if not path.exists():
        return None
    value = read_json(path)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise InputError(f'{path} is not a manifest of shards ("format" must be "{FORMAT}")')
    if value.get("version") != VERSION:
        raise InputError(f"{path} has version {value.get('version')!r}, this lwd reads {VERSION}")
    for key, kind in (("layout", dict), ("classes", int), ("count", int), ("shards", list), ("statistics", dict)):
        if not isinstance(value.get(key), kind):
            raise InputError(f"{path} needs the key {key!r} ({kind.__name__})")
    return value


def manifest_layout(manifest: Mapping[str, Any]) -> Layout:
    """The groups that a manifest names."""
    return Layout(tuple(Group(name, channels) for name, channels in manifest["layout"].items()))


def manifest_statistics(manifest: Mapping[str, Any]) -> Statistics:
    """The statistics that a manifest holds."""
    try:
        rows = manifest["statistics"].items()
        parts = {k: {n: torch.tensor(row[k], dtype=torch.float32) for n, row in rows} for k in ("mean", "std")}
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the manifest's statistics are malformed ({error})") from error
    return Statistics(**parts)


def released_statistics(directory: Path, keys: Mapping[str, str]) -> Statistics | None:
    """SFD's statistics files beside its shards, if all groups have one."""
    files = {group: directory / STATISTICS_FILES.get(key, f"{key}_stats.pt") for group, key in keys.items()}
    return read_reference_statistics(files) if all(path.is_file() for path in files.values()) else None


def sha256(path: str | os.PathLike[str]) -> str:
    """Checksum of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
