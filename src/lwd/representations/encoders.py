"""Frozen semantic encoders: images in [-1, 1] to feature maps, one vector per patch."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.functional import interpolate

from lwd.errors import InputError, import_extra
from lwd.representations.efficientnet import load_efficientnet
from lwd.representations.judge import load_judge
from lwd.representations.resnet import load_resnet50

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
NORMALISATION = {"dinov2": IMAGENET, "dinov2_with_registers": IMAGENET, "clip": CLIP, "clip_vision_model": CLIP}
UNUSED = ("pooler.", "post_layernorm.", "mask_token")
"""Parts that do not affect the final hidden states: their weights may be missing."""
UNLOADABLE = (OSError, ValueError, RuntimeError, TypeError, KeyError, AttributeError, ArithmeticError, SafetensorError)


class SemanticEncoder(Protocol):
    """images (b, 3, h, w) in [-1, 1] -> features (b, d, rows, columns); `identity` describes the encoder."""

    @property
    def identity(self) -> str: ...

    def __call__(self, images: Tensor) -> Tensor: ...


class PatchEncoder(nn.Module):
    """A vision transformer from `transformers`: its final hidden states without class and register tokens."""

    mean: Tensor
    std: Tensor

    def __init__(
        self, model: Any, resolution: int, normalisation: tuple[tuple[float, ...], tuple[float, ...]], name: str
    ) -> None:
        super().__init__()
        patch = int(model.config.patch_size)
        if resolution < patch or resolution % patch:
            raise InputError(
                f"the resolution of {name} must be a multiple of its patch of {patch} px, got {resolution}"
            )
        self.model, self.resolution, self.patch = model, resolution, patch
        for key, values in zip(("mean", "std"), normalisation, strict=True):
            self.register_buffer(key, torch.tensor(values)[:, None, None], persistent=False)
        self.checksum = _checksum({**model.state_dict(), "mean": self.mean, "std": self.std})

    @property
    def features(self) -> int:
        return int(self.model.config.hidden_size)

    @property
    def prefix(self) -> int:
        """Tokens before the patches: the class token, then the registers."""
        return 1 + int(getattr(self.model.config, "num_register_tokens", 0) or 0)

    @property
    def identity(self) -> str:
        """Describes the weights, not their location: the same weights from elsewhere are the same encoder."""
        return f"{self.model.config.model_type} (weights {self.checksum}), final layer, {self.resolution} px"

    def forward(self, images: Tensor) -> Tensor:
        side = self.resolution // self.patch
        return self.tokens(images)[:, self.prefix :].transpose(1, 2).reshape(len(images), -1, side, side)

    def summary(self, images: Tensor) -> Tensor:
        """Return the class token, which Fréchet distances on DINOv2 use."""
        return self.tokens(images)[:, 0]

    def tokens(self, images: Tensor) -> Tensor:
        """Return the final hidden states: class token, registers, patches."""
        size = (self.resolution, self.resolution)
        if images.shape[-2:] != size:
            images = interpolate(images, size, mode="bicubic", antialias=True, align_corners=False)
        pixels = ((images + 1) / 2 - self.mean) / self.std
        # DINOv2 always interpolates its position table to the image; CLIP only on request.
        extra = {"interpolate_pos_encoding": True} if "clip" in self.model.config.model_type else {}
        tokens: Tensor = self.model(pixels, **extra).last_hidden_state
        return tokens


class CallableEncoder:
    """A function from images in [-1, 1] to feature maps, with a name for manifests."""

    def __init__(self, function: Callable[[Tensor], Tensor], identity: str) -> None:
        self.function, self.identity = function, identity

    def __call__(self, images: Tensor) -> Tensor:
        features = self.function(images)
        if not isinstance(features, Tensor) or features.ndim != 4 or len(features) != len(images):
            shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise InputError(f"{self.identity} must return features (b, d, rows, columns), got {shape}")
        return features


def load_encoder(spec: str, cache: Path | None = None) -> SemanticEncoder:
    """Load an encoder by name.

    spec: `fashion` (a small classifier that ships with lwd), `resnet50`, `resnet50:5@128` (stage and pixels),
    `efficientnet-lite0:4@224` (the same; also lite1 and lite2), or a hub id or directory of a DINOv2 or CLIP model,
    `facebook/dinov2-with-registers-base@224` (pixels; default: 16 patches per side).
    """
    name, at, pixels = spec.rpartition("@") if "@" in spec and not Path(spec).is_dir() else (spec, "", "")
    if at and not pixels.isdecimal():
        raise InputError(f"the part after @ must be a resolution in pixels, got {spec!r}")
    word, _, stage = name.partition(":")
    if spec == "fashion":
        return load_judge()
    if word == "resnet50" or (word.startswith("efficientnet-lite") and not Path(name).is_dir()):
        if stage and not stage.isdecimal():
            raise InputError(f"{word} takes a stage, for example {word}:4@128, got {spec!r}")
        if word != "resnet50":
            return load_efficientnet(word, int(stage or 4), int(pixels or 0), cache)
        return load_resnet50(int(stage or 4), int(pixels or 128), cache)
    return load_patch_encoder(name, int(pixels) if pixels else None)


def load_patch_encoder(name: str | os.PathLike[str], resolution: int | None = None) -> PatchEncoder:
    """Load DINOv2 (with or without registers) or CLIP's vision tower, frozen, from a directory or by hub id."""
    transformers = import_extra("transformers", "encoders", f"the encoder {name}")
    try:
        config = transformers.AutoConfig.from_pretrained(str(name))
        kind = config.model_type
        if kind not in NORMALISATION:
            known = ", ".join((*NORMALISATION, "resnet50"))
            raise InputError(f"{name} is a {kind}; supported encoders: {known} and efficientnet-lite0 to 2")
        loader = transformers.CLIPVisionModel if "clip" in kind else transformers.AutoModel
        model, info = loader.from_pretrained(str(name), output_loading_info=True)
    except UNLOADABLE as error:
        if isinstance(error, InputError):
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        what = "not a complete model" if Path(name).is_dir() else "neither a directory nor a downloadable model"
        raise InputError(f"{name} is {what} of transformers ({reason})") from error
    missing = sorted(key for key in info["missing_keys"] if not any(part in key for part in UNUSED))
    if missing:  # transformers would initialise them at random
        some = ", ".join(missing[:8])
        raise InputError(f"{name} lacks {len(missing)} weights of {kind}: {some}; download the complete model")
    pixels = 16 * int(model.config.patch_size) if resolution is None else resolution
    normalisation = _normalisation(Path(name), kind)
    return PatchEncoder(model.requires_grad_(False).eval(), pixels, normalisation, Path(name).name)


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        values = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tuple(values.shape)} {values.dtype}\n".encode())
        digest.update(values.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _normalisation(directory: Path, kind: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Read mean and std from the model's preprocessor config, or use those of its family if there is none."""
    path = directory / "preprocessor_config.json"
    if not path.is_file():
        return NORMALISATION[kind]
    try:
        value = json.loads(path.read_bytes())
        mean, std = (tuple(float(x) for x in value[key]) for key in ("image_mean", "image_std"))
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} needs lists 'image_mean' and 'image_std' ({error})") from error
    if len(mean) != 3 or len(std) != 3 or min(std) <= 0:
        raise InputError(f"{path}: image_mean and image_std must be three numbers each, with std > 0")
    return mean, std


def resize_map(features: Tensor, rows: int, columns: int) -> Tensor:
    """Resize feature maps to another grid (that of the texture latents): average if coarser, bilinear if finer."""
    if features.shape[-2:] == (rows, columns):
        return features
    return interpolate(features, (rows, columns), mode="bilinear", antialias=True, align_corners=False)


@dataclass(frozen=True)
class Origin:
    """The features that a compressor was fitted to: identity of the encoder, and grid; empty if not recorded."""

    encoder: str = ""
    grid: tuple[int, int] | None = None

    def keys(self) -> dict[str, Any]:
        """Keys for config.json."""
        return {"encoder": self.encoder, "grid": self.grid} if self.encoder and self.grid else {}

    def check_encoder(self, encoder: str) -> None:
        """Raise an error for features of another encoder."""
        if self.encoder and self.encoder != encoder:
            raise InputError(f"the compressor was fitted to features of {self.encoder}, not of {encoder}; fit another")

    def check_grid(self, rows: int, columns: int) -> None:
        """Raise an error for another grid than that of the fit."""
        if self.grid and self.grid != (rows, columns):
            had = "x".join(map(str, self.grid))
            raise InputError(f"the compressor was fitted on a {had} grid, not on {rows}x{columns}; fit another")


def check_width(features: Tensor, width: int) -> None:
    """Raise an error unless features (b, d, h, w) have the width that a compressor needs."""
    if features.ndim != 4 or features.shape[1] != width:
        raise InputError(f"the compressor needs features of {width} channels, got shape {tuple(features.shape)}")


def move(tool: object, device: torch.device | str) -> None:
    """Move the weights of an encoder or compressor to a device, if it has any."""
    inner = tool.function if isinstance(tool, CallableEncoder) else tool
    if isinstance(inner, nn.Module):
        inner.to(device)
