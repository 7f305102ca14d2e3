"""Reading the batches of the next steps in the background."""

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
THREADS = 4
"""Batches that are read at the same time: one thread waits for the disk or the network most of the time."""

AHEAD = 4
"""Steps whose batches are read in advance."""


class Ahead(Generic[K, T]):
    """Results of `load(key)`, computed by threads before they are asked for."""

    def __init__(self, load: Callable[[K], T], threads: int = THREADS) -> None:
        self.load, self._waiting = load, dict[K, Future[T]]()
        self._pool = ThreadPoolExecutor(threads)

    def get(self, key: K, following: Sequence[K]) -> T:
        """Return the result of a key, and start on those that follow; all others are dropped."""
        wanted = (key, *following)
        for other in self._waiting.keys() - set(wanted):
            self._waiting.pop(other).cancel()
        for one in wanted:
            if one not in self._waiting:
                self._waiting[one] = self._pool.submit(self.load, one)
        return self._waiting.pop(key).result()

    def close(self) -> None:
        """Stop; results that nobody asked for are dropped."""
        self._pool.shutdown(cancel_futures=True)
