"""Every lambda at once: the collapse threshold, the recommended lambda, what a schedule costs a sampler."""

import itertools

import pytest
import torch
from scipy.stats import spearmanr

import lwd
from lwd.surfaces.curvature import predicted_error
from lwd.surfaces.lambda_path import choose, lambda_path, largest_gap, solve_for
from lwd.surfaces.settings import PathSettings
from lwd.surfaces.table import (
    GridSurfaces,
    tabulate,
)
from strategies import small_mixture
from surfaces.exact import SURFACES, objective


@pytest.mark.slow
def test_the_whole_lambda_path():
    """Oracle: METHOD 3.2's toy: tau^5 below a threshold near 0.042, then curves that rise with lambda to the identity;
    objective rises and energy falls with lambda, whatever the surfaces; the floor is below."""
    path = lambda_path(lwd.Polynomial(), SURFACES, objective(), PathSettings(lambdas=(0.01, 0.08, 0.3)))
    assert 0.035 < path.threshold < 0.05
    assert path.weakest.kinetic == path.threshold
    assert not path.weakest.collapsed
    assert all(point.collapsed == (point.kinetic < path.threshold) for point in path.points)
    for one, two in itertools.pairwise(path.points):
        assert two.objective > one.objective
        assert two.energy <= one.energy + 1e-6
        assert two.flow >= one.flow - 1e-6
    assert all(point.floor <= point.objective + 1e-6 for point in path.points)
    weak = next(point for point in path.points if point.kinetic == 0.01)
    assert largest_gap(weak.schedule, lwd.Polynomial().extremes()[0]) < 0.02


def test_the_two_ends_of_the_lambda_path():
    """Oracle: METHOD 3.2's toy: tau^5 at 0.01, a gentler curve at 0.3."""
    weak, strong = (solve_for(kinetic, lwd.Polynomial(), SURFACES, objective()) for kinetic in (0.01, 0.3))
    assert weak.collapsed
    assert not strong.collapsed
    assert largest_gap(weak.schedule, lwd.Polynomial().extremes()[0]) < 0.02
    assert strong.objective > weak.objective
    assert strong.energy < weak.energy
    assert strong.flow > weak.flow


@pytest.mark.slow
def test_the_predicted_error_ranks_real_errors():
    """Oracle: errors of Euler's and Heun's method on the mixture, over nine schedules at equal steps: a formula that
    only knew the number of steps would fail."""
    data = small_mixture()
    layout = data.layout
    draws, labels = data.draw(600, seed=2)
    surfaces = GridSurfaces(tabulate(data, draws, labels, layout, points=13))
    shares = ([0.5, 0.3, 0.2], [0, 0.3, 0.7], [0, 0, 0, 0, 1.0], [0.7, 0, 0, 0.3])
    schedules = [lwd.Synchronous(), *map(lwd.Offset, (0.15, 0.3, 0.5, 0.7))]
    schedules += [lwd.Polynomial.from_shares([row]) for row in shares]
    options = {"seeds": range(256), "size": (1, 1), "dtype": torch.float64}
    truth = [lwd.sample(data, one, layout, rtol=1e-7, atol=1e-9, **options).z for one in schedules]
    for (method, order), steps in itertools.product((("euler", 1), ("heun", 2)), (8, 12, 18)):
        few = [lwd.sample(data, one, layout, method=method, steps=steps, **options).z for one in schedules]
        real = [float((z - exact).square().mean().sqrt()) for z, exact in zip(few, truth, strict=True)]
        predicted = [predicted_error(one, surfaces, layout, steps, order) for one in schedules]
        assert spearmanr(real, predicted).statistic >= 0.8, (method, steps, real, predicted)


def test_the_second_rule_takes_the_weakest_lambda_within_the_tolerance():
    """Oracle: by hand; then on a path, whose predicted errors fall with lambda."""
    data = small_mixture()
    draws, labels = data.draw(200, seed=2)
    surfaces = GridSurfaces(tabulate(data, draws, labels, data.layout, points=7))
    path = lambda_path(
        lwd.Polynomial(),
        surfaces,
        objective(layout=data.layout),
        PathSettings(lambdas=(0.05, 0.2, 0.8), steps=10, tolerance=1e-9, floor=False),
    )
    errors = [point.error for point in path.points if not point.collapsed]
    assert path.chosen.error == min(errors)
    stable = [point for point in path.points if not point.collapsed]
    assert choose(stable, max(errors)).kinetic == stable[0].kinetic
    assert choose([], 1.0) is None
