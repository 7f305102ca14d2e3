"""Learning rho on exact surfaces: the regimes of METHOD 3.2."""

import pytest
import torch
from torch.testing import assert_close

import lwd
from lwd import FlowObjective
from messages import says
from strategies import random_gaussian, scalar_pair

GRID = torch.linspace(0, 1, 101, dtype=torch.float64)
DATA = scalar_pair(0.6)


def objective(weight_gradient, kinetic):
    return FlowObjective(DATA.layout, {}, "groups", weight_gradient, kinetic)


def learned(weight_gradient, kinetic, steps=900):
    """Texture times on GRID after learning from the identity, as METHOD 3.2 describes."""
    schedule = lwd.fit_schedule(lwd.Polynomial(), DATA.surfaces, objective(weight_gradient, kinetic), steps, nodes=12)
    assert schedule.frozen
    return schedule.times(GRID)[:, 0]


@pytest.mark.slow  # quick: the slopes at the extreme, below
@pytest.mark.parametrize("kinetic", [0.0, 0.02])
def test_exact_goes_to_the_extreme_for_small_lambda(kinetic):
    """Oracle: tau^5, the family's extreme (sup norm 0.02)."""
    assert_close(learned("exact", kinetic), GRID**5, atol=0.02, rtol=0)


def slope(kinetic, share=0.0):
    """How the objective changes from a mixture of tau^5 and tau^4 towards tau^4, by quadrature."""
    goal, h = objective("exact", kinetic), 1e-4
    here, beside = ([0.0, 0, 0, s, 1 - s] for s in (share, share + h))
    values = [
        lwd.path_objective(lwd.Polynomial.from_shares([shares]), DATA.surfaces, goal, 64).item()
        for shares in (here, beside)
    ]
    return (values[1] - values[0]) / h


def test_exact_begins_to_leave_the_extreme_at_lambda_004():
    """Oracle: the slope of the objective from tau^5 towards tau^4, by quadrature, changes its sign at 0.04."""
    assert slope(0.037) > 0 > slope(0.043)


def test_exact_has_an_optimum_between_tau5_and_tau4_at_lambda_005():
    """Oracle: the objective falls from tau^5 towards tau^4 and from tau^4 towards tau^5."""
    assert slope(0.05) < 0 < slope(0.05, 0.999)


@pytest.mark.slow
def test_exact_has_an_interior_optimum_at_lambda_005():
    """Oracle: descent from two starts ends on the same curve, between tau^5 and tau^4."""
    goal = objective("exact", 0.05)
    starts = [lwd.Polynomial(), lwd.Polynomial.from_shares([[0.1, 0.1, 0.1, 0.5, 0.2]])]
    curves = [lwd.fit_schedule(s, DATA.surfaces, goal, 2500, nodes=12).times(GRID)[:, 0] for s in starts]
    assert_close(curves[0], curves[1], atol=0.01, rtol=0)
    assert 0.03 < (curves[0] - GRID**5).max() < (GRID**4 - GRID**5).max()


STEPS = pytest.mark.parametrize("steps", [90, pytest.param(900, marks=pytest.mark.slow)])
"""Ten percent of a run already shows whether a curve stays where it began."""


@STEPS
@pytest.mark.parametrize("kinetic", [0.1, 0.3])
def test_exact_is_the_identity_for_large_lambda(kinetic, steps):
    """Oracle: t = tau."""
    assert_close(learned("exact", kinetic, steps), GRID, atol=0.01, rtol=0)


@STEPS
@pytest.mark.parametrize("kinetic", [0.0, 0.04, 0.3])
def test_stop_stays_at_the_identity_for_every_lambda(kinetic, steps):
    """Oracle: t = tau; the stop-gradient's confound holds the curve where it began."""
    assert_close(learned("stop", kinetic, steps), GRID, atol=0.01, rtol=0)


def test_the_identity_is_only_a_local_minimum_at_lambda_01():
    """What METHOD 3.2 does not say: from the identity "exact" stays there at lambda 0.1, but tau^3 is lower.

    Oracle: the objective's own values by quadrature, at the identity, 1e-3 beside it, and at tau^3.
    """
    powers = {"identity": [1.0, 0, 0, 0, 0], "beside": [0.999, 0, 0.001, 0, 0], "cubic": [0.0, 0, 1, 0, 0]}
    goal = objective("exact", 0.1)
    value = {
        name: lwd.path_objective(lwd.Polynomial.from_shares([shares]), DATA.surfaces, goal).item()
        for name, shares in powers.items()
    }
    assert value["cubic"] < value["identity"] - 0.02
    assert value["identity"] < value["beside"]


def test_path_objective_is_the_same_integral_in_every_gauge():
    """Oracle: reparametrised global time gives the same flow term (gauge freedom)."""
    line = lwd.PiecewiseLinear((0, 0.3, 1), {"texture": (0, 0.1, 1), "semantic": (0, 0.6, 1)})
    slow = lwd.PiecewiseLinear((0, 0.8, 1), {"texture": (0, 0.1, 1), "semantic": (0, 0.6, 1)})
    flow = [lwd.path_objective(s, DATA.surfaces, objective("exact", 0.0)).item() for s in (line, slow)]
    assert_close(flow[0], flow[1], atol=1e-12, rtol=0)
    full = [lwd.path_objective(s, DATA.surfaces, objective("exact", 0.1)).item() for s in (line, slow)]
    assert abs(full[0] - full[1]) > 0.05


def test_three_groups_learn():
    """Oracle: the objective after learning is below the one before, and both followers moved behind their lead."""
    data = random_gaussian(("a", "b", "c"), seed=4)
    goal = FlowObjective(data.layout, {}, "groups")
    start = lwd.Polynomial(groups=("a", "b", "c"), lead="b")
    end = lwd.fit_schedule(start, data.surfaces, goal, steps=150, nodes=12)
    before, after = (lwd.path_objective(s, data.surfaces, goal).item() for s in (start.freeze(), end))
    assert after < before - 1e-3
    assert end.followers == ("a", "c")
    alone = lwd.fit_schedule(lwd.Polynomial(groups=("a",)), data.surfaces, goal)
    assert alone.frozen
    with pytest.raises(lwd.InputError, match=says("cosine", "align")):
        lwd.path_objective(start, data.surfaces, FlowObjective(data.layout, cosine=1.0))
    with pytest.raises(lwd.InputError, match=says("texture", "semantic", "a", "b", "c")):
        lwd.path_objective(lwd.Offset(0.3), data.surfaces, goal)
