"""Schedules from loss surfaces: the schedule objective as an integral along the curve, and its minimisation in rho."""

import copy
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.objective import FlowObjective
from lwd.schedule.base import Schedule
from lwd.schedule.learned import Learnable

Surfaces = Callable[[Tensor], tuple[Tensor, Tensor]]
"""times (b, n) -> component losses l_g(t) and energies mean |v_g|^2 at t, both (b, n)."""


def path_objective(schedule: Schedule, surfaces: Surfaces, objective: FlowObjective, nodes: int = 32) -> Tensor:
    """L_flow + lambda R_kin along the schedule (Eq. rho-objective), by Gauss-Legendre quadrature on each smooth piece.

    The gradient in rho is the one that `objective.weight_gradient` selects; the value does not depend on it.
    """
    return sum(path_terms(schedule, surfaces, objective, nodes), torch.zeros(()))


def path_terms(
    schedule: Schedule, surfaces: Surfaces, objective: FlowObjective, nodes: int = 32
) -> tuple[Tensor, Tensor]:
    """L_flow and lambda R_kin along the schedule."""
    if schedule.groups != objective.layout.names:
        raise InputError(f"schedule groups {schedule.groups} and layout groups {objective.layout.names} differ")
    if objective.cosine or objective.align:
        raise InputError("surfaces have no directions and no features: cosine and align must be 0 here")
    edges = torch.tensor([0.0, *schedule.breakpoints, 1.0], dtype=torch.float64)
    points, weights = _gauss(nodes)
    middle, half = (edges[1:] + edges[:-1])[:, None] / 2, edges.diff()[:, None] / 2
    tau, weight = (middle + half * points).flatten(), (half * weights).flatten()
    flow, kinetic = objective.weigh(*surfaces(schedule.times(tau)), schedule.rates(tau))
    return (weight[:, None] * flow).sum(), (weight[:, None] * kinetic).sum()


@cache
def _gauss(nodes: int) -> tuple[Tensor, Tensor]:
    points, weights = np.polynomial.legendre.leggauss(nodes)
    return torch.from_numpy(points), torch.from_numpy(weights)


def pull(surfaces: Surfaces, objective: FlowObjective, times: Tensor, lead: int = 1) -> Tensor:
    """The force of the flow loss on the follower's time at times (b, 2), for two groups with the lead at rate 1: (b,).

    Minus the derivative of L_flow in the follower's time a, with the lead at b; integration by parts removes the term
    d_a l_follower: w_f d_b l_f - w_l d_a l_l. With "stop" it is -(w_f d_a l_f + w_l d_a l_l), at rate 1. Negative
    values: the follower should wait.
    """
    if len(objective.layout) != 2:
        raise InputError(f"the pull is defined for two groups, got {len(objective.layout)}")
    follower, one = 1 - lead, torch.ones(1, 2, dtype=torch.float64)
    weight = objective.weigh(one, one, one)[0][0]
    times = times.detach().requires_grad_(True)
    losses = surfaces(times)[0]
    slopes = [torch.autograd.grad(losses[:, g].sum(), times, retain_graph=True)[0] for g in range(2)]
    of_lead = weight[lead] * slopes[lead][:, follower]
    if objective.weight_gradient == "stop":
        return -(weight[follower] * slopes[follower][:, follower] + of_lead)
    return weight[follower] * slopes[follower][:, lead] - of_lead


def fit_schedule(
    schedule: Learnable,
    surfaces: Surfaces,
    objective: FlowObjective,
    steps: int = 1500,
    lr: float = 0.05,
    nodes: int = 32,
    progress: Callable[[int, float], None] | None = None,
) -> Learnable:
    """Minimise `path_objective` in rho with Adam, from the rho of `schedule`; returns a frozen copy at the last rho."""
    if steps < 1:
        raise InputError(f"steps must be an integer >= 1, got {steps}")
    learned = copy.deepcopy(schedule)
    if not learned.rho.numel():  # a single group has nothing to learn
        return learned.freeze()
    learned.rho.requires_grad_(True)
    optimizer = torch.optim.Adam([learned.rho], lr=lr)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(steps):
        optimizer.zero_grad()
        value = path_objective(learned, surfaces, objective, nodes)
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        decay.step()
        if progress is not None:
            progress(step + 1, float(value.detach()))
    return learned.freeze()
