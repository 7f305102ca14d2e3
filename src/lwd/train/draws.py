"""The randomness of a training step, as a function of (seed, attempt, step, index in the global batch) alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lwd.data.order import mix


@dataclass(frozen=True)
class Draws:
    """tau (b,) float64, noise (b, c, ...) float32, and whose label is dropped (b,)."""

    tau: Tensor
    noise: Tensor
    dropped: Tensor


def draw(
    key: Sequence[int],
    batch: int,
    part: slice,
    shape: Sequence[int],
    tau: str = "uniform",
    label_drop: float = 0.0,
    device: torch.device | str = "cpu",
) -> Draws:
    """The rows `part` of the global batch's draws.

    Every process draws the whole batch and keeps its rows: a few milliseconds at ImageNet size, and nothing depends on
    how many processes share the work. Devices of another kind have other generators, so other (equally good) draws.
    """
    generator = torch.Generator(device).manual_seed(mix(*key))
    options: Any = {"generator": generator, "device": device}
    clock = torch.rand(batch, dtype=torch.float64, **options)
    if tau == "logit-normal":
        clock = torch.sigmoid(torch.special.ndtri(clock.clamp(1e-12, 1 - 1e-12)))
    coin = torch.rand(batch, **options)
    noise = torch.randn(batch, *shape, **options)
    return Draws(clock[part], noise[part], coin[part] < label_drop)
