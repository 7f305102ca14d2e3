"""A small classifier of the embedded images that ships with lwd: features for metrics without any download.

Made by tools/make_fashion_model.py from only the 12,000 embedded training images and their labels.
"""

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from lwd.assets import FASHION
from lwd.io.files import model_digest
from lwd.io.tensors import read_safetensors

FOLDER = FASHION / "judge"
PIXELS, FEATURES = 28, 64


class Judge(Protocol):
    """A classifier of images in [-1, 1]: the shipped one, or an EfficientNet-Lite."""

    def classes(self, images: Tensor) -> Tensor: ...


class FashionJudge(nn.Module):
    """Images (b, 3, h, w) in [-1, 1] -> 64 features as (b, 64, 1, 1); `classes` returns the logits of ten classes."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.look = nn.Sequential(
            nn.Conv2d(1, 16, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 7 * 7, FEATURES),
            nn.ReLU(),
        )
        self.head = nn.Linear(FEATURES, classes)

    @property
    def identity(self) -> str:
        return f"a classifier of 12,000 Fashion-MNIST images, {FEATURES} features (files {model_digest(FOLDER)})"

    def forward(self, images: Tensor) -> Tensor:
        grey = images.mean(1, keepdim=True)
        if grey.shape[-2:] != (PIXELS, PIXELS):
            grey = interpolate(grey, (PIXELS, PIXELS), mode="bilinear", antialias=True, align_corners=False)
        return self.look(grey)[:, :, None, None]

    def classes(self, images: Tensor) -> Tensor:
        """Logits (b, 10)."""
        return self.logits(self(images).flatten(1))

    def logits(self, features: Tensor) -> Tensor:
        """Logits of features (b, 64)."""
        return self.head(features)


def load_judge() -> FashionJudge:
    """Load the shipped weights, frozen."""
    judge = FashionJudge()
    judge.load_state_dict({k: v.float() for k, v in read_safetensors(FOLDER / "model.safetensors").items()})
    return judge.requires_grad_(False).eval()


@torch.no_grad()
def seen_classes(judge: Judge, images: Tensor, batch: int = 500) -> Tensor:
    """Classify each image: (b,)."""
    return torch.cat([judge.classes(part).argmax(1) for part in torch.split(images, batch)])
