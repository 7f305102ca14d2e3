"""Fitting what makes latents: the small texture autoencoder, and compressors of semantic features."""

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from math import cos, pi
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from lwd.data.moments import ChannelMoments
from lwd.data.order import coin, order
from lwd.data.sources import ImageSource, center_crop
from lwd.errors import InputError
from lwd.files import atomic_directory, check_destination, read_json, write_json
from lwd.representations.encoders import SemanticEncoder, resize_map
from lwd.representations.pca import PCAFit, save_pca
from lwd.representations.semvae import SemVAE, SemVAEConfig, save_semvae
from lwd.representations.texture import PatchAutoencoder, from_uint8, psnr
from lwd.weights import mismatches, read_safetensors, write_safetensors

Progress = Callable[[int, float], object]
"""Called after each step with its number and its loss."""


@dataclass(frozen=True)
class FitSettings:
    """What the fits share. `held_out` images are never trained on; `size` crops images, 0 takes them as they are."""

    channels: int = 16
    steps: int = 2000
    batch: int = 64
    lr: float = 2e-3
    kl: float = 1e-6
    seed: int = 0
    held_out: int = 500
    size: int = 0

    def __post_init__(self) -> None:
        for name in ("channels", "steps", "batch", "held_out"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.lr > 0 or self.kl < 0:
            raise InputError(f"lr must be > 0 and kl >= 0, got {self.lr} and {self.kl}")


def fit_texture(
    source: ImageSource,
    out: str | os.PathLike[str],
    settings: FitSettings,
    patch: int = 4,
    width: int = 128,
    depth: int = 2,
    replace: bool = False,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Train a PatchAutoencoder on the images; returns the held-out PSNR. An interrupted fit is taken up again."""
    check_destination(out, replace)
    train, held_out = split(source, settings)
    torch.manual_seed(settings.seed)
    model = PatchAutoencoder.small(settings.channels, patch, width, depth)

    def loss(step: int, generator: torch.Generator) -> Tensor:
        positions = np.arange(step * settings.batch, (step + 1) * settings.batch)
        batch = images(source, train[order(len(train), settings.seed, positions)], settings.size)
        flips = torch.from_numpy(coin(settings.seed, positions))[:, None, None, None]
        batch = torch.where(flips, batch.flip(3), batch)
        noise = torch.randn(len(batch), settings.channels, *(s // patch for s in batch.shape[2:]), generator=generator)
        return model.losses(batch, noise, settings.kl).total

    about = {"kind": "texture", "patch": patch, "width": width, "depth": depth, "source": source.name}
    _descend(model, loss, settings, Path(out), about, progress)
    with torch.no_grad():
        parts = [psnr(model.decode(model.encode(b)), b) for b in _batches(source, held_out, settings)]
    report = {"psnr": float(torch.cat(parts).mean()), "held_out": float(len(held_out))}
    with atomic_directory(out, replace) as aside:
        model.eval().save(aside)
    _forget(Path(out))
    return report


def fit_pca(
    source: ImageSource,
    encoder: SemanticEncoder,
    grid: tuple[int, int],
    out: str | os.PathLike[str],
    settings: FitSettings,
    replace: bool = False,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Exact PCA of all training images' features, in one pass; returns explained variance, fitted and held out."""
    check_destination(out, replace)
    train, held_out = split(source, settings)
    fit = PCAFit()
    for step, batch in enumerate(_batches(source, train, settings), start=1):
        with torch.no_grad():
            fit.update(resize_map(encoder(batch), *grid))
        if progress is not None:
            progress(step, 0.0)
    pca = fit.finish(settings.channels)
    features = _features(source, held_out, encoder, grid, settings)
    save_pca(pca, out, replace)
    return {
        "explained": pca.explained,
        "explained_held_out": pca.explained_on(features),
        "held_out": float(len(held_out)),
    }


def fit_semvae(
    source: ImageSource,
    encoder: SemanticEncoder,
    grid: tuple[int, int],
    out: str | os.PathLike[str],
    settings: FitSettings,
    limit: int = 4000,
    width: int = 0,
    depth: int = 2,
    heads: int = 8,
    replace: bool = False,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Train a SemVAE on the features of up to `limit` images (kept in memory as float16); returns held-out numbers."""
    check_destination(out, replace)
    train, held_out = split(source, settings)
    features = _features(source, train[:limit], encoder, grid, settings).half()
    moments = ChannelMoments().update(features)
    torch.manual_seed(settings.seed)
    model = SemVAE(SemVAEConfig(features.shape[1], settings.channels, width, depth, heads))
    model.set_scale(moments.mean.float(), moments.std.float())

    def loss(step: int, generator: torch.Generator) -> Tensor:
        positions = np.arange(step * settings.batch, (step + 1) * settings.batch)
        batch = features[torch.from_numpy(order(len(features), settings.seed, positions))].float()
        return model.losses(
            batch, torch.randn(len(batch), settings.channels, *grid, generator=generator), kl=settings.kl
        ).total

    about = {
        "kind": "semvae",
        "limit": limit,
        "width": width,
        "depth": depth,
        "source": source.name,
        "encoder": encoder.identity,
    }
    _descend(model, loss, settings, Path(out), about, progress)
    report = _semvae_report(model, _features(source, held_out, encoder, grid, settings), settings.batch)
    save_semvae(model, out, replace)
    _forget(Path(out))
    return report


@torch.no_grad()
def _semvae_report(model: SemVAE, features: Tensor, batch: int) -> dict[str, float]:
    """Cosine and explained variance of features that were held out."""
    decoded = torch.cat([model.decode(model.encode(part)) for part in torch.split(features, batch)])
    centred = features - model.mean[:, None, None]
    return {
        "cosine_held_out": float(cosine_similarity(decoded, features, dim=1).mean()),
        "explained_held_out": float(1 - (decoded - features).square().sum() / centred.square().sum()),
        "held_out": float(len(features)),
    }


def split(source: ImageSource, settings: FitSettings) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Indices to train on and to hold out, shuffled: sources are often sorted by class."""
    if len(source) <= settings.held_out:
        raise InputError(f"{source.name} has {len(source)} images; {settings.held_out} to hold out are too many")
    shuffled = order(len(source), 2**31 + settings.seed, np.arange(len(source)))
    return shuffled[settings.held_out :], shuffled[: settings.held_out]


def images(source: ImageSource, index: np.ndarray[Any, Any], size: int) -> Tensor:
    """Images by number, (b, 3, h, w) in [-1, 1]."""
    rows = [source.image(int(i)) for i in index]
    rows = [center_crop(row, size) for row in rows] if size else rows
    if len({row.shape for row in rows}) > 1:
        raise InputError(f"the images of {source.name} have different sizes; pass --size")
    return from_uint8(torch.from_numpy(np.stack(rows)))


def _batches(source: ImageSource, index: np.ndarray[Any, Any], settings: FitSettings) -> Iterator[Tensor]:
    for low in range(0, len(index), settings.batch):
        yield images(source, index[low : low + settings.batch], settings.size)


@torch.no_grad()
def _features(
    source: ImageSource,
    index: np.ndarray[Any, Any],
    encoder: SemanticEncoder,
    grid: tuple[int, int],
    settings: FitSettings,
) -> Tensor:
    return torch.cat([resize_map(encoder(batch), *grid) for batch in _batches(source, index, settings)])


def _descend(
    model: nn.Module,
    loss: Callable[[int, torch.Generator], Tensor],
    settings: FitSettings,
    out: Path,
    about: dict[str, Any],
    progress: Progress | None,
) -> None:
    """AdamW with a warm-up and a cosine decay; randomness is a function of (seed, step), state is kept every 200."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=0.01)
    plan = asdict(settings) | about
    first = _resume(model, optimizer, out, plan)
    for step in range(first, settings.steps):
        rate = min(1.0, (step + 1) / 100) * 0.5 * (1 + cos(pi * step / settings.steps))
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * rate
        value = loss(step, torch.Generator().manual_seed(settings.seed * 2**32 + step))
        optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if progress is not None:
            progress(step + 1, float(value.detach()))
        if (step + 1) % 200 == 0:
            _remember(model, optimizer, step + 1, out, plan)


def _state_paths(out: Path) -> tuple[Path, Path]:
    return out.parent / f".{out.name}.fit.safetensors", out.parent / f".{out.name}.fit.json"


def _remember(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, out: Path, plan: dict[str, Any]) -> None:
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for i, parameter in enumerate(model.parameters()):
        tensors |= {f"{key}.{i}": optimizer.state[parameter][key] for key in ("exp_avg", "exp_avg_sq")}
    tensors["step"] = torch.tensor(float(step))
    weights, about = _state_paths(out)
    write_json(about, plan)
    write_safetensors(weights, tensors)


def _resume(model: nn.Module, optimizer: torch.optim.Optimizer, out: Path, plan: dict[str, Any]) -> int:
    weights, about = _state_paths(out)
    if not weights.exists() or not about.exists() or read_json(about) != plan:
        return 0
    tensors = read_safetensors(weights)
    shapes = {f"model.{name}": tuple(tensor.shape) for name, tensor in model.state_dict().items()} | {"step": ()}
    for i, parameter in enumerate(model.parameters()):
        shapes |= {f"{key}.{i}": tuple(parameter.shape) for key in ("exp_avg", "exp_avg_sq")}
    if mismatches(shapes, tensors):
        return 0
    model.load_state_dict({name[6:]: tensor for name, tensor in tensors.items() if name.startswith("model.")})
    for i, parameter in enumerate(model.parameters()):
        state = {key: tensors[f"{key}.{i}"] for key in ("exp_avg", "exp_avg_sq")}
        optimizer.state[parameter] = state | {"step": tensors["step"].clone()}
    return int(tensors["step"])


def _forget(out: Path) -> None:
    for path in _state_paths(out):
        path.unlink(missing_ok=True)
