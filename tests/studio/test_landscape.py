"""Numbers beside a curve: those of the library, for two groups and three."""

from dataclasses import replace

import pytest
import torch

import lwd
from lwd.errors import InputError
from lwd.studio.landscape import Landscape, open_landscape, pairs
from lwd.surfaces.curvature import predicted_error
from lwd.surfaces.integral import path_objective, path_terms
from lwd.surfaces.lambda_path import largest_distance
from lwd.surfaces.optimum import GlobalOptimum
from messages import says
from stand_ins import coarse_optimum
from studio.made import THREE, covariance, exact_table

CURVES = (
    lwd.Synchronous(),
    lwd.Offset(0.3),
    lwd.Cascade(),
    lwd.PiecewiseLinear((0, 0.3, 0.7, 1), {"texture": (0, 0.1, 0.4, 1), "semantic": (0, 0.3, 0.7, 1)}),
)


@pytest.fixture(scope="module")
def fashion(studio):
    return studio.catalog.open("fashion").landscape


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.kind)
def test_numbers_are_the_librarys(fashion, curve):
    """Oracle: path_terms, the floor that the path stores, and predicted_error times its measured scale."""
    point = fashion.found.points[2]
    found = fashion.numbers(curve, point.kinetic, 12, 2)
    objective = replace(fashion.objective, kinetic=point.kinetic)
    flow, kinetic = (float(term) for term in path_terms(curve, fashion.surfaces, objective))
    assert found["flow"] == pytest.approx(flow)
    assert point.kinetic * found["energy"] == pytest.approx(kinetic)
    assert found["above"] == pytest.approx(flow + kinetic - point.floor)
    scale = fashion.provenance["error_scales"]["2"]
    layout = fashion.table.layout
    assert found["error"] == pytest.approx(scale * predicted_error(curve, fashion.surfaces, layout, 12, 2))


@pytest.mark.slow
def test_the_best_of_all_paths_has_no_distance(fashion):
    """Oracle: dynamic programming; every other curve with the lead's clock as tau is above it."""
    point = fashion.found.points[3]
    best = GlobalOptimum(fashion.surfaces, fashion.objective)(point.kinetic)
    assert fashion.numbers(best, point.kinetic, 10, 1)["above"] == pytest.approx(0, abs=2e-5)
    for curve in (point.schedule, CURVES[0], CURVES[3]):
        assert fashion.numbers(curve, point.kinetic, 10, 1)["above"] > -1e-6


def test_what_is_not_known_is_null(fashion):
    """Oracle: a lambda that was not solved for, and none at all."""
    found = fashion.numbers(CURVES[0], 0.123, 10, 2)
    assert (found["above"], found["objective"] is None) == (None, False)
    assert fashion.numbers(CURVES[0], None, 10, 2)["objective"] is None


def test_only_solvers_of_order_one_and_two_have_a_predicted_error(studio, fashion):
    """Oracle: predicted_error is for these orders; four Runge-Kutta stages and dopri5 are not."""
    for solver, order in (("euler", 1), ("heun", 2), ("midpoint", 2), ("ab2", 2)):
        found = studio.answer("curve", {"model": "fashion", "preset": "cascade", "steps": 9, "solver": solver})
        assert found["numbers"]["error"] == fashion.error(CURVES[2], 9, order)
    for solver in ("rk4", "ab3", "dopri5"):
        found = studio.answer("curve", {"model": "fashion", "preset": "cascade", "steps": 9, "solver": solver})
        assert found["numbers"]["error"] is None


def test_heat_maps_show_the_surfaces(fashion):
    """Oracle: the smooth surfaces at single points; rows are the clock that goes up."""
    shown = fashion.panels()
    plane = shown["planes"][0]
    assert (plane["x"], plane["y"]) == ("semantic", "texture")
    for row, column in ((0, 32), (32, 0), (7, 21)):
        times = torch.tensor([[shown["axis"][row], shown["axis"][column]]], dtype=torch.float64)  # texture, semantic
        losses, energies = fashion.surfaces(times)
        assert plane["maps"]["loss of texture"][row][column] == pytest.approx(float(losses[0, 0]), abs=2e-4)
        assert plane["maps"]["energy of semantic"][row][column] == pytest.approx(float(energies[0, 1]), abs=2e-4)


def test_three_groups_have_pairwise_maps_and_numbers(studio, three):
    """Oracle: the closed form of a Gaussian, which the polynomial fit of scattered points meets within 1%."""
    landscape = studio.catalog.open(str(three)).landscape
    assert pairs(THREE) == [("semantic", "texture"), ("semantic", "depth"), ("depth", "texture")]
    shown = landscape.panels(0.25)
    assert len(shown["planes"]) == 3
    assert {len(plane["maps"]) for plane in shown["planes"]} == {6}
    curve = lwd.Cascade(THREE)
    found = landscape.numbers(curve, None, 10, 2)
    data = lwd.Gaussian(lwd.Layout.of(**dict.fromkeys(THREE, 1)), covariance(3))
    exact = path_objective(curve, data.surfaces, lwd.FlowObjective(data.layout))
    assert found["flow"] == pytest.approx(float(exact), rel=0.01)
    assert found["error"] is None


@pytest.mark.slow
def test_solving_for_lambdas_gives_curves_and_floors(monkeypatch):
    """Oracle: each learned curve is better than one clock at its lambda, and not below the floor."""
    monkeypatch.setattr("lwd.studio.landscape.LAMBDAS", (0.02, 0.1))
    monkeypatch.setattr("lwd.surfaces.lambda_path.GlobalOptimum", coarse_optimum)
    table = exact_table(("texture", "semantic"), 7)
    landscape = Landscape(table, {}, lwd.FlowObjective(table.layout))
    seen = []
    found = landscape.solve(seen.append)
    assert sum(seen) == 2
    assert landscape.solve(seen.append) is found
    for point in found.points:
        above = [landscape.numbers(one, point.kinetic, 4, 1)["above"] for one in (point.schedule, CURVES[0])]
        assert -1e-2 < above[0] <= above[1]  # the floor of this test is coarse


def test_surfaces_of_other_groups_are_refused(three):
    with pytest.raises(InputError, match=says("texture=2", "texture=1")):
        open_landscape(three, None, lwd.Layout.of(texture=1, semantic=1))


def test_the_distance_between_paths_ignores_their_speed():
    """Oracle: an offset at another speed; a path shifted by a known amount."""
    slow = lwd.PiecewiseLinear(
        (0, 0.5, 0.9, 1), {"texture": (0, 0, 0.7, 1), "semantic": (0, 0.3, 1, 1)}
    )  # the knots of offset 0.3
    assert largest_distance(slow, lwd.Offset(0.3)) < 5e-3
    assert largest_distance(lwd.Offset(0.3), lwd.Offset(0.5)) == pytest.approx(0.1, abs=5e-3)
    assert largest_distance(lwd.Cascade(), lwd.Synchronous()) == pytest.approx(0.5, abs=5e-3)
