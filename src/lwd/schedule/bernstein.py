"""A richer family than the paper's polynomial: Bernstein curves, convex or merely monotone."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lwd.errors import InputError
from lwd.groups import PAPER_GROUPS, check_names, default_lead, index_of
from lwd.schedule.base import as_time
from lwd.schedule.learned import IDENTITY_RHO, MAX_DEGREE, Learnable, read_rho


class Bernstein(Learnable):
    """The lead group runs on tau; every other curve is a Bernstein polynomial whose control points rise.

    Its increments d_k >= 0 sum to 1. convex: they also grow, so that the curve is convex and never ahead of the lead;
    otherwise any rising control points are allowed, and a group may run ahead. rho: (n - 1, degree), float64: the
    increments are mixtures, with shares softmax(rho), of one increment each, or of equal increments from one on.
    """

    kind = "bernstein"
    breakpoints: tuple[float, ...] = ()

    def __init__(
        self,
        rho: Tensor | Sequence[Sequence[float]] | Mapping[str, Sequence[float]] | None = None,
        groups: Sequence[str] = PAPER_GROUPS,
        lead: str | None = None,
        degree: int | None = None,
        convex: bool = True,
    ) -> None:
        super().__init__()
        self.groups = check_names(groups)
        self.lead = default_lead(self.groups) if lead is None else lead
        index_of(self.lead, self.groups)
        if not isinstance(convex, bool):
            raise InputError(f"convex is true or false, got {convex!r}")
        self.convex = convex
        if degree is not None and (isinstance(degree, bool) or not 1 <= degree <= MAX_DEGREE):
            raise InputError(f"degree is a whole number from 1 to {MAX_DEGREE}, got {degree!r}")
        start = [0.0] + [IDENTITY_RHO if convex else 0.0] * ((8 if degree is None else degree) - 1)
        self.rho = nn.Parameter(read_rho(rho, self.followers, start, degree))

    @property
    def degree(self) -> int:
        return self.rho.shape[1]

    @property
    def followers(self) -> tuple[str, ...]:
        """The groups that have a row of rho."""
        return tuple(name for name in self.groups if name != self.lead)

    def shares(self) -> Tensor:
        return torch.softmax(self.rho, dim=1)

    def with_shares(self, shares: Tensor) -> "Bernstein":
        return Bernstein(shares.clamp(min=1e-26).log(), self.groups, self.lead, convex=self.convex)

    def increments(self) -> Tensor:
        """d_k of each follower, >= 0, rows sum to 1: (n - 1, degree)."""
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

    def extreme(self) -> "Bernstein":
        """The whole rise in the last increment: tau^degree for every follower."""
        return self._with_rise(self.degree - 1)

    def extremes(self) -> tuple[Learnable, ...]:
        """Waiting to the end; and, where a group may run ahead, rising at once."""
        return (self.extreme(),) if self.convex else (self.extreme(), self._with_rise(0))

    def _with_rise(self, at: int) -> "Bernstein":
        shares = torch.zeros_like(self.rho.detach())
        shares[:, at] = 1.0
        return self.with_shares(shares).freeze()

    def _with_lead(self, lead: Tensor, followers: Tensor) -> Tensor:
        columns = dict(zip(self.followers, followers.unbind(-1), strict=True))
        return torch.stack([columns.get(name, lead) for name in self.groups], dim=-1)

    def settings(self) -> dict[str, Any]:
        rows = zip(self.followers, self.rho.detach().cpu().tolist(), strict=True)
        return {"lead": self.lead, "degree": self.degree, "convex": self.convex, "rho": dict(rows)}

    def __repr__(self) -> str:
        shape = "convex" if self.convex else "monotone"
        state = ", frozen" if self.frozen else ""
        return f"Bernstein(degree={self.degree}, {shape}, groups={self.groups}, lead={self.lead!r}{state})"


def _casteljau(points: Tensor, tau: Tensor) -> Tensor:
    """Bernstein polynomials with these control points: (k, n + 1), (*b,) -> (*b, k).

    De Casteljau's repeated averaging stays between neighbouring points, so rising points give a rising curve.
    """
    values = points.expand(*tau.shape, *points.shape)
    share = tau[..., None, None]
    for _ in range(points.shape[1] - 1):
        values = values[..., :-1] + share * (values[..., 1:] - values[..., :-1])
    return values[..., 0]
