"""Shards of the embedded data set: texture latents from an autoencoder, and the semantic latents that ship with lwd."""

import os
from pathlib import Path
from typing import Any

import torch

from lwd.compute.moments import ChannelMoments
from lwd.errors import InputError
from lwd.groups import Layout
from lwd.images.fashion import CHANNELS, GRID, fashion_meta, fashion_semantic, load_fashion
from lwd.latents.shards import MANIFEST, group_key, read_manifest, write_manifest, write_shard
from lwd.latents.statistics import statistics_of
from lwd.representations.texture import TextureAutoencoder, from_uint8

SHARD = 2000


@torch.no_grad()
def encode_embedded(
    split: str, autoencoder: TextureAutoencoder, out: str | os.PathLike[str], texture: str, channels: int = CHANNELS
) -> Path:
    """Write the shards of `fashion/split` unless they exist; texture: a description of the autoencoder.

    channels: how many of the semantic latents' principal components to keep, largest first. There are no mirrored
    latents: the shipped semantic latents are of the original images only.
    """
    if not 1 <= channels <= CHANNELS:
        raise InputError(
            f"the embedded semantic latents have 1 to {CHANNELS} channels, got {channels}", argument="semantic"
        )
    out, source, semantic = Path(out), load_fashion(split), fashion_semantic(split)[:, :channels]
    meta = fashion_meta()
    about: dict[str, Any] = {"source": source.name, "classes": list(source.classes)}
    about["encoders"] = {"texture": texture, "semantic": meta["encoder"], "compressor": meta["compressor"]}
    if channels < CHANNELS:
        about["encoders"]["compressor"] += f", the first {channels}"
    if (out / MANIFEST).exists():
        manifest = read_manifest(out)
        found = manifest.provenance if manifest else {}
        if found != about:
            raise InputError(f"{out} contains other shards ({found}); use another directory")
        return out
    parts = [
        autoencoder.encode(from_uint8(torch.tensor(source.images[i : i + 500]))) for i in range(0, len(source), 500)
    ]
    latents = {"texture": torch.cat(parts), "semantic": semantic}
    if latents["texture"].shape[2:] != GRID:
        size = "x".join(map(str, latents["texture"].shape[2:]))
        raise InputError(
            f"the embedded semantic latents are 4x4, but the autoencoder's latents are {size}; use patches of 7 px"
        )
    labels, lines = torch.from_numpy(source.labels), []
    for number, low in enumerate(range(0, len(source), SHARD)):
        rows = slice(low, low + SHARD)
        tensors = {group_key(name): part[rows].contiguous() for name, part in latents.items()}
        lines.append(write_shard(out / f"shard-{number:05}.safetensors", tensors | {"labels": labels[rows]}))
    statistics = statistics_of({name: ChannelMoments().update(part) for name, part in latents.items()})
    layout = Layout.of(**{name: part.shape[1] for name, part in latents.items()})
    write_manifest(out, layout, len(source.classes), lines, statistics, about)
    return out
