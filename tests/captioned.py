"""A small text-to-image model, and latents that its captions describe, for tests of training on captions."""

import torch
from safetensors.torch import load_file

from lwd.latents.formats import CaptionsFile
from lwd.latents.shards import CAPTIONS, write_manifest, write_shard
from lwd.latents.statistics import Statistics
from lwd.training.config import config_from_dict
from sefi import LAYOUT, write_autoencoder, write_model, write_text_encoder

TEXTS = ("a red apple", "a blue mug", "a wooden table")


def write_complete(root):
    """Network, autoencoder and text encoder."""
    return write_text_encoder(write_autoencoder(write_model(root)))


def write_latents(root, count=36, captions=TEXTS):
    """Latents (2 x 3) whose mean depends on the caption. The texture comes first, as `lwd encode` writes it."""
    root.mkdir(parents=True)
    generator = torch.Generator().manual_seed(0)
    kinds = torch.randn(3, 12, 1, 1, generator=generator)
    rows = torch.arange(count) % 3
    latents = kinds[rows] + 0.1 * torch.randn(count, 12, 2, 3, generator=generator)
    tensors = {"latents": latents[:, 4:], "latents_sv": latents[:, :4], "labels": rows}
    lines = [
        write_shard(
            root / f"shard-{n}.safetensors", {name: t[6 * n : 6 * n + 6].clone() for name, t in tensors.items()}
        )
        for n in range(count // 6)
    ]
    # Statistics that would change the latents, if they were used.
    mean, std = ({"texture": torch.full((8,), x), "semantic": torch.full((4,), x)} for x in (1.0, 3.0))
    written = type(LAYOUT).of(texture=8, semantic=4)
    write_manifest(root, written, 3, lines, Statistics(mean, std))
    if captions:
        CaptionsFile(captions=[captions[i % len(captions)] for i in range(count)]).write(root / CAPTIONS)
    return root, latents


def settings(model="", **sections):
    """A short run with everything logged."""
    base = {
        "schedule": "offset:0.1",
        "objective": {"cosine": 0.0},
        "optimizer": {"lr": 1e-3, "ema": 0.5},
        "run": {"steps": 4, "batch": 6, "log_every": 1, "save_every": 2},
        "probe": {"steps": 4, "burn_in": 1, "points": 5, "samples": 32},
        "text": {"model": str(model)},
    }
    for name, changes in sections.items():
        base[name] = {**base[name], **changes} if isinstance(changes, dict) else changes
    return config_from_dict(base)


def saved(run, step):
    """All tensors of a checkpoint."""
    folder = run / "checkpoints" / f"{step:08}"
    average = {f"ema.{name}": t for name, t in load_file(folder / "model.safetensors").items()}
    return load_file(folder / "training.safetensors") | average
