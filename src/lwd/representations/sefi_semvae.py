"""The published SemVAE of SeFi-Image (`SeFi-Image/SeFi-Image-SemVAE` on the hub) as a compressor.

A download holds `dinov2_vitl14_reg/transformer_ch16/` with `checkpoints/checkpoint_01000000.pt` and `latent_stats.pt`.
Both are read without executing anything in them. The checkpoint does not record its number of attention heads; it is 8
unless a `config.json` beside `latent_stats.pt` says otherwise (`num_heads`).
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.io.files import read_json, sha256
from lwd.io.tensors import read_pickle, read_state
from lwd.representations.encoders import Origin
from lwd.representations.formats import SemVAEConfig
from lwd.representations.semvae import SemVAE, build_semvae

VARIANT = Path("dinov2_vitl14_reg", "transformer_ch16")
STATISTICS = "latent_stats.pt"
HEADS = 8
SUFFIXES = (".pt", ".safetensors")


@dataclass(frozen=True)
class SeFiFiles:
    """The files of a SemVAE in the layout of SeFi-Image; config need not exist."""

    weights: Path
    statistics: Path
    config: Path

    @property
    def digest(self) -> str:
        """Checksum (16 hexadecimal digits) of everything that decides its latents."""
        whole = hashlib.sha256()
        for path in (self.weights, self.statistics, self.config):
            if path.is_file():
                whole.update(f"{path.name} {sha256(path)}\n".encode())
        return whole.hexdigest()[:16]


def find_sefi(path: str | os.PathLike[str]) -> SeFiFiles | None:
    """Find the files of a downloaded repository, of a variant in it, or beside a checkpoint; None if it is neither."""
    path = Path(path)
    if path.is_file() and path.suffix in SUFFIXES:
        root = path.parent.parent if path.parent.name == "checkpoints" else path.parent
        return SeFiFiles(path, root / STATISTICS, root / "config.json")
    root = path / VARIANT if (path / VARIANT).is_dir() else path
    found = [file for folder in (root / "checkpoints", root) for file in _weights(folder)]
    if len(found) > 1:
        names = ", ".join(str(file.relative_to(root)) for file in found[:4])
        raise InputError(f"{root} has {len(found)} checkpoints ({names}); pass the path of one of them")
    if not found and not (root / STATISTICS).is_file():
        return None
    if not found:
        raise InputError(f"{root} has {STATISTICS} but no checkpoint (checkpoints/checkpoint_*.pt); download it again")
    return SeFiFiles(found[0], root / STATISTICS, root / "config.json")


def _weights(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from sorted(f for f in folder.iterdir() if f.suffix in SUFFIXES and f.name.startswith("checkpoint_"))


def load_sefi_semvae(files: SeFiFiles) -> SemVAE:
    """Load the compressor, frozen and in eval mode, with the published statistics of its latents."""
    state = convert_sefi(read_state(files.weights), files.weights)
    heads = HEADS
    if files.config.is_file():
        value = read_json(files.config)
        heads = value.get("num_heads", HEADS) if isinstance(value, Mapping) else HEADS
        if type(heads) is not int:
            raise InputError(f"{files.config}: num_heads must be an integer, got {heads!r}")
    width, features = state["from_features.weight"].shape
    channels = state["from_latents.weight"].shape[1]
    depth = 1 + max(int(name.split(".")[1]) for name in state if name.startswith("encoder."))
    config = SemVAEConfig(features=features, channels=channels, width=width, depth=depth, heads=heads)
    # The reference takes features as they are.
    state |= {"mean": torch.zeros(features), "std": torch.ones(features)}
    model = build_semvae(config, "sefi", state, Origin(), files.weights)
    model.statistics = read_statistics(files.statistics, channels)
    return model


def convert_sefi(state: Mapping[str, Tensor], where: Path) -> dict[str, Tensor]:
    """Rename the tensors of SeFi-Image: each stack is a linear layer, blocks, a norm and a linear layer, by number."""
    ours, ends = {}, {"encoder": ("from_features", "to_moments"), "decoder": ("from_latents", "to_features")}
    last = {stack: _last(state, stack, where) for stack in ends}
    inside = {"attn.in_proj_": "attn.qkv.", "attn.out_proj.": "attn.proj.", "mlp.0.": "mlp.fc1.", "mlp.2.": "mlp.fc2."}
    for name, tensor in state.items():
        stack, _, rest = name.partition(".")
        number, _, part = rest.partition(".")
        if stack not in ends or not number.isdecimal():
            raise InputError(f"{where} is not a SemVAE of SeFi-Image: unexpected {name}")
        first, final = ends[stack]
        i = int(number)
        if i == 0:
            ours[f"{first}.{part}"] = tensor
        elif i >= last[stack] - 1:
            ours[f"{final}.{i - last[stack] + 1}.{part}"] = tensor
        else:
            for theirs, own in inside.items():
                part = part.replace(theirs, own)
            ours[f"{stack}.{i - 1}.{part}"] = tensor
    return ours


def _last(state: Mapping[str, Tensor], stack: str, where: Path) -> int:
    """Return the number of the last layer of a stack."""
    layers = {name.split(".")[1] for name in state if name.startswith(f"{stack}.")}
    last = max((int(number) for number in layers if number.isdecimal()), default=0)
    first = state.get(f"{stack}.0.weight")
    if last < 3 or first is None or first.ndim != 2:
        raise InputError(f"{where} is not a SemVAE of SeFi-Image: its {stack} needs a linear layer, blocks and a head")
    return last


def read_statistics(path: Path, channels: int) -> tuple[Tensor, Tensor]:
    """Read mean and standard deviation of the latents, (c) each."""
    value: Any = read_pickle(path)
    found = []
    for name in ("mean", "std"):
        tensor = value.get(name, value.get(f"{name}_broadcast")) if isinstance(value, Mapping) else None
        if not isinstance(tensor, Tensor) or tensor.numel() != channels or not tensor.is_floating_point():
            raise InputError(f"{path} must contain a tensor {name!r} of {channels} numbers")
        found.append(tensor.float().flatten().clone())
    mean, std = found
    if not (torch.isfinite(mean).all() and torch.isfinite(std).all() and (std > 0).all()):
        raise InputError(f"{path}: mean and std must be finite, and std positive")
    return mean, std
