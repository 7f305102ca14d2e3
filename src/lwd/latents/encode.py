"""Encoding images into shards of texture and semantic latents, by any number of processes, with one manifest."""

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lwd.compute.devices import choose_device, threads
from lwd.compute.moments import ChannelMoments
from lwd.errors import InputError
from lwd.images.catalog import open_source
from lwd.images.loading import Loader, Unreadable
from lwd.images.sources import ImageSource, source_digest
from lwd.io.files import read_json, write_json
from lwd.io.jobs import keep_plan, shared
from lwd.io.locks import held
from lwd.latents.encoders import Encoders
from lwd.latents.formats import CaptionsFile, PartMoments, ShardPart
from lwd.latents.settings import EncodeSettings
from lwd.latents.shards import CAPTIONS, MANIFEST, group_key, open_shard, write_manifest, write_shard
from lwd.latents.statistics import statistics_of
from lwd.representations.encoders import move
from lwd.representations.texture import from_uint8

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
PARTS = "parts"
SHOWN = 5
"""Unreadable images named in a message; the manifest lists all of them."""
WORKERS = 4
"""Processes that read images for one GPU."""
FREE = ("skip_bad", "workers")
"""Settings that may change when an encoding resumes."""
LEFTOVERS = (".shard-*", ".manifest.json.*", ".probe.*", f"{PARTS}/.*")
"""Temporary files that killed processes leave behind."""


DEFAULTS = EncodeSettings()


@dataclass(frozen=True)
class _Job:
    """The settings that all shards of a directory share."""

    source: ImageSource
    out: Path
    encoders: Encoders
    settings: EncodeSettings
    device: torch.device
    provenance: Mapping[str, Any]
    loader: Loader

    @property
    def count(self) -> int:
        return -(-len(self.source) // self.settings.shard_size)

    def rows(self, number: int) -> tuple[int, int]:
        """First image of a shard, and the first of the next one."""
        size = self.settings.shard_size
        return number * size, min((number + 1) * size, len(self.source))

    def part(self, number: int) -> Path:
        """Path of a shard's `ShardPart`, which is written after the shard."""
        return self.out / PARTS / f"{number:05}.json"

    def read_part(self, number: int) -> ShardPart:
        return ShardPart.parse(read_json(self.part(number)), str(self.part(number)))

    def is_done(self, number: int) -> bool:
        """Whether a shard exists and matches its part; `lwd data verify` also checks its checksum."""
        try:
            part = self.read_part(number)
            if part.line is None:  # none of its images could be read
                return True
            path = self.out / part.line.file
            return path.stat().st_size == part.bytes and open_shard(path).count == part.line.count
        except (InputError, OSError):
            return False

    def all_done(self) -> bool:
        return all(self.is_done(number) for number in range(self.count))


def encode(
    source: ImageSource | str,
    out: str | os.PathLike[str],
    encoders: Encoders,
    settings: EncodeSettings = DEFAULTS,
    share: tuple[int, int] = (0, 1),
    progress: Callable[[int], object] | None = None,
    device: str | torch.device = "cpu",
) -> str:
    """Write the missing shards of this process; the process that completes the set writes the manifest.

    source: images, or their command-line name (a folder, cifar10/train, ...).
    share: this process's rank and the number of processes.

    Example:
        >>> from lwd.images.fashion import load_fashion
        >>> from lwd.images.sources import ArraySource
        >>> from lwd.representations.encoders import CallableEncoder
        >>> from lwd.representations.pca import PCAFit
        >>> colours = CallableEncoder(lambda images: torch.nn.functional.avg_pool2d(images, 7), "mean colours")
        >>> pca = PCAFit().update(torch.randn(8, 3, 4, 4)).finish(channels=2)
        >>> encoders = lwd.Encoders.of(lwd.TextureAutoencoder.load("fashion"), colours, pca)
        >>> test = load_fashion("test")
        >>> few = ArraySource(test.name, test.classes, test.images[:20], test.labels[:20])
        >>> print(lwd.encode(few, "latents", encoders, lwd.EncodeSettings(shard_size=10)))
        latents: 20 images in 2 shards
    """
    rank, world = share
    source = open_source(source) if isinstance(source, str) else source
    if not 0 <= rank < world:
        raise InputError(f"the rank of {world} processes must be 0 to {world - 1}, got {rank}")
    _check_captions(source, settings)
    where = choose_device(str(device))
    provenance = {"source": source.name, "digest": _digest(source, Path(out)), "classes": list(source.classes)}
    loader = Loader(source, settings.size, _workers(settings, where))
    job = _Job(source, Path(out), encoders, settings, where, provenance | {"encoders": dict(encoders.record)}, loader)
    _check_plan(job)
    manifest = job.out / MANIFEST
    if manifest.exists() and not job.all_done():
        manifest.unlink(missing_ok=True)
    with threads(settings.threads), closing(loader):
        for tool in encoders.tools:
            move(tool, where)
        _encode_all(job, range(rank, job.count, world), progress)
    if not job.all_done():
        return f"rank {rank} of {world}: done; the manifest follows when all processes are done"
    if not manifest.exists():
        _finish(job)
    _remove_leftovers(job.out)
    return _summary(job)


def _encode_all(job: _Job, numbers: Sequence[int], progress: Callable[[int], object] | None) -> None:
    """Encode the shards that are missing; workers read the images of the next one meanwhile."""
    missing = [number for number in numbers if not job.is_done(number)]
    following = dict(pairwise(missing))
    for number in numbers:
        low, high = job.rows(number)
        if number in missing:
            job.loader.announce(low, high)
            if number in following:
                job.loader.announce(*job.rows(following[number]))
            _encode_shard(job, number)
        if progress is not None:
            progress(high - low)


def _workers(settings: EncodeSettings, device: torch.device) -> int:
    if settings.workers is not None:
        return settings.workers
    return 0 if device.type == "cpu" else WORKERS


def _digest(source: ImageSource, out: Path) -> str:
    """The checksum of the source; of the processes that a launcher started on this machine, one computes it."""
    if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) < 2:
        return source_digest(source)
    launch = f"{os.getppid()}-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    path = out / PARTS / f".digest-{platform.node()}-{launch}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with held(path.with_suffix(".lock")):
        if not path.is_file():
            write_json(path, source_digest(source))
        return str(read_json(path))


