"""The networks that compute latents: a texture autoencoder, and semantic encoders with their compressors."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.groups import Layout
from lwd.io.files import model_digest, read_json
from lwd.latents.shards import FEATURES, group_key
from lwd.representations.encoders import Origin, SemanticEncoder, load_encoder, resize_map
from lwd.representations.formats import PCAFile, SemVAEFile
from lwd.representations.pca import load_pca
from lwd.representations.sefi_semvae import find_sefi, load_sefi_semvae
from lwd.representations.semvae import load_semvae
from lwd.representations.texture import TextureAutoencoder, locate_autoencoder


class Compressor(Protocol):
    """Features (b, d, h, w) -> latents (b, channels, h, w)."""

    @property
    def channels(self) -> int: ...

    def encode(self, features: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Semantic:
    """A semantic encoder and the compressor of its features."""

    encoder: SemanticEncoder
    compressor: Compressor

    def __post_init__(self) -> None:
        self.origin.check_encoder(self.encoder.identity)

    @property
    def origin(self) -> Origin:
        """The features that the compressor was fitted to, if recorded."""
        found = getattr(self.compressor, "origin", None)
        return found if isinstance(found, Origin) else Origin()


@dataclass(frozen=True)
class Encoders:
    """The networks that compute latents: one texture autoencoder, and one or more semantic encoders by group name.

    Example:
        >>> from lwd.representations.encoders import CallableEncoder
        >>> from lwd.representations.pca import PCAFit
        >>> colours = CallableEncoder(lambda images: torch.nn.functional.avg_pool2d(images, 7), "mean colours")
        >>> pca = PCAFit().update(torch.randn(8, 3, 4, 4)).finish(channels=2)
        >>> encoders = lwd.Encoders.of(lwd.TextureAutoencoder.load("fashion"), colours, pca)
        >>> print(encoders.layout)
        texture=16,semantic=2
    """

    autoencoder: TextureAutoencoder
    semantics: Mapping[str, Semantic]
    align: SemanticEncoder | None = None
    """Encoder of the alignment features (REPA); by default the first semantic one."""
    record: Mapping[str, str] = field(default_factory=dict)
    """Where they come from; stored in the manifest."""

    def __post_init__(self) -> None:
        if not self.semantics or "texture" in self.semantics:
            raise InputError(
                f"semantic groups need names other than texture, got {', '.join(self.semantics) or 'none'}"
            )

    @classmethod
    def of(cls, autoencoder: TextureAutoencoder, encoder: SemanticEncoder, compressor: Compressor) -> "Encoders":
        """The usual pair: texture and semantic."""
        return cls(autoencoder, {"semantic": Semantic(encoder, compressor)}, record={"semantic": encoder.identity})

    @classmethod
    def load(
        cls,
        texture: str,
        semantic: str | Mapping[str, str],
        compress: str | Mapping[str, str],
        align: str | None = None,
    ) -> "Encoders":
        """Load by name or directory: a texture autoencoder, semantic encoders and their compressors by group name.

        align: an encoder of its own for the alignment features.
        """
        semantic = {"semantic": semantic} if isinstance(semantic, str) else semantic
        compress = dict.fromkeys(semantic, compress) if isinstance(compress, str) else compress
        if set(semantic) != set(compress):
            raise InputError(
                f"the encoders are for {', '.join(semantic)}, the compressors for {', '.join(compress)}",
                argument="compress",
            )
        place = locate_autoencoder(texture)
        found = {name: Semantic(load_encoder(spec), load_compressor(compress[name])) for name, spec in semantic.items()}
        record = {name: one.encoder.identity for name, one in found.items()}
        record["texture"] = f"{place.resolve().name} (files {model_digest(place)})"
        for name, directory in compress.items():
            key = "compressor" if tuple(compress) == ("semantic",) else f"{name} compressor"
            record[key] = f"{Path(directory).resolve().name} (files {compressor_digest(directory)})"
        features = load_encoder(align) if align else None
        record |= {"align": features.identity} if features else {}
        return cls(TextureAutoencoder.load(texture), found, features, record)

    @property
    def tools(self) -> tuple[object, ...]:
        """All networks, to be moved to a device."""
        pairs = [part for one in self.semantics.values() for part in (one.encoder, one.compressor)]
        return (self.autoencoder, *pairs, *((self.align,) if self.align else ()))

    @property
    def layout(self) -> Layout:
        channels = {name: one.compressor.channels for name, one in self.semantics.items()}
        return Layout.of(texture=self.autoencoder.channels, **channels)

    @torch.no_grad()
    def __call__(self, images: Tensor, features: bool) -> dict[str, Tensor]:
        """Encode images (b, 3, h, w) in [-1, 1]; returns latents by shard key."""
        texture = self.autoencoder.encode(images)
        grid, out, maps = texture.shape[2:], {group_key("texture"): texture}, []
        for name, one in self.semantics.items():
            one.origin.check_grid(*grid)
            maps.append(resize_map(one.encoder(images), *grid))
            out[group_key(name)] = one.compressor.encode(maps[-1])
        if features:
            out[FEATURES] = resize_map(self.align(images), *grid) if self.align else maps[0]
        return out


def compressor_digest(directory: str | os.PathLike[str]) -> str:
    """Return a checksum (16 hexadecimal digits) of the files that `load_compressor` reads."""
    files = find_sefi(directory)
    return files.digest if files is not None else model_digest(directory)


def load_compressor(directory: str | os.PathLike[str]) -> Compressor:
    """Load a PCA or SemVAE from a directory, or the published SemVAE of SeFi-Image from a download or checkpoint."""
    files = find_sefi(directory)
    if files is not None:
        return load_sefi_semvae(files)
    value = read_json(Path(directory) / "config.json")
    kinds: dict[Any, Callable[..., Compressor]] = {
        PCAFile.format_name(): load_pca,
        SemVAEFile.format_name(): load_semvae,
    }
    kind = value.get("format") if isinstance(value, Mapping) else None
    if not isinstance(kind, str) or kind not in kinds:
        raise InputError(f"{directory} is not a compressor (PCA or SemVAE); its format is {kind!r}")
    return kinds[kind](directory)
