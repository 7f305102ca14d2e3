"""The seeds and conditions of a batch of samples."""

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lwd.compute.conditions import check_condition, repeat_last
from lwd.errors import InputError


def padded(seeds: Sequence[int], labels: Any, rows: int = 1) -> tuple[tuple[int, ...], Any]:
    """Seeds and one condition for each, filled up to a multiple of `rows` by repeating the last sample."""
    if not len(seeds):
        raise InputError("sampling needs at least one seed, for example seeds=range(8)")
    label, extra = check_condition(labels, len(seeds)), -len(seeds) % rows
    return (*seeds, *(seeds[-1],) * extra), repeat_last(label, extra)


def noise_of(seed: int, shape: tuple[int, ...]) -> Tensor:
    """Standard normal float32 of a seed, all 63 bits of which count."""
    if isinstance(seed, bool) or not hasattr(seed, "__index__") or not 0 <= index(seed) < 2**63:
        raise InputError(f"a seed is an integer from 0 to 2^63 - 1, got {seed!r}")
    if index(seed) < 2**32:
        return torch.randn(shape, generator=torch.Generator().manual_seed(index(seed)))
    # torch's generator keeps 32 bits of a seed on a CPU; the second word of the key is no step of `step_noise`.
    generator = np.random.Generator(np.random.Philox(key=np.array([index(seed), 2**64 - 1], np.uint64)))
    return torch.from_numpy(generator.standard_normal(shape, dtype=np.float32))