def _summary(job: _Job) -> str:
    parts = [job.read_part(number) for number in range(job.count)]
    names = [name for part in parts for _, name in part.bad]
    text = f"{job.out}: {len(job.source) - len(names)} images in {sum(p.line is not None for p in parts)} shards"
    more = f" and {len(names) - SHOWN} more (all are in {MANIFEST})" if len(names) > SHOWN else ""
    return text + (f", skipped {len(names)} unreadable images: {', '.join(names[:SHOWN])}{more}" if names else "")


def _encode_shard(job: _Job, number: int) -> None:
    """Write a shard, then its part: an unfinished shard never has a part."""
    job.part(number).unlink(missing_ok=True)
    index, images, bad = _images(job, number)
    if not images:
        write_json(job.part(number), ShardPart(line=None, bytes=0, shape=None, moments={}, bad=bad).to_dict())
        return
    path = job.out / f"shard-{number:05}.safetensors"
    tensors = _latents(job, images)
    _check_finite(tensors, path, job.settings.dtype)
    moments = {}
    for group in job.encoders.layout.names:
        both = ChannelMoments().update(tensors[group_key(group)]).update(tensors[group_key(group) + "_flip"])
        moments[group] = PartMoments(count=both.count, mean=both.mean.tolist(), squares=both.scatter.tolist())
    tensors["labels"] = torch.from_numpy(job.source.labels[index].astype(np.int64))
    line = write_shard(path, tensors)
    size = path.stat().st_size
    part = ShardPart(line=line, bytes=size, shape=tuple(images[0].shape[:2]), moments=moments, bad=bad)
    write_json(job.part(number), part.to_dict())


def _latents(job: _Job, images: list[Any]) -> dict[str, Tensor]:
    """Encode the images of a shard, original and mirrored; returns latents by shard key."""
    parts: dict[str, list[Tensor]] = {}
    for low in range(0, len(images), job.settings.batch):
        pixels = np.stack(images[low : low + job.settings.batch])
        batch = from_uint8(torch.from_numpy(pixels).to(job.device))
        for suffix, view in (("", batch), ("_flip", batch.flip(3))):
            for key, value in job.encoders(view, job.settings.features).items():
                parts.setdefault(key + suffix, []).append(value.to(DTYPES[job.settings.dtype]).cpu())
    return {key: torch.cat(values).contiguous() for key, values in parts.items()}


