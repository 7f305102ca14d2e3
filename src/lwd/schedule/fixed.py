"""Fixed schedules. All of them are piecewise linear and share one implementation."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from lwd.compute.constants import constant
from lwd.errors import InputError
from lwd.groups import PAPER_GROUPS, check_names, default_lead, index_of
from lwd.schedule.base import Schedule, as_time

SPACING = 1e-9
"""Knots closer than this are rejected: their slopes would be rounding noise."""
Knots = tuple[tuple[float, ...], tuple[tuple[float, ...], ...]]


class Knotted(Schedule):
    """A schedule that is linear between knots; subclasses define only the knots."""

    @abstractmethod
    def knots(self) -> Knots:
        """Return tau at the k knots, and the k local times of each group."""

    @cached_property
    def breakpoints(self) -> tuple[float, ...]:
        tau, columns = (torch.tensor(part, dtype=torch.float64) for part in self.knots())
        times = columns.mT
        slopes = times.diff(dim=0) / tau.diff()[:, None]
        kinks = ~torch.isclose(slopes[1:], slopes[:-1], rtol=1e-12, atol=1e-12).all(1)
        return tuple(tau[1:-1][kinks].tolist())

    def times(self, tau: Tensor | float) -> Tensor:
        start, end, low, high, tau = self._piece(tau)
        return torch.lerp(low, high, ((tau - start) / (end - start))[..., None])

    def rates(self, tau: Tensor | float) -> Tensor:
        start, end, low, high, _ = self._piece(tau)
        return (high - low) / (end - start)[..., None]

    def _piece(self, tau: Tensor | float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        tau = as_time(tau)
        knots, columns = (constant(part, torch.float64, tau.device) for part in self.knots())
        times = columns.mT
        # right=True: a knot belongs to the piece that starts there, so rates are right-continuous.
        i = torch.searchsorted(knots[1:-1].contiguous(), tau.detach().contiguous(), right=True)
        return knots[i], knots[i + 1], times[i], times[i + 1], tau


@dataclass(frozen=True)
class Synchronous(Knotted):
    """All groups on the global clock: t_g = tau (ordinary flow matching)."""

    groups: tuple[str, ...] = PAPER_GROUPS
    kind = "synchronous"

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", check_names(self.groups))

    def knots(self) -> Knots:
        return (0.0, 1.0), ((0.0, 1.0),) * len(self.groups)

    def settings(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class Offset(Knotted):
    """Semantic-First Diffusion: the lead group runs ahead of all others by a fixed `delta` (SFD: 0.3).

    On the unit clock t_lead = min((1 + delta) tau, 1) and t_other = max((1 + delta) tau - delta, 0).
    """

    delta: float
    groups: tuple[str, ...] = PAPER_GROUPS
    lead: str = ""
    """The group that runs ahead; by default semantic, or the last group."""
    kind = "offset"

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", check_names(self.groups))
        object.__setattr__(self, "lead", self.lead or default_lead(self.groups))
        object.__setattr__(self, "delta", _number(self.delta, "delta"))
        index_of(self.lead, self.groups)
        if not SPACING < self.delta < 1 - SPACING:
            raise InputError(
                f"Offset needs 0 < delta < 1, got {self.delta}; for no offset use Synchronous(), "
                "for one group after another use Cascade()"
            )

    def knots(self) -> Knots:
        span = 1 + self.delta
        lead, other = (0.0, self.delta, 1.0, 1.0), (0.0, 0.0, 1 - self.delta, 1.0)
        tau = (0.0, self.delta / span, 1 / span, 1.0)
        return tau, tuple(lead if name == self.lead else other for name in self.groups)

    def settings(self) -> dict[str, Any]:
        return {"lead": self.lead, "delta": self.delta}


@dataclass(frozen=True)
class Cascade(Knotted):
    """One group after another, in `order` (by default the lead, then the others from last to first).

    Each runs to `handover` and waits there; below 1 all end together, so later groups see slightly noisy ones.
    """

    groups: tuple[str, ...] = PAPER_GROUPS
    order: tuple[str, ...] = ()
    handover: float = 1.0
    kind = "cascade"

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", check_names(self.groups))
        lead = default_lead(self.groups)
        order = check_names(self.order or (lead, *(name for name in reversed(self.groups) if name != lead)))
        object.__setattr__(self, "order", order)
        if set(order) != set(self.groups):
            raise InputError(f"Cascade's order must name each of {', '.join(self.groups)} once, got {', '.join(order)}")
        object.__setattr__(self, "handover", _number(self.handover, "handover"))
        if not (SPACING < self.handover < 1 - SPACING or self.handover == 1):
            raise InputError(f"Cascade needs 0 < handover <= 1, got {self.handover}; for one clock use Synchronous()")

    @property
    def lead(self) -> str:
        return self.order[0]

    def knots(self) -> Knots:
        n, h, end = len(self.groups), self.handover, () if self.handover == 1 else (1.0,)
        ranks = (self.order.index(name) for name in self.groups)
        tau = (*(k * h / (n * h + 1 - h) for k in range(n + 1)), *end)
        return tau, tuple((*(h * (k > rank) for k in range(n + 1)), *end) for rank in ranks)

    def settings(self) -> dict[str, Any]:
        return {"order": list(self.order)} | ({} if self.handover == 1 else {"handover": self.handover})


@dataclass(frozen=True, init=False, repr=False)
class PiecewiseLinear(Knotted):
    """Straight lines between given knots.

    `PiecewiseLinear(tau=(0, 0.5, 1), times={"texture": (0, 0.2, 1), "semantic": (0, 0.7, 1)})`;
    `times` may also be one row per group, with `groups` given separately.
    """

    tau: tuple[float, ...]
    times_at_knots: tuple[tuple[float, ...], ...]
    groups: tuple[str, ...] = PAPER_GROUPS
    kind = "piecewise_linear"

    def __init__(
        self,
        tau: Sequence[float],
        times: Mapping[str, Sequence[float]] | Sequence[Sequence[float]],
        groups: Sequence[str] | None = None,
    ) -> None:
        if isinstance(times, Mapping):
            if groups is not None and set(groups) != set(times):
                raise InputError(f"times are given for {', '.join(times)}, but groups are {', '.join(groups)}")
            groups = tuple(times) if groups is None else groups
            times = [times[name] for name in groups]
        names = check_names(PAPER_GROUPS if groups is None else tuple(groups))
        object.__setattr__(self, "groups", names)
        object.__setattr__(self, "tau", tuple(_number(value, "tau") for value in tau))
        rows = tuple(tuple(_number(value, "times") for value in row) for row in times)
        object.__setattr__(self, "times_at_knots", rows)
        self._check()

    def _check(self) -> None:
        if len(self.times_at_knots) != len(self.groups):
            raise InputError(f"{len(self.groups)} groups need {len(self.groups)} rows, got {len(self.times_at_knots)}")
        _check_knots("tau", self.tau, strict=True)
        for name, row in zip(self.groups, self.times_at_knots, strict=True):
            if len(row) != len(self.tau):
                raise InputError(f"group {name!r} has {len(row)} knots, but tau has {len(self.tau)}")
            _check_knots(f"times of {name!r}", row, strict=False)

    def knots(self) -> Knots:
        return self.tau, self.times_at_knots

    def __repr__(self) -> str:
        return f"PiecewiseLinear(tau={self.tau}, times={self.settings()['times']})"

    def settings(self) -> dict[str, Any]:
        rows = zip(self.groups, self.times_at_knots, strict=True)
        return {"tau": list(self.tau), "times": {name: list(row) for name, row in rows}}


def _number(value: Any, name: str) -> float:
    """Convert a Python, NumPy or torch number to a finite float."""
    try:
        number = float(value) if not isinstance(value, (bool, str, bytes)) else math.nan
    except (TypeError, ValueError, OverflowError, RuntimeError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{name} must be a finite number, got {str(value)[:40]}")
    return number


def _check_knots(name: str, values: Sequence[float], strict: bool) -> None:
    if len(values) < 2 or values[0] != 0 or values[-1] != 1:
        raise InputError(f"{name} must start with 0 and end with 1, got {list(values)}")
    for low, high in pairwise(values):
        if high < low or (strict and high - low < SPACING):
            rule = "increase" if strict else "never decrease"
            raise InputError(f"{name} must {rule}, but {high} follows {low}")
