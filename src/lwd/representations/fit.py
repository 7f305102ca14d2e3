"""Fitting the small texture autoencoder and the compressors of semantic features."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from lwd.compute.moments import ChannelMoments
from lwd.compute.order import coin, order
from lwd.errors import InputError
from lwd.images.sources import BadImage, ImageSource, center_crop, source_digest
from lwd.io.files import atomic_directory, check_destination
from lwd.representations.descent import Progress, descend, discard_state
from lwd.representations.encoders import Origin, SemanticEncoder, move, resize_map
from lwd.representations.formats import SemVAEConfig
from lwd.representations.pca import PCA, PCAFit, save_pca
from lwd.representations.processes import Processes
from lwd.representations.semvae import SemVAE, save_semvae
from lwd.representations.settings import FitSettings, SemVAESettings, TextureSettings
from lwd.representations.texture import PatchAutoencoder, from_uint8, psnr

Index = np.ndarray[Any, Any]
SCALE = 2000
"""Images from whose features a streamed SemVAE takes their mean and standard deviation."""


def fit_texture(
    source: ImageSource,
    out: str | os.PathLike[str],
    settings: TextureSettings,
    replace: bool = False,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Train a PatchAutoencoder on the images; returns the held-out PSNR. Resumes after an interruption."""
    check_destination(out, replace)
    processes = Processes(settings.batch, settings.device)
    train, held_out = split(source, settings)
    torch.manual_seed(settings.seed)
    patch = settings.patch
    model = PatchAutoencoder.small(settings.channels, patch, settings.width, settings.depth).to(settings.device)

    def loss(step: int, generator: torch.Generator) -> Tensor:
        positions = processes.positions(step)
        chosen = train[order(len(train), settings.seed, positions)]
        batch = images(source, chosen, settings.size, settings.skip_bad, coin(settings.seed, positions))
        grid = [side // patch for side in batch.shape[2:]]
        noise = processes.noise(len(batch), (settings.channels, *grid), generator)
        losses = model.losses(batch.to(settings.device), noise.to(settings.device), settings.kl)
        return processes.weigh(losses.total, len(batch))

    descend(model, loss, settings, Path(out), {"kind": "texture"} | _source(source), progress, processes)
    report: dict[str, float] = {}
    if processes.main:
        with torch.no_grad():
            parts = [psnr(model.decode(model.encode(b)), b).cpu() for b in _batches(source, held_out, settings)]
        scores = torch.cat(parts)
        with atomic_directory(out, replace) as folder:
            model.eval().save(folder)
        discard_state(Path(out))
        report = {"psnr": float(scores.mean()), "held_out": float(len(scores))}
    return processes.from_main(report)


def fit_pca(
    source: ImageSource,
    encoder: SemanticEncoder,
    grid: tuple[int, int],
    out: str | os.PathLike[str],
    settings: FitSettings,
    replace: bool = False,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Fit an exact PCA to the features of all training images; returns explained variance, fitted and held out.

    This is a single pass: after an interruption it starts from the beginning.
    """
    check_destination(out, replace)
    width = getattr(encoder, "features", None)
    if isinstance(width, int) and settings.channels > width:
        raise InputError(f"PCA of {width} features has at most {width} channels, got {settings.channels}")
    train, held_out = split(source, settings)
    fit, processes = PCAFit(), Processes(settings.batch, settings.device)
    for step, batch in enumerate(_features(source, processes.share(train), encoder, grid, settings), start=1):
        fit.update(batch.cpu())  # float64, which not every device has
        if progress is not None:
            progress(step * processes.world, 0.0)
    fit, report = processes.merge(fit), {}
    if processes.main:
        pca = replaced(fit.finish(settings.channels), origin=Origin(encoder.identity, grid))
        report = _held_out(pca, pca.mean, _features(source, held_out, encoder, grid, settings))
        save_pca(pca, out, replace)
        report = {"explained": pca.explained} | report
    return processes.from_main(report)


def fit_semvae(
    source: ImageSource,
    encoder: SemanticEncoder,
    grid: tuple[int, int],
    out: str | os.PathLike[str],
    settings: SemVAESettings,
    replace: bool = False,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Train a SemVAE on the features of the images; returns held-out scores. Resumes after an interruption.

    Images are read and encoded batch by batch, mirrored at random, so that memory does not grow with their number. With
    a `limit`, the features of so many images are computed once and kept in memory (of every process).
    """
    check_destination(out, replace)
    processes = Processes(settings.batch, settings.device)
    train, held_out = split(source, settings)
    train = train[: settings.limit or None]
    settings = settings.with_steps(len(train))
    if settings.limit:
        features, moments = _collect(_features(source, train, encoder, grid, settings), len(train))
    else:
        moments = _scale(_features(source, train[:SCALE], encoder, grid, settings))
    model = _new_semvae(moments, settings)
    model.origin = Origin(encoder.identity, grid)
    kl = settings.kl * settings.channels * grid[0] * grid[1]  # `losses` takes the mean over them

    with ThreadPoolExecutor(settings.loaders) as pool:
        if settings.limit:
            batches = _kept(features, settings, processes)
        else:
            batches = _stream(_Stream(source, train, encoder, grid), settings, pool, processes)

        def loss(step: int, generator: torch.Generator) -> Tensor:
            batch = batches(step)
            noise = processes.noise(len(batch), (settings.channels, *grid), generator)
            return processes.weigh(model.losses(batch, noise.to(settings.device), kl=kl).total, len(batch))

        about = {"kind": "semvae", "grid": list(grid), "encoder": encoder.identity} | _source(source)
        descend(model, loss, settings, Path(out), about, progress, processes)
    report: dict[str, float] = {}
    if processes.main:
        report = _held_out(model, model.mean, _features(source, held_out, encoder, grid, settings))
        save_semvae(model, out, replace)
        discard_state(Path(out))
    return processes.from_main(report)


def _new_semvae(moments: ChannelMoments, settings: SemVAESettings) -> SemVAE:
    """A network with the initial weights of the seed, for features with these moments."""
    shape = {name: getattr(settings, name) for name in ("channels", "width", "depth", "heads")}
    torch.manual_seed(settings.seed)
    model = SemVAE(SemVAEConfig(features=len(moments.mean), **shape), "sefi")
    model.set_scale(moments.mean.float(), moments.std.float())
    return model.to(settings.device)


@torch.no_grad()
def _held_out(model: PCA | SemVAE, mean: Tensor, batches: Iterable[Tensor]) -> dict[str, float]:
    """Return explained variance (around the fitted mean) and cosine of held-out features."""
    lost = spread = cosine = 0.0
    count = positions = 0
    for features in batches:
        decoded = model.decode(model.encode(features))
        lost += float((decoded - features).square().sum())
        spread += float((features - mean.to(features)[:, None, None]).square().sum())
        cosine += float(cosine_similarity(decoded, features, dim=1).sum())
        count, positions = count + len(features), positions + features[:, 0].numel()
    if not count:
        raise InputError("none of the held-out images can be read; hold out more images", argument="held_out")
    return {"explained_held_out": 1 - lost / spread, "cosine_held_out": cosine / positions, "held_out": float(count)}


def _collect(batches: Iterable[Tensor], most: int) -> tuple[Tensor, ChannelMoments]:
    """Collect features of up to `most` images as float16, and their moments, without a full float32 copy."""
    moments, count, kept = ChannelMoments(), 0, torch.zeros(0)
    for batch in batches:
        half = batch.half().cpu()
        if not torch.isfinite(half).all():
            raise InputError("features are NaN, infinite or beyond float16 (65504); SemVAE cannot be fitted to them")
        kept = kept if count else torch.empty(most, *half.shape[1:], dtype=torch.float16)
        kept[count : count + len(half)] = half
        moments.update(half)
        count += len(half)
    if not count:
        raise InputError("none of the training images can be read")
    return kept[:count], moments


def _scale(batches: Iterable[Tensor]) -> ChannelMoments:
    """Return the moments of features, without keeping them."""
    moments = ChannelMoments()
    for batch in batches:
        moments.update(_finite(batch).cpu())
    if not moments.count:
        raise InputError("none of the training images can be read")
    return moments


def _finite(features: Tensor) -> Tensor:
    if not torch.isfinite(features).all():
        raise InputError("features contain NaN or infinity; the encoder failed on some image")
    return features


def _kept(features: Tensor, settings: SemVAESettings, processes: Processes) -> Callable[[int], Tensor]:
    """Return a function of the step that draws a batch of features in memory."""

    def batch(step: int) -> Tensor:
        positions = processes.positions(step)
        return features[torch.from_numpy(order(len(features), settings.seed, positions))].to(settings.device).float()

    return batch


@dataclass(frozen=True)
class _Stream:
    """Features of images that are encoded as they come."""

    source: ImageSource
    train: Index
    encoder: SemanticEncoder
    grid: tuple[int, int]


def _stream(
    stream: _Stream, settings: SemVAESettings, pool: ThreadPoolExecutor, processes: Processes
) -> Callable[[int], Tensor]:
    """Return a function of the step that encodes a batch of images; the pool reads those of the next steps."""
    ahead: dict[int, Future[Tensor]] = {}

    def load(step: int) -> Tensor:
        positions = processes.positions(step)
        chosen = stream.train[order(len(stream.train), settings.seed, positions)]
        return images(stream.source, chosen, settings.size, settings.skip_bad, coin(settings.seed, positions))

    def batch(step: int) -> Tensor:
        for number in range(step, min(step + 1 + settings.loaders, settings.steps)):
            if number not in ahead:
                ahead[number] = pool.submit(load, number)
        with torch.no_grad():
            features = stream.encoder(ahead.pop(step).result().to(settings.device))
            return _finite(resize_map(features, *stream.grid).float())

    return batch


def _source(source: ImageSource) -> dict[str, str]:
    return {"source": source.name, "images": source_digest(source)}


def split(source: ImageSource, settings: FitSettings) -> tuple[Index, Index]:
    """Return indices to train on and to hold out; shuffled, because sources are often sorted by class."""
    if len(source) <= settings.held_out:
        raise InputError(
            f"{source.name} has {len(source)} images, too few to hold out {settings.held_out}", argument="held_out"
        )
    shuffled = order(len(source), 2**31 + settings.seed, np.arange(len(source)))
    return shuffled[settings.held_out :], shuffled[: settings.held_out]


def images(source: ImageSource, index: Index, size: int, skip_bad: bool = False, mirror: Index | None = None) -> Tensor:
    """Load images by number, (b, 3, h, w) in [-1, 1], mirrored where `mirror`; `skip_bad` skips unreadable ones."""
    rows = []
    for position, number in enumerate(index):
        try:
            row = source.image(int(number))
        except BadImage as error:
            if skip_bad:
                continue
            raise InputError(f"{error}; skip_bad skips such images", argument="skip_bad") from error
        row = center_crop(row, size) if size else row
        rows.append(row[:, ::-1] if mirror is not None and mirror[position] else row)
    if len({row.shape for row in rows}) > 1:
        raise InputError(f"the images of {source.name} have different sizes; set a size", argument="size")
    if not rows:
        raise InputError(
            f"all {len(index)} images of a batch of {source.name} are unreadable; use a larger batch", argument="batch"
        )
    return from_uint8(torch.from_numpy(np.stack(rows)))


def _batches(source: ImageSource, index: Index, settings: FitSettings) -> Iterator[Tensor]:
    for low in range(0, len(index), settings.batch):
        batch = images(source, index[low : low + settings.batch], settings.size, settings.skip_bad)
        yield batch.to(settings.device)


@torch.no_grad()
def _features(
    source: ImageSource, index: Index, encoder: SemanticEncoder, grid: tuple[int, int], settings: FitSettings
) -> Iterator[Tensor]:
    if min(grid) < 1:
        raise InputError(f"a grid needs at least 1 row and 1 column, got {grid[0]}x{grid[1]}")
    move(encoder, settings.device)
    for batch in _batches(source, index, settings):
        yield resize_map(encoder(batch), *grid)
