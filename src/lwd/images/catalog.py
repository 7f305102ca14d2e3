"""Image sources by their command-line names."""

from pathlib import Path

from lwd.errors import InputError
from lwd.images.cifar import load_cifar10
from lwd.images.fashion import load_fashion
from lwd.images.sources import FolderSource, ImageSource


def open_source(name: str, cache: Path | None = None) -> ImageSource:
    """Open `fashion/train`, `fashion/test` (embedded), `cifar10/train`, `cifar10/test`, or a class-per-folder tree."""
    if name in ("fashion", "fashion/train", "fashion/test") and not Path(name).is_dir():
        return load_fashion(name.partition("/")[2] or "train")
    if name in ("cifar10", "cifar10/train", "cifar10/test"):
        return load_cifar10(name.partition("/")[2] or "train", cache)
    if not Path(name).is_dir():
        raise InputError(
            f"{name} is neither a directory with one folder per class nor fashion/train, cifar10/train, ..."
        )
    return FolderSource(name)
