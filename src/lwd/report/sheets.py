"""Contact sheets: latents in a directory of shards, and samples of a model, as pictures."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from lwd.errors import InputError
from lwd.images.sources import ImageSource, center_crop
from lwd.io.files import atomic_file
from lwd.latents.reader import LatentReader
from lwd.representations.pca import PCAFit
from lwd.representations.texture import TextureAutoencoder, to_uint8
from lwd.sampling.pipeline import LWDPipeline


def describe_shards(reader: LatentReader, provenance: dict[str, Any]) -> str:
    """Describe shards: counts, groups and the range of the statistics."""
    lines = [
        f"images:     {len(reader)} in {len(reader.shards)} shards, {reader.classes} classes",
        f"groups:     {reader.layout} on {reader.size[0]}x{reader.size[1]}" + (", mirrored" if reader.mirrored else ""),
    ]
    for name in reader.layout.names:
        mean, std = reader.statistics.mean[name], reader.statistics.std[name]
        numbers = f"mean {mean.min():.3g} to {mean.max():.3g}, std {std.min():.3g} to {std.max():.3g}"
        lines.append(f"{name + ':':<11} {numbers}")
    return "\n".join(lines + [f"{key + ':':<11} {value}" for key, value in provenance.items() if key != "classes"])


@torch.no_grad()
def contact_sheet(
    reader: LatentReader,
    source: ImageSource | None = None,
    autoencoder: TextureAutoencoder | None = None,
    count: int = 12,
    cell: int = 96,
) -> Image.Image:
    """Draw one column per image; rows: the image, the latents of each group as PCA colours, the reconstruction."""
    chosen = np.linspace(0, len(reader) - 1, min(count, len(reader))).astype(np.int64)
    raw = reader.statistics.denormalize(reader.gather(chosen, np.zeros(len(chosen), bool)).latents, reader.layout)
    parts = reader.layout.split(raw)
    rows = [colours(part) for part in parts.values()]
    if source is not None:
        if len(source) != len(reader):
            raise InputError(
                f"{source.name} has {len(source)} images, but the shards have {len(reader)}; pass the encoded images",
                argument="images",
            )
        rows.insert(0, np.stack([_square(source.image(int(i)), cell) for i in chosen]))
    if autoencoder is not None:
        first = next(iter(parts.values()))
        if autoencoder.channels != first.shape[1]:
            raise InputError(
                f"the autoencoder has {autoencoder.channels} channels, but the latents have {first.shape[1]}",
                argument="texture",
            )
        rows.append(to_uint8(autoencoder.decode(first)).numpy())
    strips = [np.concatenate([_square(picture, cell) for picture in row], axis=1) for row in rows]
    gap = np.full((4, strips[0].shape[1], 3), 255, np.uint8)
    return Image.fromarray(np.concatenate([line for strip in strips for line in (strip, gap)][:-1]))


def colours(latents: Tensor, like: Tensor | None = None) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Show the first three principal directions as red, green and blue: (b, c, h, w) -> (b, h, w, 3) uint8.

    like: latents that define directions and range, so that pictures of several batches are comparable.
    """
    latents, like = latents.cpu(), latents.cpu() if like is None else like.cpu()
    channels = min(3, latents.shape[1])
    basis = PCAFit().update(like).finish(channels)
    shown, scale = basis.encode(latents.double()), basis.encode(like.double())
    low, high = torch.quantile(
        scale.transpose(0, 1).flatten(1)[:, :100_000], torch.tensor([0.02, 0.98]).double(), dim=1
    )
    scaled = (shown - low[:, None, None]) / (high - low).clamp(min=1e-9)[:, None, None]
    scaled = scaled.expand(-1, 3, -1, -1) if channels == 1 else scaled
    if channels == 2:
        scaled = torch.cat([scaled, torch.full_like(scaled[:, :1], 0.5)], dim=1)
    return (255 * scaled.clamp(0, 1)).to(torch.uint8).permute(0, 2, 3, 1).numpy()


def save_sheet(sheet: Image.Image, path: str | os.PathLike[str]) -> None:
    """Write a PNG atomically."""
    if Path(path).suffix.lower() != ".png":
        raise InputError(f"the name of a contact sheet must end in .png, got {str(path)!r}", argument="out")
    with atomic_file(path) as file:
        sheet.save(file, "PNG")


def _square(pixels: np.ndarray[Any, Any], cell: int) -> np.ndarray[Any, Any]:
    if pixels.shape[0] > cell or pixels.shape[1] > cell:
        return center_crop(pixels, cell)
    return np.asarray(Image.fromarray(pixels).resize((cell, cell), Image.Resampling.NEAREST))


@torch.no_grad()
def sample_sheet(
    pipe: LWDPipeline, columns: int | Sequence[Any] = 10, rows: int = 4, seed: int = 0, steps: int = 20
) -> Image.Image:
    """Draw samples of classes or prompts, one column each, with `steps` Heun steps; a number: the first classes.

    Without an autoencoder, latents are shown as colours.
    """
    columns = range(columns) if isinstance(columns, int) else columns
    labels, count = [column for _ in range(rows) for column in columns], len(columns)
    solver = {"method": "heun", "steps": steps}
    result = pipe(labels, seed=seed, solver=solver)
    if result.images is not None:
        pictures = np.stack([np.asarray(image.convert("RGB")) for image in result.images])
    else:
        pictures = colours(next(iter(result.latents.values())))
    cells = [_square(picture, 64) for picture in pictures]
    lines = [np.concatenate(cells[row * count : (row + 1) * count], axis=1) for row in range(rows)]
    return Image.fromarray(np.concatenate(lines))
