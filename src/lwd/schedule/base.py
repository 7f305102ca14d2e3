"""The interface of a schedule: N local clocks t_g(tau) driven by one global time tau."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.groups import index_of

FORMAT = "lwd.schedule"
VERSION = 1


class Schedule(ABC):
    """N non-decreasing functions t_g on [0, 1] with t_g(0) = 0 and t_g(1) = 1, one column per group.

    Times are always computed in float64, whatever the dtype of tau; the caller casts them to the dtype of the state.
    """

    groups: tuple[str, ...]

    @property
    @abstractmethod
    def kind(self) -> str:
        """The name of this family in a schedule file."""

    @property
    @abstractmethod
    def breakpoints(self) -> tuple[float, ...]:
        """Global times in (0, 1) where some rate jumps; solvers restart there."""

    @abstractmethod
    def times(self, tau: Tensor | float) -> Tensor:
        """Local times t_g(tau): (*b,) -> (*b, n), float64."""

    @abstractmethod
    def rates(self, tau: Tensor | float) -> Tensor:
        """d t_g / d tau: (*b,) -> (*b, n), float64, right-continuous at breakpoints."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Contents of the file besides format, version, kind and groups: data, never code."""

    def tau_of(self, group: str, t: Tensor | float) -> Tensor:
        """Return the first tau at which `group` reaches local time t: (*b,) -> (*b,), differentiable in t and rho.

        Where a clock stands still, many values of tau share one t; this returns the smallest.
        """
        column = index_of(group, self.groups)
        t = as_time(t, "t")
        with torch.no_grad():
            tau = self._bisect(column, t)
        # Implicit function theorem: d tau = (d t - d_rho t) / rate. The value itself comes from the bisection.
        rate = self.rates(tau)[..., column].detach()
        step = (t - self.times(tau)[..., column]) / torch.where(rate > 0, rate, torch.inf)
        return tau + (step - step.detach())

    def _bisect(self, column: int, t: Tensor) -> Tensor:
        low, high = torch.zeros_like(t), torch.ones_like(t)
        for _ in range(64):  # enough for float64 on [0, 1]: low and high become neighbours
            middle = (low + high) / 2
            reached = self.times(middle)[..., column] >= t
            low, high = torch.where(reached, low, middle), torch.where(reached, middle, high)
        return torch.where(t <= 0, torch.zeros_like(t), high)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; `lwd.schedule_from_dict` is its exact inverse."""
        head = {"format": FORMAT, "version": VERSION, "kind": self.kind, "groups": list(self.groups)}
        return head | self.settings()


def as_time(tau: Tensor | float, name: str = "tau") -> Tensor:
    """Return tau as a float64 tensor; plain numbers must be in [0, 1]."""
    if isinstance(tau, Tensor):
        return tau.to(torch.float64)
    tau = float(tau)
    if not 0 <= tau <= 1:
        raise InputError(f"{name} must be in [0, 1] (0 = noise, 1 = data), got {tau}")
    return torch.tensor(tau, dtype=torch.float64)
