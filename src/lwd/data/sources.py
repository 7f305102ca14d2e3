"""Images with labels: arrays in memory, and class-per-folder trees as ImageNet has them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image, UnidentifiedImageError

from lwd.errors import InputError

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
Pixels = np.ndarray[Any, np.dtype[np.uint8]]


class BadImage(InputError):
    """A file that is not a readable image; the message names it."""


class ImageSource(Protocol):
    """A set of labelled images; images are (height, width, 3) uint8."""

    @property
    def name(self) -> str: ...

    @property
    def classes(self) -> Sequence[str]: ...

    @property
    def labels(self) -> np.ndarray[Any, np.dtype[np.int64]]: ...

    def __len__(self) -> int: ...

    def image(self, index: int) -> Pixels: ...


@dataclass(frozen=True)
class ArraySource:
    """Images that are already in memory (or mapped): (n, height, width, 3) uint8."""

    name: str
    classes: Sequence[str]
    images: Pixels
    labels: np.ndarray[Any, np.dtype[np.int64]]

    def __len__(self) -> int:
        return len(self.images)

    def image(self, index: int) -> Pixels:
        return np.asarray(self.images[index])


class FolderSource:
    """One folder per class, classes in sorted order (ImageNet's layout); JPEG, PNG and WebP, at any depth below."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        root = Path(root)
        if not root.is_dir():
            raise InputError(f"{root} is not a directory of class folders")
        self.name = root.name
        self.classes = tuple(sorted(entry.name for entry in root.iterdir() if entry.is_dir()))
        if not self.classes:
            raise InputError(f"{root} has no class folders; images are expected as {root}/CLASS/IMAGE.jpg")
        self.paths: list[Path] = []
        labels: list[int] = []
        for label, folder in enumerate(self.classes):
            found = sorted(p for p in (root / folder).rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
            if not found:
                raise InputError(f"{root / folder} holds no images ({', '.join(SUFFIXES)})")
            self.paths += found
            labels += [label] * len(found)
        self.labels = np.array(labels, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.paths)

    def image(self, index: int) -> Pixels:
        path = self.paths[index]
        try:
            with Image.open(path) as picture:
                return np.asarray(picture.convert("RGB"))
        except (OSError, UnidentifiedImageError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise BadImage(f"{path} is not a readable image ({str(error) or type(error).__name__})") from error


def center_crop(pixels: Pixels, size: int) -> Pixels:
    """ADM's preparation: halve by box filter while twice too large, bicubic to the short side, crop the centre."""
    picture = Image.fromarray(pixels)
    while min(picture.size) >= 2 * size:
        picture = picture.resize((picture.width // 2, picture.height // 2), Image.Resampling.BOX)
    scale = size / min(picture.size)
    picture = picture.resize((round(picture.width * scale), round(picture.height * scale)), Image.Resampling.BICUBIC)
    top, left = (picture.height - size) // 2, (picture.width - size) // 2
    return np.asarray(picture)[top : top + size, left : left + size]
