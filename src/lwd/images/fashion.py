"""The embedded data set: 12,000 + 2,000 images of Fashion-MNIST and their semantic latents, without any download.

Made by tools/make_fashion.py; src/lwd/assets/fashion/ATTRIBUTION.md describes the sources.
"""

import json
import lzma
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lwd.assets import FASHION
from lwd.errors import InputError
from lwd.images.sources import ArraySource

FOLDER = FASHION
IMAGES, LABELS, LATENTS, META = "images.xz", "labels.xz", "semantic.xz", "semantic.json"
CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
COUNTS = {"train": 12_000, "test": 2_000}
GRID = (4, 4)
CHANNELS = 8


def load_fashion(split: str = "train") -> ArraySource:
    """Load the images as (n, 28, 28, 3), with three equal channels; split: train or test."""
    rows = _rows(split)
    images, labels = _bytes(IMAGES).reshape(-1, 28, 28, 1)[rows], _bytes(LABELS)[rows]
    return ArraySource(
        f"fashion/{split}", CLASSES, np.broadcast_to(images, (*images.shape[:3], 3)), labels.astype(np.int64)
    )


def fashion_semantic(split: str = "train") -> Tensor:
    """Load the semantic latents (n, 8, 4, 4) of the same images: PCA of ResNet-50 features, stored in 8 bits."""
    meta = fashion_meta()
    codes = _bytes(LATENTS).reshape(CHANNELS, *GRID, -1).transpose(3, 0, 1, 2)[_rows(split)]
    return torch.from_numpy(dequantise(codes, np.array(meta["low"]), np.array(meta["step"])))


def fashion_meta() -> dict[str, Any]:
    """Describe the semantic latents and the share of the features' variance that they keep."""
    value: dict[str, Any] = json.loads((FOLDER / META).read_text())
    return value


def dequantise(codes: np.ndarray[Any, Any], low: np.ndarray[Any, Any], step: np.ndarray[Any, Any]) -> Any:
    """Convert 8-bit codes (n, c, h, w) to float32, with a scale per channel."""
    return (low[:, None, None] + step[:, None, None] * codes).astype(np.float32)


def _rows(split: str) -> slice:
    if split not in COUNTS:
        raise InputError(f"the embedded Fashion-MNIST has the splits train and test, got {split!r}")
    return slice(0, COUNTS["train"]) if split == "train" else slice(COUNTS["train"], sum(COUNTS.values()))


@cache
def _bytes(name: str) -> np.ndarray[Any, Any]:
    return np.frombuffer(lzma.decompress((FOLDER / name).read_bytes()), np.uint8)
