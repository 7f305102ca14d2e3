"""Features of a set of images: one pass, in blocks that survive a kill, cached by content."""

import hashlib
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from lwd.compute.devices import float32_to_the_bit
from lwd.compute.moments import Moments
from lwd.errors import InputError
from lwd.evaluation.inception_weights import load_inception
from lwd.images.pictures import ArrayFile, Pictures
from lwd.io.files import cache_dir, model_digest
from lwd.io.locks import held
from lwd.io.tensors import read_safetensors, write_safetensors
from lwd.representations.encoders import SemanticEncoder, load_encoder, move
from lwd.representations.texture import from_uint8

VERSION = "2"
"""Of the features in the cache; version 2 has the probabilities of classifiers."""
BLOCK = 500
"""Images per block; a kill loses at most one block."""
PATIENCE = 600.0
"""Seconds to wait for the next block of another process."""
PARTS = 10
"""Number of interleaved parts of a set, for the jackknife."""
POOL, SPATIAL, PROBABILITIES, ENCODER, CLASSES = "pool", "spatial", "probabilities", "encoder", "classes"
KEPT = (POOL, PROBABILITIES, ENCODER, CLASSES)
"""Features whose rows are kept; of the others only the moments."""


class Network(Protocol):
    """uint8 images (b, h, w, 3) -> features by name, (b, d) each."""

    @property
    def identity(self) -> str: ...

    def __call__(self, images: Tensor) -> dict[str, Tensor]: ...


class InceptionNetwork:
    """The network of FID: pool, spatial and, if the weights have a classifier, probabilities."""

    widths: Mapping[str, int] = {POOL: 2048, SPATIAL: 2023}

    def __init__(self, device: torch.device, cache: Path | None = None) -> None:
        self.network, self.device = load_inception(cache).to(device), device
        self.identity = f"Inception of 2015-12-05 (files {model_digest((cache or cache_dir()) / 'inception')})"

    @property
    def scores(self) -> bool:
        """Whether the Inception Score can be computed."""
        return self.network.head is not None

    def __call__(self, images: Tensor) -> dict[str, Tensor]:
        out = self.network(images)
        features = {POOL: out.pool, SPATIAL: out.spatial}
        return features if out.probabilities is None else features | {PROBABILITIES: out.probabilities}


class EncoderNetwork:
    """A semantic encoder: the class token of a transformer or the mean over positions; a classifier's probabilities."""

    def __init__(self, spec: str, device: torch.device, cache: Path | None = None) -> None:
        self.encoder: SemanticEncoder = load_encoder(spec, cache)
        move(self.encoder, device)
        self.device = device
        self.identity = self.encoder.identity

    @torch.no_grad()
    def __call__(self, images: Tensor) -> dict[str, Tensor]:
        pixels = from_uint8(images)
        summary = getattr(self.encoder, "summary", None)
        features = summary(pixels) if summary is not None else self.encoder(pixels).mean((2, 3))
        logits = getattr(self.encoder, "logits", None)
        return {ENCODER: features} | ({CLASSES: logits(features).float().softmax(1)} if logits is not None else {})


@dataclass(frozen=True)
class FeatureSet:
    """Features of a set of images: rows (n, d) float32 of some, and moments of all, in interleaved parts."""

    name: str
    count: int
    rows: Mapping[str, Tensor]
    parts: Mapping[str, Sequence[Moments]]

    def moments(self, feature: str, without: int | None = None) -> Moments:
        """Return the moments of all images, or without one part."""
        total = Moments()
        for number, part in enumerate(self.parts[feature]):
            if number != without:
                total.merge(part)
        return total


