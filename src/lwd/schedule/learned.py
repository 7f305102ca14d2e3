"""Schedules with parameters rho that a probe learns: the paper's polynomial, and Bernstein curves."""

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from lwd.errors import InputError
from lwd.groups import PAPER_GROUPS, check_names, default_lead, index_of
from lwd.schedule.base import Schedule, as_time

MAX_DEGREE = 64
IDENTITY_RHO = -6.0
"""Initial rho of every basis curve except the first; softplus(-6) = 0.0025 puts t within 1.2e-3 of tau."""
Rho = Tensor | Sequence[Sequence[float]] | Mapping[str, Sequence[float]]


class Learnable(nn.Module, Schedule):
    """The lead group runs on tau; every other group has a row of `rho`, (n - 1, k) float64, in group order."""

    breakpoints: tuple[float, ...] = ()
    extra: ClassVar[int] = 0
    """Length of a row of rho minus the degree."""
    rho: nn.Parameter

    def __init__(
        self,
        rho: Rho | None = None,
        groups: Sequence[str] = PAPER_GROUPS,
        lead: str | None = None,
        degree: int | None = None,
    ) -> None:
        super().__init__()
        self.groups = check_names(groups)
        self.lead = default_lead(self.groups) if lead is None else lead
        index_of(self.lead, self.groups)
        least = 1 - self.extra
        if degree is not None and (type(degree) is not int or not least <= degree <= MAX_DEGREE):
            raise InputError(f"degree must be an integer from {least} to {MAX_DEGREE}, got {degree!r}")
        width = None if degree is None else degree + self.extra
        self.rho = nn.Parameter(read_rho(rho, self.followers, self._identity(width), width))

    @abstractmethod
    def _identity(self, width: int | None) -> list[float]:
        """Return a row of rho whose curve is tau, or nearly; width None means the default degree."""

    @abstractmethod
    def shares(self) -> Tensor:
        """Weights of each follower's curve over the basis curves of the family: (n - 1, k), rows sum to 1."""

    @abstractmethod
    def with_shares(self, shares: Tensor) -> Self:
        """Return the curve of this family with other shares (>= 0)."""

    @property
    def degree(self) -> int:
        return self.rho.shape[1] - self.extra

    @property
    def followers(self) -> tuple[str, ...]:
        """The groups that have a row of rho."""
        return tuple(name for name in self.groups if name != self.lead)

    def freeze(self) -> Self:
        """Stop learning: rho keeps its value and gets no gradient."""
        self.rho.requires_grad_(False)
        return self

    @property
    def frozen(self) -> bool:
        return not self.rho.requires_grad

    def extremes(self) -> tuple[Self, ...]:
        """The edge of the family, to which curves collapse without a regulariser: the last basis curve."""
        return (self._pure(-1),)

    def _pure(self, column: int) -> Self:
        """Return the curve with all weight on one basis curve."""
        shares = torch.zeros_like(self.rho.detach())
        shares[:, column] = 1.0
        return self.with_shares(shares).freeze()

    def at(self, rho: Tensor) -> Self:
        """Return a frozen copy with another rho of the same size."""
        other = copy.deepcopy(self)
        with torch.no_grad():
            other.rho.copy_(rho.reshape(self.rho.shape))
        return other.freeze()

    def _with_lead(self, lead: Tensor, followers: Tensor) -> Tensor:
        columns = dict(zip(self.followers, followers.unbind(-1), strict=True))
        return torch.stack([columns.get(name, lead) for name in self.groups], dim=-1)

    def settings(self) -> dict[str, Any]:
        rows = zip(self.followers, self.rho.detach().cpu().tolist(), strict=True)
        return {"lead": self.lead, "degree": self.degree, "rho": dict(rows)}

    def __eq__(self, other: object) -> bool:
        """Same family, groups and rho, bit for bit."""
        return isinstance(other, Learnable) and self.to_dict() == other.to_dict()

    # By identity, although == compares values: torch keeps modules in sets, and rho changes during training.
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        rho = {name: [round(value, 4) for value in row] for name, row in self.settings()["rho"].items()}
        state = ", frozen" if self.frozen else ""
        return f"{type(self).__name__}(rho={rho}, groups={self.groups}, lead={self.lead!r}{state})"


