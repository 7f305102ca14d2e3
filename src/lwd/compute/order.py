"""The endless shuffled sequence of a data set, which depends only on (seed, position)."""

from functools import lru_cache
from typing import Any

import numpy as np


def order(count: int, seed: int, positions: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the image at each position of the endless sequence; every epoch has its own permutation."""
    epochs, within = np.divmod(positions, count)
    out = np.empty_like(positions)
    for epoch in np.unique(epochs):
        here = epochs == epoch
        out[here] = _permutation(count, seed, int(epoch))[within[here]]
    return out


@lru_cache(maxsize=3)
def _permutation(count: int, seed: int, epoch: int) -> np.ndarray[Any, Any]:
    return np.random.Generator(np.random.Philox(key=[seed, epoch])).permutation(count)


def coin(seed: int, positions: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Toss a fair coin for each position: splitmix64 of (seed, position), so that positions are independent."""
    return _splitmix(positions.astype(np.uint64), seed) & np.uint64(1) == 1


def mix(*numbers: int) -> int:
    """Combine several numbers, for example (seed, step), into one 63-bit seed."""
    state = np.zeros(1, dtype=np.uint64)
    for number in numbers:
        state = _splitmix(state ^ np.uint64(number % 2**64), 1)
    return int(state[0] >> np.uint64(1))


def _splitmix(x: np.ndarray[Any, Any], seed: int) -> np.ndarray[Any, Any]:
    with np.errstate(over="ignore"):
        x = x + np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
        return x ^ (x >> np.uint64(31))
