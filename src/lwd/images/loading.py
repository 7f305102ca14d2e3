"""Reading many images: in this process, or by worker processes while it computes."""

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from lwd.images.sources import ArraySource, BadImage, ImageSource, Pixels, center_crop

CHUNK = 32
"""Images that a worker reads at a time."""


@dataclass(frozen=True)
class Unreadable:
    """What is known about an image that cannot be read."""

    message: str
    name: str


def read_images(source: ImageSource, numbers: Sequence[int], size: int) -> list[Pixels | Unreadable]:
    """Read images by number, cropped to `size` pixels (0: as they are)."""
    found: list[Pixels | Unreadable] = []
    for number in numbers:
        try:
            pixels = source.image(number)
        except BadImage as error:
            found.append(Unreadable(str(error), error.name))
            continue
        found.append(center_crop(pixels, size) if size else pixels)
    return found


class Loader:
    """Images of a source by number; with workers, those that were announced are read in advance."""

    def __init__(self, source: ImageSource, size: int, workers: int = 0) -> None:
        self.source, self.size = source, size
        self._waiting: dict[tuple[int, int], list[Future[list[Pixels | Unreadable]]]] = {}
        self._pool: ProcessPoolExecutor | None = None
        if workers and not isinstance(source, ArraySource):  # there is nothing to decode in an array
            # Not a fork: this process may have threads, and a GPU.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(workers, context, _keep, (source, size))

    def announce(self, low: int, high: int) -> None:
        """Let the workers start on the images low to high - 1."""
        if self._pool is None or (low, high) in self._waiting:
            return
        chunks = [range(start, min(start + CHUNK, high)) for start in range(low, high, CHUNK)]
        self._waiting[low, high] = [self._pool.submit(_read_kept, chunk) for chunk in chunks]

    def read(self, low: int, high: int) -> list[Pixels | Unreadable]:
        """Return the images low to high - 1."""
        if self._pool is None:
            return read_images(self.source, range(low, high), self.size)
        self.announce(low, high)
        return [image for future in self._waiting.pop((low, high)) for image in future.result()]

    def close(self) -> None:
        """Stop the workers."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


_KEPT: dict[str, Any] = {}


def _keep(source: ImageSource, size: int) -> None:
    """Runs in each worker once: the source is sent to it only here."""
    _KEPT.update(source=source, size=size)


def _read_kept(numbers: Sequence[int]) -> list[Pixels | Unreadable]:
    return read_images(_KEPT["source"], numbers, _KEPT["size"])
