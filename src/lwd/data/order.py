"""The endless shuffled sequence of a data set, as a function of (seed, position) alone."""

from functools import lru_cache
from typing import Any

import numpy as np


def order(count: int, seed: int, positions: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Image at each position of the endless sequence: epoch after epoch, each its own permutation."""
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
    """A fair coin for each position: splitmix64 of (seed, position), so that any position can be asked for alone."""
    with np.errstate(over="ignore"):
        x = positions.astype(np.uint64) + np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
        return (x ^ (x >> np.uint64(31))) & np.uint64(1) == 1
