"""Optimisers over surfaces: the best curve of a family, the best of all monotone paths, the force on a curve."""

import itertools

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import lwd
from lwd.surfaces.family import best_curve, between, descend, fitted_to
from lwd.surfaces.integral import path_objective, pull
from lwd.surfaces.lambda_path import largest_gap, solve_for
from lwd.surfaces.optimum import NODES, at_the_edge, global_optimum
from lwd.surfaces.table import (
    SurfaceTable,
    scattered_points,
    smooth,
)
from messages import says
from surfaces.exact import DATA, SURFACES, objective
from train_data import gaussian

SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("gradient", "kinetic"),
    [pytest.param("exact", 0.02, marks=SLOW), pytest.param("exact", 0.06, marks=SLOW), ("none", 0.1)],
)
def test_the_fitted_polynomial_is_that_of_direct_optimisation(gradient, kinetic):
    """Oracle: `fit_schedule` (Adam) on the closed form, from near the curve that L-BFGS found best: sup norm 1e-3."""
    goal = objective(kinetic, gradient)
    found = best_curve(lwd.Polynomial(), SURFACES, goal)
    start = between(found, lwd.Polynomial(), 0.1)
    direct = lwd.fit_schedule(start, DATA.surfaces, goal, steps=700, nodes=12)
    assert largest_gap(found, direct) < 1e-3


@pytest.mark.parametrize("steps", [20, pytest.param(250, marks=SLOW)])
def test_the_papers_rule_is_followed_on_tables_too(steps):
    """Oracle: "stop" from the identity and from elsewhere, on the table and on the closed form: sup norm 1e-3."""
    goal = objective(0.05, "stop")
    for start in (lwd.Polynomial(), lwd.Polynomial.from_shares([[0.5, 0.2, 0.1, 0.1, 0.1]])):
        mine, theirs = (lwd.fit_schedule(start, s, goal, steps=steps, nodes=12) for s in (SURFACES, DATA.surfaces))
        assert largest_gap(mine, theirs) < 1e-3


@pytest.mark.slow
def test_the_papers_rule_rests_at_the_identity():
    """Oracle: t = tau, where "stop" holds the curve; L-BFGS from several starts on the table."""
    goal = objective(0.05, "stop")
    assert largest_gap(best_curve(lwd.Polynomial(), SURFACES, goal), lwd.Synchronous()) < 5e-3


@pytest.mark.parametrize(
    ("kinetic", "count"), [(0.03, 1), *(pytest.param(k, 3, marks=SLOW) for k in (0.0, 0.03, 0.1, 0.4))]
)
def test_dynamic_programming_is_the_floor(kinetic, count):
    """Oracle: no curve of any family, and no random monotone path, is below it (quadrature differs by 1e-6)."""
    goal = objective(kinetic)
    floor = global_optimum(SURFACES, goal)
    lowest = float(path_objective(floor, SURFACES, goal, NODES))
    families = (lwd.Polynomial(), lwd.Bernstein(degree=12), lwd.Bernstein(degree=12, convex=False))
    for family in families[:count]:
        assert lowest <= float(path_objective(best_curve(family, SURFACES, goal, [floor]), SURFACES, goal)) + 1e-5
    generator = torch.Generator().manual_seed(3)
    tau = torch.linspace(0, 1, 9, dtype=torch.float64).tolist()
    for _ in range(50):
        inner = torch.rand(7, generator=generator, dtype=torch.float64).sort().values.tolist()
        path = lwd.PiecewiseLinear(tau, {"texture": [0, *inner, 1], "semantic": tau})
        assert lowest <= float(path_objective(path, SURFACES, goal)) + 1e-5
    for fixed in (lwd.Synchronous(), lwd.Cascade(("texture", "semantic"), ("semantic", "texture"))):
        if kinetic == 0 or isinstance(fixed, lwd.Synchronous):
            assert lowest <= float(path_objective(fixed, SURFACES, goal)) + 1e-3


def test_dynamic_programming_matches_brute_force():
    """Oracle: all 35 monotone paths through a grid of 4 columns and 4 heights."""
    goal = objective(0.05)
    found = global_optimum(SURFACES, goal, columns=4, heights=4, doublings=0)
    tau = [0, 0.25, 0.5, 0.75, 1]
    values = {}
    for inner in itertools.combinations_with_replacement((0, 1 / 3, 2 / 3, 1), 3):
        path = lwd.PiecewiseLinear(tau, {"texture": [0, *inner, 1], "semantic": tau})
        values[inner] = float(path_objective(path, SURFACES, goal, NODES))
    best = min(values, key=values.get)
    assert_close(found.times(torch.tensor(tau))[1:-1, 0], torch.tensor(best, dtype=torch.float64), atol=1e-9, rtol=0)


