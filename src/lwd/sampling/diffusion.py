"""How much noise a stochastic sampler adds: a coefficient w(t) for each group in its local time, and the last step."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lwd.errors import InputError, nearest

COEFFICIENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": torch.zeros_like,
    "constant": torch.ones_like,
    "sigma": lambda t: 1 - t,
    "decreasing": lambda t: (torch.cos(math.pi * t) + 1).square() / 4,
    "increasing-decreasing": lambda t: torch.sin(math.pi * t).square(),
}
"""SiT's forms that are finite on all of [0, 1]; its `linear` is `sigma` on this path, its `SBDM` (1 - t) / t is not."""
LAST_STEPS = ("mean", "ode")


@dataclass(frozen=True)
class Coefficient:
    """w(t) = scale x form(t) in dz = (v + w score) dt + sqrt(2 w) dW; t is the local time of a group."""

    name: str = "sigma"
    scale: float = 1.0

    @classmethod
    def parse(cls, text: Any) -> "Coefficient":
        """`sigma`, `constant:0.5`, `none`."""
        name, scale = _parts(text, "diffusion", tuple(COEFFICIENTS), 1.0)
        if not 0 <= scale < math.inf or (name == "none" and ":" in text):
            raise InputError(
                f"diffusion is NAME or NAME:SCALE with a scale >= 0, and none has no scale; got {text!r}",
                argument="diffusion",
            )
        return cls(name, scale)

    @property
    def is_zero(self) -> bool:
        return self.name == "none" or self.scale == 0

    def __call__(self, t: Tensor) -> Tensor:
        return self.scale * COEFFICIENTS[self.name](t)


@dataclass(frozen=True)
class LastStep:
    """A group runs without noise from local time 1 - size; the stretch after the last group's noise is one step.

    mean: that step keeps the score term of its start (SiT's `Mean`, and its default). ode: it does not (`Euler`).
    """

    kind: str = "mean"
    size: float = 0.04

    @classmethod
    def parse(cls, text: Any) -> "LastStep":
        """`mean`, `ode`, `mean:0.02`."""
        kind, size = _parts(text, "last_step", LAST_STEPS, 0.04)
        if not 0 < size < 1:
            raise InputError(
                f"last_step is KIND or KIND:SIZE with 0 < size < 1, got {text!r}; at t = 1 there is no score",
                argument="last_step",
            )
        return cls(kind, size)


def coefficients_of(diffusion: Any, groups: Sequence[str]) -> tuple[Coefficient, ...]:
    """One coefficient for each group, from one text for all or texts by group (a group left out has no noise)."""
    if not isinstance(diffusion, Mapping):
        return (Coefficient.parse(diffusion),) * len(groups)
    for name in diffusion:
        if name not in groups:
            raise InputError(
                f"diffusion names an unknown group {name!r}; {nearest(str(name), groups)}", argument="diffusion"
            )
    return tuple(Coefficient.parse(diffusion.get(name, "none")) for name in groups)


def _parts(text: Any, argument: str, names: Sequence[str], default: float) -> tuple[str, float]:
    """`NAME:NUMBER` as its parts; the number may be left out."""
    name, colon, number = str(text).partition(":")
    if not isinstance(text, str) or name not in names:
        raise InputError(f"there is no {argument} {text!r}; {nearest(name, names)}", argument=argument)
    try:
        return name, float(number) if colon else default
    except ValueError:
        raise InputError(
            f"{argument} is {name} or {name}:NUMBER such as {name}:{default:g}, got {text!r}", argument=argument
        ) from None
