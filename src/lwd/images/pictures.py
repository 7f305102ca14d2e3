"""Sets of pictures as files: writing PNG, grids and ADM's .npz; reading .npz, folders and data sets in order."""

import base64
import hashlib
import io
import lzma
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from lwd.errors import InputError
from lwd.images.catalog import open_source
from lwd.images.sources import (
    MAX_PIXELS,
    SUFFIXES,
    UNREADABLE,
    ImageSource,
    Pixels,
    as_rgb,
    center_crop,
    open_picture,
    source_digest,
)
from lwd.io.files import atomic_file


def png(pixels: Pixels) -> bytes:
    """Encode one picture (h, w, 3) as PNG."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def data_uri(content: bytes) -> str:
    """Encode a PNG for a page, as a data URI; grey pictures are stored with one channel."""
    image = Image.open(io.BytesIO(content))
    grey = np.asarray(image.convert("RGB"))
    if (grey == grey[..., :1]).all():
        buffer = io.BytesIO()
        image.convert("L").save(buffer, "PNG", optimize=True)
        content = buffer.getvalue()
    return "data:image/png;base64," + base64.b64encode(content).decode()


def tile(pixels: Pixels, labels: Sequence[int]) -> Pixels:
    """Arrange pictures (n, h, w, 3) in a grid, with one column per class for 2 to 16 classes."""
    classes = len(dict.fromkeys(labels[: len(pixels)]))
    columns = classes if 1 < classes <= 16 else min(8, len(pixels))
    missing = -len(pixels) % columns
    padded = np.concatenate([pixels, np.full((missing, *pixels.shape[1:]), 255, np.uint8)])
    n, h, w, _ = padded.shape
    return padded.reshape(n // columns, columns, h, w, 3).swapaxes(1, 2).reshape(n // columns * h, columns * w, 3)


def write_arrays(path: Path, parts: Sequence[Any], size: int, rows: Sequence[int]) -> None:
    """Write ADM's .npz: arr_0 (n, h, w, 3) uint8 with the images numbered `rows`; each part has `size` images.

    Only one image is in memory at a time. Unlike numpy.savez this stores no time stamp, so equal sets are equal files.
    """
    head = {"descr": "|u1", "fortran_order": False, "shape": (len(rows), *parts[0].shape[1:])}
    with (
        atomic_file(path) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
        archive.open(zipfile.ZipInfo("arr_0.npy"), "w", force_zip64=True) as entry,
    ):
        np.lib.format.write_array_header_1_0(entry, head)
        for i in rows:
            entry.write(np.ascontiguousarray(parts[i // size][i % size]).data)


class Pictures(Protocol):
    """A set of images of one size, read once in order."""

    @property
    def name(self) -> str: ...

    def __len__(self) -> int: ...

    @property
    def digest(self) -> str:
        """Checksum of the contents, 16 hexadecimal digits."""
        ...

    def batches(self, size: int, start: int = 0) -> Iterator[Pixels]:
        """Yield images (b, h, w, 3) from number `start` on, `size` at a time."""
        ...


def open_pictures(name: str | os.PathLike[str], size: int = 0) -> Pictures:
    """Open ADM's .npz, a directory of `lwd sample`, a folder of images, or a split of a data set (`cifar10/test`).

    size: crop and scale to this many pixels, as `lwd encode` does (for folders and data sets; images may be grey).
    """
    path = Path(name)
    if (path / "parts" / "plan.json").is_file():
        raise InputError(f"{path} is not finished; run lwd sample again to complete it")
    if path.is_file():
        if size:
            raise InputError(f"a size has no effect on {path}, whose images already have one size", argument="size")
        return ArrayFile(path)
    if (path / "manifest.json").is_file() and (path / "samples.npz").is_file() and not size:
        return ArrayFile(path / "samples.npz")
    if not path.is_dir():
        if str(name).count("/") <= 1 and str(name).partition("/")[0] in ("cifar10", "fashion"):
            return SourcePictures(open_source(str(name)), size)
        raise InputError(f"{name} is neither an .npz, nor a folder of images, nor a data set such as cifar10/test")
    if path.suffix == ".npz":
        raise InputError(f"{path} is a folder, not an .npz file")
    # In a directory of lwd sample, the pictures next to images/ (grid.png, trajectory.png) are not samples.
    sampled = (path / "manifest.json").is_file() or ((path / "grid.png").is_file() and (path / "images").is_dir())
    return FolderPictures(path / "images" if sampled else path, size)


DAMAGED = (OSError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError, EOFError)
BROKEN = (*DAMAGED, LookupError, ValueError, TypeError, ArithmeticError, RuntimeError, MemoryError, SyntaxError)
MAX_MOMENTS = 2**28
"""Bytes of a matrix of moments; FID's has 34 million."""
"""Errors of zipfile and numpy on a damaged, encrypted or unusually compressed .npz."""


