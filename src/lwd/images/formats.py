"""config.json of downloaded images in the cache."""

from typing import ClassVar, Literal

from lwd.io.records import FileRecord


class ImagesFile(FileRecord):
    """config.json of a downloaded data set in the cache."""

    format: Literal["lwd.images"] = "lwd.images"
    version: Literal[1] = 1
    name: str
    """Name of the data set."""
    counts: dict[str, int]
    """Number of images by split."""

    what: ClassVar[str] = "a data set"