class Polynomial(Learnable):
    """The paper's family: the rate of every follower is a polynomial with non-negative coefficients.

    rate(tau) = sum_m a_m tau^m / Z, a = softplus(rho), Z = sum_m a_m / (m + 1)  (Eq. fprime, fintegral).
    Convex, increasing and never ahead of the lead, for every rho. The degree is M, the highest power in the rate; the
    highest power in the curve is tau^(M + 1).
    """

    kind = "polynomial"
    extra = 1

    def _identity(self, width: int | None) -> list[float]:
        # softplus(rho_0) = 1, all other coefficients near zero: t = tau up to 1.2e-3 for degree 4.
        return [0.5413248546129181] + [IDENTITY_RHO] * ((width or 5) - 1)

    @classmethod
    def from_shares(
        cls, shares: Sequence[Sequence[float]], groups: Sequence[str] = PAPER_GROUPS, lead: str | None = None
    ) -> Self:
        """Build the schedule with these `shares`, scaled to sum 1: `from_shares([[0, 0, 1]])` has texture at tau^3."""
        value = torch.as_tensor(shares, dtype=torch.float64)
        if value.ndim != 2 or not (torch.isfinite(value) & (value >= 0)).all() or not (value.sum(-1) > 0).all():
            raise InputError(f"shares must be rows of numbers >= 0 that are not all 0, got {value.tolist()}")
        a = value / value.sum(1, keepdim=True) * torch.arange(1, value.shape[1] + 1)
        # softplus never reaches 0; at -60 the share of a power is 1e-26.
        return cls(torch.where(a > 1e-26, torch.log(torch.expm1(a.clamp(min=1e-26))), -60.0), groups, lead)

    def shares(self) -> Tensor:
        """The weight of tau^(m+1) in each follower's curve: a_m / ((m + 1) Z). (n - 1, M + 1)."""
        return torch.softmax(log_softplus(self.rho) - self._powers(self.rho).log(), dim=1)

    def with_shares(self, shares: Tensor) -> Self:
        return type(self).from_shares(shares.tolist(), self.groups, self.lead)

    def times(self, tau: Tensor | float) -> Tensor:
        tau = as_time(tau)
        shares = self.shares().to(tau.device)  # a few numbers; the state may be on a GPU
        # Divide by the value at 1, so that t(1) = 1 and t <= tau hold exactly.
        share_of_tau = _horner(shares, tau) / _horner(shares, torch.ones_like(tau))
        return self._with_lead(tau, tau[..., None] * share_of_tau)

    def rates(self, tau: Tensor | float) -> Tensor:
        tau = as_time(tau)
        shares = self.shares().to(tau.device)
        return self._with_lead(torch.ones_like(tau), _horner(shares * self._powers(shares), tau))

    def _powers(self, like: Tensor) -> Tensor:
        return torch.arange(1, self.degree + 2, dtype=like.dtype, device=like.device)