class ArrayFile:
    """arr_0 of an .npz, read in order and never loaded as a whole; ADM's reference files also contain moments."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.name
        try:
            with zipfile.ZipFile(path) as archive:
                names = (entry for entry in archive.namelist() if entry.endswith(".npy"))
                self.entries = {entry.removesuffix(".npy") for entry in names}
                self.shape = _header(archive, path) if "arr_0" in self.entries else (0, 0, 0, 3)
        except InputError:
            raise
        except BROKEN as error:
            raise InputError(f"{path} is not a readable .npz ({error}); is it truncated?") from error
        if not self.entries & {"arr_0", "mu"}:
            raise InputError(
                f"{path} has neither images (arr_0) nor moments (mu, sigma); it has {sorted(self.entries)[:5]}"
            )

    def __len__(self) -> int:
        return int(self.shape[0])

    @cached_property
    def digest(self) -> str:
        try:
            with self.path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()[:16]
        except OSError as error:
            raise InputError(f"cannot read {self.path}: {error.strerror or error}") from error

    def batches(self, size: int, start: int = 0) -> Iterator[Pixels]:
        each = math.prod(self.shape[1:])
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open("arr_0.npy") as entry:
                _read_header(entry)
                entry.seek(entry.tell() + start * each)
                for low in range(start, len(self), size):
                    count = min(size, len(self) - low)
                    data = entry.read(count * each)
                    if len(data) != count * each:
                        raise InputError(f"{self.path} ends before its last image; is it truncated?")
                    yield np.frombuffer(data, np.uint8).reshape(count, *self.shape[1:])
        except InputError:
            raise
        except BROKEN as error:
            raise InputError(f"{self.path} cannot be read to its end ({error}); is it truncated?") from error

    def moments(self) -> dict[str, Any]:
        """Read mu, sigma, mu_s and sigma_s as float64, those that the file has."""
        names = self.entries & {"mu", "sigma", "mu_s", "sigma_s"}
        try:
            with zipfile.ZipFile(self.path) as archive:
                if any(archive.getinfo(f"{name}.npy").file_size > MAX_MOMENTS for name in names):
                    raise InputError(f"{self.path}: its moments have more than {MAX_MOMENTS} bytes")
            with np.load(self.path, allow_pickle=False) as file:
                return {name: np.asarray(file[name], np.float64) for name in names}
        except InputError:
            raise
        except BROKEN as error:
            raise InputError(f"{self.path}: cannot read its moments ({error})") from error


def _read_header(entry: Any) -> tuple[tuple[int, ...], bool, Any]:
    version = np.lib.format.read_magic(entry)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(entry)


def _header(archive: zipfile.ZipFile, path: Path) -> tuple[int, ...]:
    with archive.open("arr_0.npy") as entry:
        try:
            shape, fortran, dtype = _read_header(entry)
        except BROKEN as error:
            raise InputError(f"{path}: arr_0 is not an array ({error})") from error
    if dtype != np.uint8 or len(shape) != 4 or shape[3] != 3 or fortran or min(shape) < 1:
        raise InputError(f"{path}: arr_0 must be uint8 (n, height, width, 3), got {dtype} {shape}")
    if shape[1] * shape[2] > MAX_PIXELS:
        raise InputError(f"{path}: its images have {shape[2]} x {shape[1]} pixels; the most is {MAX_PIXELS}")
    if archive.getinfo("arr_0.npy").file_size < math.prod(shape):
        raise InputError(f"{path}: arr_0 ends before its last image; is it truncated?")
    return tuple(shape)


class FolderPictures:
    """All images below a folder, sorted by name; they must be RGB and of one size unless they are cropped."""

    def __init__(self, root: Path, size: int = 0) -> None:
        self.root, self.size, self.name = root, size, root.resolve().name
        found = (p for p in root.rglob("*") if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))
        try:
            self.files = sorted(p for p in found if os.path.isfile(p))
        except OSError as error:  # a folder vanished, or may not be read
            raise InputError(f"cannot list {root}: {error.strerror or error}") from error
        if not self.files:
            raise InputError(f"{root} has no images ({', '.join(SUFFIXES)})")

    def __len__(self) -> int:
        return len(self.files)

    @cached_property
    def digest(self) -> str:
        digest = hashlib.sha256(f"size {self.size}".encode())
        for path in self.files:
            try:
                digest.update(os.fsencode(f"{path.relative_to(self.root)} "))  # names need not be UTF-8
                digest.update(hashlib.sha256(path.read_bytes()).digest())
            except OSError as error:
                raise InputError(f"cannot read {path}: {error.strerror or error}") from error
        return digest.hexdigest()[:16]

    def batches(self, size: int, start: int = 0) -> Iterator[Pixels]:
        shape: tuple[int, ...] | None = None if start == 0 else self._image(self.files[0]).shape
        for low in range(start, len(self), size):
            images = [self._image(path) for path in self.files[low : low + size]]
            shape = shape or images[0].shape
            for path, image in zip(self.files[low : low + size], images, strict=True):
                if image.shape != shape:
                    sizes = f"{image.shape[1]}x{image.shape[0]}, but the first image is {shape[1]}x{shape[0]}"
                    raise InputError(
                        f"{path} is {sizes}; metrics need one size (a reference can be cropped)", argument="size"
                    )
            yield np.stack(images)

    def _image(self, path: Path) -> Pixels:
        try:
            with open_picture(path) as picture:
                if self.size:
                    return center_crop(as_rgb(picture), self.size)
                if picture.mode != "RGB":
                    raise InputError(f"{path} is {MODES.get(picture.mode, picture.mode)}; metrics need 8-bit RGB")
                return np.asarray(picture)
        except InputError:
            raise
        except UNREADABLE as error:
            raise InputError(f"{path} is not a readable image ({str(error) or type(error).__name__})") from error


MODES = {
    "L": "grayscale",
    "LA": "grayscale",
    "1": "black and white",
    "I;16": "16-bit grayscale",
    "P": "a palette image",
}


class SourcePictures:
    """A data set by name."""

    def __init__(self, source: ImageSource, size: int = 0) -> None:
        self.source, self.size, self.name = source, size, source.name

    def __len__(self) -> int:
        return len(self.source)

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(f"{source_digest(self.source)} {self.size}".encode()).hexdigest()[:16]

    def batches(self, size: int, start: int = 0) -> Iterator[Pixels]:
        for low in range(start, len(self), size):
            images = (self.source.image(i) for i in range(low, min(low + size, len(self))))
            yield np.stack([center_crop(image, self.size) if self.size else image for image in images])