def _check_finite(tensors: Mapping[str, Tensor], path: Path, dtype: str) -> None:
    for key, values in tensors.items():
        if not torch.isfinite(values).all():
            hint = ", whose maximum is 65504; use bfloat16 or float32" if dtype == "float16" else ""
            raise InputError(f"{path.name}: {key!r} would contain NaN or infinity as {dtype}{hint}", argument="dtype")


def _images(job: _Job, number: int) -> tuple[list[int], list[Any], list[tuple[int, str]]]:
    """Read the images of a shard: numbers and pixels, and numbers and names of those that cannot be read."""
    index: list[int] = []
    images: list[Any] = []
    bad: list[tuple[int, str]] = []
    shape = next((shape for shape in _shapes(job) if shape), None)
    low, high = job.rows(number)
    for i, pixels in enumerate(job.loader.read(low, high), start=low):
        if isinstance(pixels, Unreadable):
            if not job.settings.skip_bad:
                raise InputError(f"{pixels.message}; skip_bad skips such images", argument="skip_bad")
            bad.append((i, pixels.name))
            continue
        shape = shape or pixels.shape[:2]
        if pixels.shape[:2] != shape:
            raise InputError(
                f"image {i} is {pixels.shape[:2]}, the others are {shape}; set a size and use another directory",
                argument="size",
            )
        index.append(i)
        images.append(pixels)
    return index, images, bad


def _shapes(job: _Job) -> Iterator[tuple[int, int] | None]:
    """Yield height and width of the images in each existing shard; None if none of them could be read."""
    for number in range(job.count):
        with suppress(InputError):
            yield job.read_part(number).shape


def _remove_leftovers(out: Path) -> None:
    """Remove temporary files; all shards are complete by now, so no process is writing one."""
    for pattern in LEFTOVERS:
        for leftover in out.glob(pattern):
            leftover.unlink(missing_ok=True)


def _finish(job: _Job) -> None:
    parts = [job.read_part(number) for number in range(job.count)]
    shapes = sorted({part.shape for part in parts if part.shape})
    if len(shapes) > 1:
        raise InputError(
            f"the images have different sizes ({shapes[0]}, {shapes[1]}); set a size and use another directory",
            argument="size",
        )
    bad = [row for part in parts for row in part.bad]
    if not shapes:
        raise InputError(f"none of the {len(job.source)} images of {job.source.name} can be read: {bad[0][1]}, ...")
    merged = {name: ChannelMoments() for name in job.encoders.layout.names}
    for part in parts:
        for name, value in part.moments.items():
            mean, squares = (torch.tensor(row, dtype=torch.float64) for row in (value.mean, value.squares))
            merged[name].merge(ChannelMoments(value.count, mean, squares))
    statistics = statistics_of(merged)
    # Added only now: directories that earlier versions started can be finished.
    provenance = {**job.provenance, "size": job.settings.size} | ({"left_out": bad} if bad else {})
    lines = [part.line for part in parts if part.line is not None]
    if job.settings.captions:
        left = {number for number, _ in bad}
        _write_captions(job, [i for i in range(len(job.source)) if i not in left])
    with shared(job.out / MANIFEST):
        write_manifest(job.out, job.encoders.layout, len(job.source.classes), lines, statistics, provenance)


def _check_captions(source: ImageSource, settings: EncodeSettings) -> None:
    """Raise an error before the first image is encoded, if captions are wanted but missing."""
    if settings.captions and not hasattr(source, "caption"):
        raise InputError(f"{source.name} has no captions; use a folder with IMAGE.txt beside IMAGE.jpg", "captions")
    if settings.captions and len(source):
        source.caption(0)  # type: ignore[attr-defined]


def _write_captions(job: _Job, index: list[int]) -> None:
    texts = [job.source.caption(i) for i in index]  # type: ignore[attr-defined]
    with shared(job.out / CAPTIONS):
        CaptionsFile(captions=texts).write(job.out / CAPTIONS)


def _check_plan(job: _Job) -> None:
    """Raise an error if the directory has shards of other settings, encoders or images."""
    settings = {key: value for key, value in job.settings.to_dict().items() if key not in FREE}
    plan = {**settings, "device": job.device.type, "images": len(job.source), **job.provenance}
    # Checked before the plan: another process may be writing both.
    started = any(job.out.glob("*.safetensors")) or any((job.out / PARTS).glob("[0-9]*.json"))
    keep_plan(job.out / PARTS / "plan.json", plan, started)