def test_families_reach_what_they_contain():
    """Oracle: curves that a family contains are fitted to 1e-3; extremes are powers of tau."""
    tau = torch.linspace(0, 1, 50, dtype=torch.float64)
    wanted = lwd.Polynomial.from_shares([[0.4, 0.3, 0.3]])
    for family in (lwd.Polynomial(), lwd.Bernstein(), lwd.Bernstein(convex=False)):
        assert largest_gap(fitted_to(family, wanted), wanted) < 2e-3, family
        assert_close(family.extremes()[0].times(tau)[:, 0], tau ** (5 if family.kind == "polynomial" else 8))
    ahead = lwd.Bernstein(degree=6, convex=False).extremes()[1]
    assert_close(ahead.times(tau)[:, 0], 1 - (1 - tau) ** 6)
    assert largest_gap(lwd.Bernstein(convex=False), lwd.Synchronous()) < 1e-12


@pytest.mark.parametrize("mode", ["exact", "stop"])
def test_the_pull_is_the_gradient_of_the_flow_loss(mode):
    """Oracle: autograd through the objective of a parametric curve, against the pull times how the curve moves."""
    goal = objective(gradient=mode)
    points, weights = (torch.from_numpy(x) for x in np.polynomial.legendre.leggauss(48))
    tau, weights = (points + 1) / 2, weights / 2
    # "stop" is drawn at rate 1, so on the identity; moved by powers of tau, whose derivative at the identity is known.
    schedule = lwd.Polynomial.from_shares([[0.4, 0.2, 0.2, 0.1, 0.1]] if mode == "exact" else [[1.0, 0, 0, 0, 0]])
    shares = schedule.shares().detach().double()[0]
    for m in range(1, 5):

        def curve(step, m=m):
            moved = shares.clone()
            moved[m] = moved[m] + step
            return moved / moved.sum()

        moves = torch.autograd.functional.jacobian(
            lambda step, c=curve: (c(step)[:, None] * tau[None] ** torch.arange(1, 6)[:, None]).sum(0),
            torch.zeros((), dtype=torch.float64),
        )
        step = torch.zeros((), dtype=torch.float64, requires_grad=True)
        rate = (curve(step)[:, None] * torch.arange(1, 6)[:, None] * tau[None] ** torch.arange(5)[:, None]).sum(0)
        time = (curve(step)[:, None] * tau[None] ** torch.arange(1, 6)[:, None]).sum(0)
        times, rates = torch.stack([time, tau], 1), torch.stack([rate, torch.ones_like(tau)], 1)
        losses, energies = SURFACES(times)
        flow = (weights[:, None] * goal.weigh(losses, energies, rates)[0]).sum()
        (slope,) = torch.autograd.grad(flow, step)
        pulled = pull(SURFACES, goal, times.detach())
        assert_close(-slope, (weights * pulled * moves).sum(), atol=2e-4, rtol=1e-3)


def test_a_collapsed_optimum_is_named():
    """Oracle: by hand: a group that waits to the end, one that is done at once, and two that run together."""
    names = ("texture", "semantic")
    late = lwd.PiecewiseLinear([0, 0.95, 1], {"texture": [0, 0.01, 1], "semantic": [0, 0.95, 1]})
    early = lwd.PiecewiseLinear([0, 0.05, 1], {"texture": [0, 0.99, 1], "semantic": [0, 0.05, 1]})
    together = lwd.PiecewiseLinear([0, 1], {name: [0, 1] for name in names})
    assert says("texture").search(at_the_edge(late))
    assert says("texture").search(at_the_edge(early))
    assert at_the_edge(late) != at_the_edge(early)
    assert at_the_edge(together) == ""


@SLOW
def test_three_groups_and_descent():
    """Oracle: the curve found on fitted surfaces is as good on the closed form as the closed form's own."""
    data = gaussian(0.5, groups=3)
    points = scattered_points(352, 3)
    losses, energies = data.surfaces(points)
    surfaces = smooth(SurfaceTable(data.layout, points, losses, energies, 0 * losses, 0 * losses, 1000))
    goal = objective(0.15, layout=data.layout)
    start = lwd.Polynomial.from_shares([[0.6, 0.1, 0.1, 0.1, 0.1]] * 2, data.layout.names)
    mine, theirs = descend(start, surfaces, goal), descend(start, data.surfaces, goal)
    values = [float(path_objective(one, data.surfaces, goal).detach()) for one in (start, mine, theirs)]
    assert values[1] - values[2] < 0.02 * (values[0] - values[2]) + 1e-4
    point = solve_for(0.15, lwd.Polynomial(groups=data.layout.names), surfaces, goal)
    assert point.floor is None
    with pytest.raises(lwd.InputError, match=says(3)):
        global_optimum(surfaces, goal)