class Bernstein(Learnable):
    """A richer family: every follower's curve is a Bernstein polynomial with increasing control points.

    Their increments d_k >= 0 sum to 1. With convex=True the increments also increase, so that the curve is convex and
    never ahead of the lead; with convex=False a group may run ahead. Basis curve j, with share softmax(rho)_j, has the
    single increment j (convex=False), or equal increments from j on (convex=True).
    """

    kind = "bernstein"

    def __init__(
        self,
        rho: Rho | None = None,
        groups: Sequence[str] = PAPER_GROUPS,
        lead: str | None = None,
        degree: int | None = None,
        convex: bool = True,
    ) -> None:
        if not isinstance(convex, bool):
            raise InputError(f"convex must be true or false, got {convex!r}")
        self.convex = convex
        super().__init__(rho, groups, lead, degree)

    def _identity(self, width: int | None) -> list[float]:
        return [0.0] + [IDENTITY_RHO if self.convex else 0.0] * ((width or 8) - 1)

    def shares(self) -> Tensor:
        return torch.softmax(self.rho, dim=1)

    def with_shares(self, shares: Tensor) -> Self:
        return type(self)(shares.clamp(min=1e-26).log(), self.groups, self.lead, convex=self.convex)

    def increments(self) -> Tensor:
        """Increments d_k >= 0 of each follower; rows sum to 1: (n - 1, degree)."""
        shares = self.shares()
        if not self.convex:
            return shares
        counts = torch.arange(self.degree, 0, -1, dtype=shares.dtype, device=shares.device)
        return (shares / counts).cumsum(1)

    def times(self, tau: Tensor | float) -> Tensor:
        tau = as_time(tau)
        points = self.increments().to(tau.device).cumsum(1)
        points = torch.cat([torch.zeros_like(points[:, :1]), points[:, :-1], torch.ones_like(points[:, :1])], 1)
        return self._with_lead(tau, _casteljau(points, tau))

    def rates(self, tau: Tensor | float) -> Tensor:
        tau = as_time(tau)
        return self._with_lead(torch.ones_like(tau), self.degree * _casteljau(self.increments().to(tau.device), tau))

    def extremes(self) -> tuple[Self, ...]:
        """The curve that waits until the end; if a group may run ahead, also the curve that rises immediately."""
        return (self._pure(-1),) if self.convex else (self._pure(-1), self._pure(0))

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"convex": self.convex}


def log_softplus(x: Tensor) -> Tensor:
    """log(softplus(x)), which approaches x for very negative x, where softplus itself underflows to 0."""
    return torch.where(x < -40, x, torch.log(softplus(x.clamp(min=-40))))


def _horner(coefficients: Tensor, x: Tensor) -> Tensor:
    """sum_m coefficients[:, m] x^m: (k, M + 1), (*b,) -> (*b, k)."""
    # Horner's rule rounds monotonically for non-negative coefficients, so the curve is exactly monotone.
    value = coefficients[:, -1].expand(*x.shape, -1)
    for m in range(coefficients.shape[1] - 2, -1, -1):
        value = value * x[..., None] + coefficients[:, m]
    return value


def _casteljau(points: Tensor, tau: Tensor) -> Tensor:
    """Bernstein polynomials with these control points: (k, n + 1), (*b,) -> (*b, k).

    De Casteljau's repeated averages stay between neighbouring points, so increasing points give an increasing curve.
    """
    values = points.expand(*tau.shape, *points.shape)
    share = tau[..., None, None]
    for _ in range(points.shape[1] - 1):
        values = values[..., :-1] + share * (values[..., 1:] - values[..., :-1])
    return values[..., 0]


def read_rho(rho: Rho | None, followers: tuple[str, ...], start: Sequence[float], width: int | None) -> Tensor:
    """Return rho as (n - 1, width) float64: `start` in every row if rho is None; width None accepts any width."""
    if rho is None:
        return torch.tensor([start] * len(followers), dtype=torch.float64).reshape(len(followers), len(start))
    if isinstance(rho, Mapping):
        if set(rho) != set(followers):
            raise InputError(f"rho must have a row for each of {', '.join(followers)}, got {', '.join(rho) or 'none'}")
        rho = [rho[name] for name in followers]
    try:
        value = torch.as_tensor(rho, dtype=torch.float64).detach().clone()
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise InputError(f"rho must be rows of numbers of equal length ({error})") from error
    if value.ndim == 1 and len(followers) == 1:
        value = value[None]
    if not followers and value.numel() == 0:
        value = value.reshape(0, len(start))
    if value.ndim != 2 or len(value) != len(followers) or value.shape[1] < 1:
        raise InputError(f"rho needs a row for each of {', '.join(followers)}; got shape {tuple(value.shape)}")
    if width is not None and value.shape[1] != width:
        raise InputError(f"this degree needs {width} values of rho per group, got {value.shape[1]}")
    if not torch.isfinite(value).all():
        raise InputError(f"rho must be finite, got {value.tolist()}")
    return value