def extract(
    images: Pictures,
    networks: Sequence[Network],
    device: torch.device | str = "cpu",
    batch: int = 25,
    progress: Callable[[int], object] | None = None,
    cache: Path | None = None,
) -> FeatureSet:
    """Compute the features of all images with all networks, except blocks that are in the cache.

    Features are cached by the content of the images until `discard`. If several processes need the same images, one
    computes and the others wait for it.
    """
    check_count(images)
    folder = _folder(images, networks, cache)
    batch, count = _batch(batch), -(-len(images) // BLOCK)
    with held(_lock(folder)), float32_to_the_bit():
        done = _done(folder, count)
        if progress is not None:
            progress(min(done * BLOCK, len(images)))
        stream = images.batches(batch, done * BLOCK) if done < count else iter(())
        for number in range(done, count):
            size = min(BLOCK, len(images) - number * BLOCK)
            block = _block(stream, size, networks, device, progress)
            write_safetensors(folder / f"{number:05}.safetensors", block)
        return _gather(images, folder, count)


def extract_share(
    images: Pictures,
    networks: Sequence[Network],
    share: tuple[int, int],
    batch: int = 25,
    progress: Callable[[int], object] | None = None,
    cache: Path | None = None,
) -> None:
    """Compute this process's blocks of features into the cache; the first process returns when all blocks are there.

    share: this process's rank and the number of processes. A later `extract` reads the blocks.
    """
    check_count(images)
    (rank, world), folder, count = share, _folder(images, networks, cache), -(-len(images) // BLOCK)
    device = getattr(networks[0], "device", torch.device("cpu"))
    with float32_to_the_bit():
        for number in range(rank, count, world):
            size = min(BLOCK, len(images) - number * BLOCK)
            path = folder / f"{number:05}.safetensors"
            if not _is_intact(path):
                stream = images.batches(_batch(batch), number * BLOCK)
                write_safetensors(path, _block(stream, size, networks, device, None))
            if progress is not None:
                progress(size)
    if rank == 0:
        _wait(folder, count)


def _wait(folder: Path, count: int, patience: float = PATIENCE) -> None:
    """Wait for the blocks of other processes; if none appears for a long time, `extract` computes the missing ones."""
    missing, since = count, time.monotonic()
    while missing and time.monotonic() - since < patience:
        left = sum(not (folder / f"{number:05}.safetensors").is_file() for number in range(count))
        if left < missing:
            missing, since = left, time.monotonic()
        if left:
            time.sleep(0.1)


def _batch(batch: int) -> int:
    """The largest size up to `batch` that divides a block."""
    return max(n for n in range(1, min(max(batch, 1), BLOCK) + 1) if BLOCK % n == 0)


def check_count(images: Pictures) -> None:
    """Raise an error if a set is too small for the jackknife."""
    if len(images) < PARTS:
        raise InputError(f"{images.name} has {len(images)} images; metrics need at least {PARTS}")


def _done(folder: Path, count: int) -> int:
    """Count the intact blocks at the beginning."""
    return next((n for n in range(count) if not _is_intact(folder / f"{n:05}.safetensors")), count)


def _block(stream: Any, size: int, networks: Sequence[Network], device: Any, progress: Any) -> dict[str, Tensor]:
    found: dict[str, list[Tensor]] = {}
    while size > 0:
        pixels = next(stream)
        images = torch.from_numpy(np.array(pixels)).to(device)
        for network in networks:
            for name, values in network(images).items():
                found.setdefault(name, []).append(values.float().cpu())
        size -= len(pixels)
        if progress is not None:
            progress(len(pixels))
    return {name: torch.cat(values).contiguous() for name, values in found.items()}


def features_of(
    name: str, batches: Iterable[np.ndarray[Any, Any]], networks: Sequence[Network], device: torch.device | str = "cpu"
) -> FeatureSet:
    """Compute the features of a small set of images (n, h, w, 3) in memory; nothing is cached."""
    stream, found = ((len(pixels), iter([pixels])) for pixels in batches), dict[str, list[Tensor]]()
    with float32_to_the_bit():
        for size, part in stream:
            for key, values in _block(part, size, networks, device, None).items():
                found.setdefault(key, []).append(values)
    rows = {key: torch.cat(values) for key, values in found.items()}
    moments = {key: [Moments().update(values[i::PARTS]) for i in range(PARTS)] for key, values in rows.items()}
    count = len(next(iter(rows.values())))
    return FeatureSet(name, count, rows, {key: one for key, one in moments.items() if key in KEPT})


def _gather(images: Pictures, folder: Path, count: int) -> FeatureSet:
    rows: dict[str, list[Tensor]] = {}
    parts: dict[str, list[Moments]] = {}
    for number in range(count):
        for name, values in read_safetensors(folder / f"{number:05}.safetensors").items():
            if not torch.isfinite(values).all():
                raise InputError(f"{images.name}: the features {name!r} contain NaN or infinity")
            if name in KEPT:
                rows.setdefault(name, []).append(values)
            if name not in (PROBABILITIES, CLASSES):
                groups = parts.setdefault(name, [Moments() for _ in range(PARTS)])
                for i, group in enumerate(groups):
                    # BLOCK is a multiple of PARTS: row i of a block is row i of the set, modulo PARTS.
                    if len(values[i::PARTS]):
                        group.update(values[i::PARTS])
    return FeatureSet(images.name, len(images), {name: torch.cat(blocks) for name, blocks in rows.items()}, parts)


def discard(images: Pictures, networks: Sequence[Network], cache: Path | None = None) -> None:
    """Remove the cached features of a set, unless another process is using them."""
    folder = _folder(images, networks, cache)
    if not folder.is_dir():
        return
    with suppress(OSError, InputError), held(_lock(folder), wait=False):
        shutil.rmtree(folder)


def _folder(images: Pictures, networks: Sequence[Network], cache: Path | None) -> Path:
    lines = [VERSION, images.digest, *(network.identity for network in networks)]
    # Another device rounds differently.
    kinds = {getattr(network, "device", torch.device("cpu")).type for network in networks} - {"cpu"}
    lines += [f"{kind}, float32" for kind in sorted(kinds)]
    key = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:20]
    return (cache or cache_dir()) / "features" / key


def _lock(folder: Path) -> Path:
    """Return the lock file next to the folder, so that the folder can be removed while it is locked."""
    return folder.with_suffix(".lock")


def _is_intact(path: Path) -> bool:
    try:
        return bool(read_safetensors(path))
    except InputError:
        return False


def given_moments(images: Pictures, networks: Sequence[Network] = ()) -> dict[str, tuple[Tensor, Tensor]]:
    """Read the moments in an ADM reference file: pool from mu, sigma; spatial from mu_s, sigma_s.

    networks: their `widths`, if they have any, must fit the moments.
    """
    if not isinstance(images, ArrayFile):
        return {}
    widths: dict[str, int] = {}
    for network in networks:
        widths |= getattr(network, "widths", {})
    found = {name: torch.from_numpy(value) for name, value in images.moments().items()}
    out = {}
    for feature, (mean, covariance) in {POOL: ("mu", "sigma"), SPATIAL: ("mu_s", "sigma_s")}.items():
        if (mean in found) != (covariance in found):
            there, missing = (mean, covariance) if mean in found else (covariance, mean)
            raise InputError(f"{images.path} has {there} without {missing}; a reference needs both or neither")
        if mean in found:
            m, s = out[feature] = (found[mean], found[covariance])
            _check_moments(m, s, f"{images.path}: {mean} {tuple(m.shape)} and {covariance} {tuple(s.shape)}")
            if len(m) != widths.get(feature, len(m)):
                raise InputError(
                    f"{images.path}: {mean} has {len(m)} dimensions, but the network {widths[feature]}; "
                    "was it computed with another network?"
                )
    return out


def _check_moments(mean: Tensor, covariance: Tensor, name: str) -> None:
    if mean.ndim != 1 or not len(mean) or covariance.shape != (len(mean), len(mean)):
        raise InputError(f"{name} must have shapes (d,) and (d, d)")
    if not (torch.isfinite(mean).all() and torch.isfinite(covariance).all()):
        raise InputError(f"{name} contain NaN or infinity; compute the reference again")
    if (covariance - covariance.T).abs().max() > 1e-6 * covariance.abs().max():
        raise InputError(f"{name}: the second is not symmetric, so it is not a covariance; compute the reference again")
    values = torch.linalg.eigvalsh(covariance)
    if values[0] < -1e-6 * values[-1].clamp(min=0):
        raise InputError(
            f"{name}: the second has a negative eigenvalue ({values[0]:.3g}), so it is not a covariance; "
            "compute the reference again"
        )
