"""The path from noise to data: one linear interpolant per group, and what a network must predict along it."""

from typing import Any, Protocol

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.groups import Layout


class Velocity(Protocol):
    """The interface of networks, exact velocities and guided combinations.

    z (b, c, ...), times (b, n), label -> velocity per unit LOCAL time (b, c, ...). label: what the network takes, one
    row per sample: classes (b,), or another condition (`lwd.compute.conditions.Rows`), such as prompts.
    """

    def __call__(self, z: Tensor, times: Tensor, label: Any) -> Tensor: ...


def interpolate(data: Tensor, noise: Tensor, times: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """Noised composite state and local-time velocity target (Eq. component-interpolant).

    data, noise: (b, c, ...); times: (b, n), one column per group. Returns z, target, both (b, c, ...).
    """
    layout.check(data)
    if noise.shape != data.shape:
        raise InputError(f"noise has shape {tuple(noise.shape)}, data {tuple(data.shape)}; they must be equal")
    if len(times) != len(data):
        raise InputError(f"times has {len(times)} rows for a batch of {len(data)}")
    t = layout.expand(times.to(data.dtype), data.ndim)  # a few numbers in float64, not one per channel
    return torch.lerp(noise, data, t), data - noise
