"""Labelled images: arrays in memory, and class-per-folder trees like ImageNet's."""

import hashlib
import os
import struct
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image, UnidentifiedImageError

from lwd.errors import InputError
from lwd.io.files import check_file

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
MAX_PIXELS = 2**26
"""Of one picture: 8192 x 8192. A file of a few kilobytes can claim any size."""
FORMATS = ("JPEG", "PNG", "WEBP")
"""What is read; Pillow knows others, some of which start programs (EPS)."""
UNREADABLE: tuple[type[Exception], ...] = (
    *(OSError, UnidentifiedImageError, SyntaxError, ValueError, Image.DecompressionBombError, TypeError, LookupError),
    *(ArithmeticError, RuntimeError, AttributeError, MemoryError, AssertionError, struct.error, zlib.error),
)
"""Errors of Pillow on damaged pictures."""
Pixels = np.ndarray[Any, np.dtype[np.uint8]]


class BadImage(InputError):
    """A file is not a readable image; the message contains its path, and `name` is its name within the source."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name or message


class ImageSource(Protocol):
    """A set of labelled images; images are (height, width, 3) uint8.

    A source may also have `digest()`, a checksum of the images; `lwd encode` uses it to avoid mixing data sets.
    """

    @property
    def name(self) -> str: ...

    @property
    def classes(self) -> Sequence[str]: ...

    @property
    def labels(self) -> np.ndarray[Any, np.dtype[np.int64]]: ...

    def __len__(self) -> int: ...

    def image(self, index: int) -> Pixels: ...


def source_digest(source: ImageSource) -> str:
    """Return the source's checksum of its images, or else a checksum of its labels; 16 hexadecimal digits."""
    own = getattr(source, "digest", None)
    return str(own()) if callable(own) else hashlib.sha256(np.asarray(source.labels).tobytes()).hexdigest()[:16]


