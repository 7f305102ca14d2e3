"""Guidance: wrappers around a velocity that know the groups, but neither the schedule nor the solver."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lwd.compute.conditions import without
from lwd.errors import InputError, nearest
from lwd.groups import Layout
from lwd.path import Velocity

Scale = float | Mapping[str, float]
Interval = tuple[float, float] | Mapping[str, tuple[float, float]]


class AutoGuidance:
    """v = v_guide + w (v_main - v_guide), with a weaker model as guide.

    scale: w for all groups, or by group (a group left out is not guided: w = 1).
    interval: [low, high) in LOCAL time, for all groups or by group (left out: all of [0, 1]); outside it w = 1.
    The guide is called only when some sample has w != 1 in some group.
    """

    def __init__(
        self, main: Velocity, guide: Velocity, scale: Scale, layout: Layout, interval: Interval | None = None
    ) -> None:
        self.main, self.guide, self.layout = main, guide, layout
        self.scale = _by_group("scale", scale, layout, 1.0)
        self.interval = _by_group("interval", (0.0, 1.0) if interval is None else interval, layout, (0.0, 1.0))
        for name in layout.names:
            _check(name, self.scale[name], self.interval[name])
        named = layout.names if interval is not None and not isinstance(interval, Mapping) else (interval or ())
        if named and all(self.scale[name] == 1 for name in named):
            raise InputError(f"the interval has no effect: the scale of {', '.join(named)} is 1 (no guidance)")

    @property
    def edges(self) -> dict[str, tuple[float, ...]]:
        """Local times where the guidance of a group starts or ends; a solver should not step across them."""
        times: dict[str, set[float]] = {name: set() for name in self.layout.names}
        for name in self.layout.names:
            if self.scale[name] != 1:
                times[name] |= {t for t in self.interval[name] if 0 < t < 1}
            for inner in (self.main, self.guide):
                times[name] |= set(getattr(inner, "edges", {}).get(name, ()))
        return {name: tuple(sorted(edges)) for name, edges in times.items() if edges}

    def weights(self, times: Tensor) -> Tensor:
        """Return w of each sample and group at local times (b, n) -> (b, n)."""
        rows = [(*self.interval[name], self.scale[name]) for name in self.layout.names]
        low, high, scale = torch.tensor(rows, dtype=times.dtype, device=times.device).T
        # Closed at 1: an interval that ends with the data includes the data.
        inside = (times >= low) & ((times < high) | (high >= 1))
        return torch.where(inside, scale, torch.ones_like(scale))

    def __call__(self, z: Tensor, times: Tensor, label: Any) -> Tensor:
        main = self.main(z, times, label)
        weights = self.weights(times)
        if (weights == 1).all():
            return main
        guide = self._guide(z, times, label).to(main.dtype)
        w = self.layout.expand(weights, main.ndim).to(main.dtype)
        # Unguided channels keep main's values bit for bit, even where the guide is not finite.
        return torch.where(w == 1, main, torch.lerp(guide, main, w))

    def _guide(self, z: Tensor, times: Tensor, label: Any) -> Tensor:
        return self.guide(z, times, label)


class ClassifierFree(AutoGuidance):
    """v = v(null) + w (v(label) - v(null)): the model without the label is its own guide.

    null_label: the label of "any class", or another condition, such as a negative prompt (one row, or one per sample).
    """

    def __init__(
        self, main: Velocity, null_label: Any, scale: Scale, layout: Layout, interval: Interval | None = None
    ) -> None:
        super().__init__(main, main, scale, layout, interval)
        self.null_label = null_label

    def _guide(self, z: Tensor, times: Tensor, label: Any) -> Tensor:
        return self.main(z, times, without(self.null_label, label))


def _by_group(what: str, value: Any, layout: Layout, default: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return dict.fromkeys(layout.names, value)
    for name in value:
        if name not in layout.names:
            raise InputError(f"{what} names an unknown group {name!r}; {nearest(str(name), layout.names)}")
    return {name: value.get(name, default) for name in layout.names}


def _check(name: str, scale: Any, interval: Any) -> None:
    if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not math.isfinite(scale):
        raise InputError(f"the scale of {name!r} must be a finite number (1 = no guidance), got {scale!r}")
    if len(interval) != 2 or not 0 <= interval[0] < interval[1] <= 1:
        raise InputError(f"the interval of {name!r} must be (low, high) with 0 <= low < high <= 1, got {interval!r}")
