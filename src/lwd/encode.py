"""From images to two latents per image: shards, each written whole, by any number of processes, with one manifest."""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from lwd.data.moments import ChannelMoments
from lwd.data.shards import FEATURES, MANIFEST, group_key, open_shard, write_manifest, write_shard
from lwd.data.sources import BadImage, ImageSource, center_crop
from lwd.errors import InputError, nearest
from lwd.files import read_json, write_json
from lwd.groups import Layout
from lwd.representations.encoders import SemanticEncoder, resize_map
from lwd.representations.pca import load_pca
from lwd.representations.semvae import load_semvae
from lwd.representations.statistics import Statistics
from lwd.representations.texture import TextureAutoencoder, from_uint8

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
PARTS = "parts"


class Compressor(Protocol):
    """Features (b, d, h, w) -> latents (b, channels, h, w)."""

    @property
    def channels(self) -> int: ...

    def encode(self, features: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class EncodeSettings:
    """How the shards are cut; the same settings give the same bytes."""

    shard_size: int = 1000
    batch: int = 50
    dtype: str = "float32"
    features: bool = False
    """Also keep the encoder's features, as alignment targets for REPA."""
    skip_bad: bool = False
    """Leave out images that cannot be read, and count them, instead of stopping."""
    size: int = 0
    """Pixels to crop and scale every image to; 0 takes images as they are."""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise InputError(f"there is no dtype {self.dtype!r}; {nearest(self.dtype, DTYPES)}")
        for name in ("shard_size", "batch"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class Encoders:
    """What makes the latents, and a record of what it was."""

    autoencoder: TextureAutoencoder
    encoder: SemanticEncoder
    compressor: Compressor
    record: Mapping[str, str]

    @property
    def layout(self) -> Layout:
        return Layout.of(texture=self.autoencoder.channels, semantic=self.compressor.channels)

    @torch.no_grad()
    def __call__(self, images: Tensor, features: bool) -> dict[str, Tensor]:
        """Latents of images (b, 3, h, w) in [-1, 1], by shard key."""
        texture = self.autoencoder.encode(images)
        found = resize_map(self.encoder(images), *texture.shape[2:])
        out = {group_key("texture"): texture, group_key("semantic"): self.compressor.encode(found)}
        return out | ({FEATURES: found} if features else {})


def load_compressor(directory: str | os.PathLike[str]) -> Compressor:
    """A PCA or a SemVAE that was saved in a directory."""
    value = read_json(Path(directory) / "config.json")
    kinds: dict[Any, Callable[..., Compressor]] = {"lwd.pca": load_pca, "lwd.semvae": load_semvae}
    kind = value.get("format") if isinstance(value, Mapping) else None
    if kind not in kinds:
        raise InputError(f"{directory} is not a compressor (PCA or SemVAE); its format is {kind!r}")
    return kinds[kind](directory)


def encode(
    source: ImageSource,
    out: str | os.PathLike[str],
    encoders: Encoders,
    settings: EncodeSettings,
    rank: int = 0,
    world: int = 1,
    progress: Callable[[int], object] | None = None,
) -> str:
    """Write this process's shards that are not there yet; whoever completes the set writes the manifest."""
    out = Path(out)
    count = -(-len(source) // settings.shard_size)
    _same_plan(out, source, encoders, settings)
    if not (out / MANIFEST).exists():
        for number in range(rank, count, world):
            if not _is_whole(out, number):
                _encode_shard(source, out, number, encoders, settings)
            if progress is not None:
                progress(min(settings.shard_size, len(source) - number * settings.shard_size))
        if not all(_part(out, number).exists() for number in range(count)):
            return f"rank {rank} of {world}: done; the manifest follows when the other processes are"
        _finish(out, count, source, encoders)
        _sweep(out)
    bad = [name for number in range(count) for name in read_json(_part(out, number))["bad"]]
    skipped = f", {len(bad)} unreadable images left out: {', '.join(bad[:5])}" if bad else ""
    return f"{out}: {len(source) - len(bad)} images in {count} shards{skipped}"


def _encode_shard(source: ImageSource, out: Path, number: int, encoders: Encoders, settings: EncodeSettings) -> None:
    start = number * settings.shard_size
    index, images, bad = _images(source, range(start, min(start + settings.shard_size, len(source))), settings)
    if not len(index):
        raise InputError(
            f"images {start} to {start + settings.shard_size - 1} are all unreadable: {', '.join(bad[:5])}"
        )
    parts: dict[str, list[Tensor]] = {}
    for low in range(0, len(index), settings.batch):
        batch = from_uint8(torch.from_numpy(images[low : low + settings.batch]))
        for suffix, view in (("", batch), ("_flip", batch.flip(3))):
            for key, value in encoders(view, settings.features).items():
                parts.setdefault(key + suffix, []).append(value.to(DTYPES[settings.dtype]))
    tensors = {key: torch.cat(values).contiguous() for key, values in parts.items()}
    moments = {}
    for group in encoders.layout.names:
        both = ChannelMoments().update(tensors[group_key(group)]).update(tensors[group_key(group) + "_flip"])
        moments[group] = {"count": both.count, "mean": both.mean.tolist(), "squares": both.squares.tolist()}
    tensors["labels"] = torch.from_numpy(source.labels[index].astype(np.int64))
    line = write_shard(out / f"shard-{number:05}.safetensors", tensors)
    # Written after the shard: a shard without its part is made again.
    write_json(_part(out, number), {"line": line, "moments": moments, "bad": bad})


def _images(source: ImageSource, wanted: range, settings: EncodeSettings) -> tuple[Any, Any, list[str]]:
    index: list[int] = []
    images: list[Any] = []
    bad: list[str] = []
    for i in wanted:
        try:
            pixels = source.image(i)
        except BadImage as error:
            if not settings.skip_bad:
                raise InputError(f"{error}; pass --skip-bad to leave such images out") from error
            bad.append(str(error).split(" is not a readable")[0])
            continue
        pixels = center_crop(pixels, settings.size) if settings.size else pixels
        if images and pixels.shape != images[0].shape:
            raise InputError(f"image {i} is {pixels.shape[:2]}, the others {images[0].shape[:2]}; pass --size")
        index.append(i)
        images.append(pixels)
    return np.array(index, dtype=np.int64), np.stack(images) if images else np.zeros(0), bad


def _sweep(out: Path) -> None:
    """Remove what killed processes left under temporary names; all shards are whole by now."""
    for leftover in (*out.glob(".shard-*"), *(out / PARTS).glob(".*")):
        leftover.unlink(missing_ok=True)


def _finish(out: Path, count: int, source: ImageSource, encoders: Encoders) -> None:
    merged = {name: ChannelMoments() for name in encoders.layout.names}
    lines = []
    for number in range(count):
        part = read_json(_part(out, number))
        lines.append(part["line"])
        for name, value in part["moments"].items():
            mean, squares = (torch.tensor(value[key], dtype=torch.float64) for key in ("mean", "squares"))
            merged[name].merge(ChannelMoments(value["count"], mean, squares))
    statistics = Statistics(
        {n: m.mean.float() for n, m in merged.items()}, {n: m.std.float() for n, m in merged.items()}
    )
    write_manifest(out, encoders.layout, len(source.classes), lines, statistics, _provenance(source, encoders))


def _same_plan(out: Path, source: ImageSource, encoders: Encoders, settings: EncodeSettings) -> None:
    """Shards made with other settings or encoders must not be mixed."""
    plan = {"settings": asdict(settings), "images": len(source)} | _provenance(source, encoders)
    path = out / PARTS / "plan.json"
    if path.exists():
        old = read_json(path)
        changed = [key for key in plan if not isinstance(old, Mapping) or old.get(key) != plan[key]]
        if changed:
            raise InputError(f"{out} was begun with other {', '.join(changed)}; choose another directory")
    else:
        if out.is_dir() and any(out.glob("*.safetensors")):
            raise InputError(f"{out} holds shards of something else; choose another directory")
        write_json(path, plan)


def _provenance(source: ImageSource, encoders: Encoders) -> dict[str, Any]:
    return {"source": source.name, "classes": list(source.classes), "encoders": dict(encoders.record)}


def _is_whole(out: Path, number: int) -> bool:
    if not _part(out, number).exists():
        return False
    line = read_json(_part(out, number))["line"]
    try:
        return open_shard(out / line["file"]).count == line["count"]
    except InputError:
        return False


def _part(out: Path, number: int) -> Path:
    return out / PARTS / f"{number:05}.json"