@dataclass(frozen=True)
class ArraySource:
    """Images in memory (or memory-mapped): (n, height, width, 3) uint8."""

    name: str
    classes: Sequence[str]
    images: Pixels
    labels: np.ndarray[Any, np.dtype[np.int64]]

    def __len__(self) -> int:
        return len(self.images)

    def image(self, index: int) -> Pixels:
        return np.asarray(self.images[index])

    def digest(self) -> str:
        """Checksum of all pixels and labels."""
        digest = hashlib.sha256(str(self.images.shape).encode() + np.asarray(self.labels).tobytes())
        for low in range(0, len(self.images), 1000):
            digest.update(np.ascontiguousarray(self.images[low : low + 1000]).data)
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Subset:
    """Some images of another source, by number."""

    source: ImageSource
    index: np.ndarray[Any, np.dtype[np.int64]]

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def classes(self) -> Sequence[str]:
        return self.source.classes

    @property
    def labels(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return self.source.labels[self.index]

    def __len__(self) -> int:
        return len(self.index)

    def image(self, index: int) -> Pixels:
        return self.source.image(int(self.index[index]))


def leave_out(source: ImageSource, numbers: Sequence[int]) -> ImageSource:
    """Return the source without the images `numbers`."""
    return Subset(source, np.setdiff1d(np.arange(len(source)), numbers)) if numbers else source


class FolderSource:
    """One folder per class, classes in sorted order (ImageNet's layout); JPEG, PNG and WebP at any depth.

    Links are followed; hidden files and folders (names that start with a dot) are ignored.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        root = Path(root)
        if not root.is_dir():
            raise InputError(f"{root} is not a directory of class folders")
        self.root, self.name = root, root.resolve().name
        folders = (entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
        self.classes = tuple(sorted(folders))
        if not self.classes:
            raise InputError(f"{root} has no class folders; images are expected as {root}/CLASS/IMAGE.jpg")
        self.files: list[str] = []  # strings relative to the root: a million Path objects would need a gigabyte
        labels: list[int] = []
        above = tuple(str(parent) for parent in (root.resolve(), *root.resolve().parents))
        for label, folder in enumerate(self.classes):
            found = sorted(_images_below(root, folder, above), key=lambda name: name.split("/"))
            for name in (folder, *found):
                check_name(root, name)
            if not found:
                raise InputError(f"{root / folder} has no images ({', '.join(SUFFIXES)})")
            self.files += found
            labels += [label] * len(found)
        self.labels = np.array(labels, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.files)

    def image(self, index: int) -> Pixels:
        path = self.root / self.files[index]
        try:
            with open_picture(path) as picture:
                return as_rgb(picture)
        except UNREADABLE as error:
            reason = str(error) or type(error).__name__
            raise BadImage(f"{path} is not a readable image ({reason})", self.files[index]) from error

    def caption(self, index: int) -> str:
        """The text beside an image: IMAGE.txt for IMAGE.jpg."""
        path = (self.root / self.files[index]).with_suffix(".txt")
        try:
            text = " ".join(path.read_text("utf-8").split())
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise InputError(f"{path} is not a readable caption of its image ({reason})") from error
        if not text:
            raise InputError(f"{path} is empty; a caption is needed for every image")
        return text

    def digest(self) -> str:
        """Checksum of the names and sizes of all files."""
        digest = hashlib.sha256()
        for name in self.files:
            try:
                size = (self.root / name).stat().st_size
            except OSError as error:
                raise InputError(f"cannot read {self.root / name}: {error.strerror or error}") from error
            digest.update(f"{name} {size}\n".encode())
        return digest.hexdigest()[:16]


def check_name(root: Path, name: str) -> None:
    """Raise an error for a file name that no text file can record: bytes that are not UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the name of {str(root / name)!r} is not valid UTF-8; rename it") from error


def _images_below(root: Path, folder: str, above: tuple[str, ...]) -> Iterator[str]:
    """Yield image names relative to the root; links back to a folder `above` are not followed."""
    real = os.path.realpath(root / folder)
    if real in above:
        return
    try:
        with os.scandir(root / folder) as entries:
            listed = list(entries)
    except OSError as error:
        raise InputError(f"cannot list {root / folder}: {error.strerror or error}") from error
    for entry in listed:
        if entry.name.startswith("."):
            continue
        name = f"{folder}/{entry.name}"
        if _is_folder(entry):
            yield from _images_below(root, name, (*above, real))
        elif name.lower().endswith(SUFFIXES) and _is_file(entry):
            yield name


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_file(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link to itself
        return False


@contextmanager
def open_picture(path: Path) -> Iterator[Image.Image]:
    """Open a JPEG, PNG or WebP of at most MAX_PIXELS; raises one of UNREADABLE."""
    check_file(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about sizes that are checked here, and about damaged metadata
        with Image.open(path, formats=FORMATS) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise ValueError(f"it has {picture.width} x {picture.height} pixels; the most is {MAX_PIXELS}")
            yield picture


def as_rgb(picture: Image.Image) -> Pixels:
    """Convert to 8-bit RGB; 16-bit grey is scaled (Pillow would clip it)."""
    if picture.mode != "I" and not picture.mode.startswith("I;16"):
        if picture.mode == "F":
            raise ValueError("it has floating-point pixels; save it with 8 or 16 bits")
        return np.asarray(picture.convert("RGB"))
    values = np.asarray(picture).astype(np.int64)
    if values.min() < 0 or values.max() > 65535:
        raise ValueError("it has more than 16 bits; save it with 8 or 16 bits")
    grey = ((values + 128) // 257).astype(np.uint8)
    return np.repeat(grey[:, :, None], 3, axis=2)


def center_crop(pixels: Pixels, size: int) -> Pixels:
    """Crop like ADM: halve with a box filter while at least twice too large, scale the short side, crop the centre."""
    if size < 1:
        raise InputError(f"the size of a crop must be at least 1 pixel, got {size}")
    picture = Image.fromarray(pixels)
    while min(picture.size) >= 2 * size:
        picture = picture.resize((picture.width // 2, picture.height // 2), Image.Resampling.BOX)
    scale = size / min(picture.size)
    picture = picture.resize((round(picture.width * scale), round(picture.height * scale)), Image.Resampling.BICUBIC)
    top, left = (picture.height - size) // 2, (picture.width - size) // 2
    return np.asarray(picture)[top : top + size, left : left + size]
