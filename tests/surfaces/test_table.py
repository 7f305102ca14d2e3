"""Loss surfaces: tables, optimisers over them, every lambda at once, and what a schedule costs a sampler."""

import itertools
import json

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch.testing import assert_close

import lwd
from lwd.objective import FlowObjective
from lwd.surfaces.curvature import predicted_error
from lwd.surfaces.family import best_curve, between, descend, fitted_to
from lwd.surfaces.files import load_surfaces, save_surfaces
from lwd.surfaces.integral import path_objective, pull
from lwd.surfaces.lambda_path import choose, lambda_path, largest_gap, solve_for
from lwd.surfaces.optimum import NODES, at_the_edge, global_optimum
from lwd.surfaces.settings import PathSettings
from lwd.surfaces.table import (
    GridSurfaces,
    SmoothSurfaces,
    SurfaceTable,
    grid_points,
    scattered_points,
    smooth,
    tabulate,
)
from messages import says
from strategies import small_mixture
from train_data import gaussian

DATA = gaussian(0.6)
AXIS = torch.linspace(0, 1, 17, dtype=torch.float64)
SLOW = pytest.mark.slow


def objective(kinetic=0.0, gradient="exact", layout=DATA.layout):
    return FlowObjective(layout, reduction="groups", weight_gradient=gradient, kinetic=kinetic)


def exact_table(data=DATA, axis=AXIS):
    """The closed form at the points of a grid."""
    points = grid_points(axis, len(data.layout))
    losses, energies = data.surfaces(points)
    return SurfaceTable(data.layout, points, losses, energies, 0 * losses, 0 * losses, 1000, axis)


SURFACES = GridSurfaces(exact_table())


def test_a_grid_is_interpolated_to_fourth_order():
    """Oracle: the closed form between the points; halving the spacing divides the error by about 16; gradients too."""
    times = torch.rand(400, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    errors = []
    for count in (9, 17):
        surfaces = GridSurfaces(exact_table(axis=torch.linspace(0, 1, count, dtype=torch.float64)))
        errors.append(
            max(float((a - b).abs().max()) for a, b in zip(surfaces(times), DATA.surfaces(times), strict=True))
        )
    assert errors[1] < 1e-4
    assert errors[0] / errors[1] > 8
    times.requires_grad_(True)
    mine, theirs = (torch.autograd.grad(f(times)[0].sum(), times)[0] for f in (SURFACES, DATA.surfaces))
    assert_close(mine, theirs, atol=5e-3, rtol=0)


def test_scattered_points_are_fitted_and_the_degree_is_chosen():
    """Oracle: three correlated groups in closed form; a polynomial of known degree is found exactly."""
    data = gaussian(0.4, groups=3)
    points = scattered_points(352, 3)
    losses, energies = data.surfaces(points)
    table = SurfaceTable(data.layout, points, losses, energies, 0 * losses, 0 * losses, 1000)
    surfaces = smooth(table)
    assert isinstance(surfaces, SmoothSurfaces)
    times = torch.rand(300, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = surfaces(times)
    assert max(float((a - b).abs().max()) for a, b in zip(found, data.surfaces(times), strict=True)) < 0.05
    assert surfaces.error < 0.01
    cubic = 2 + points[:, :1] ** 3 - points[:, 1:2] * points[:, 2:]
    both = (cubic.expand(-1, 3), cubic.expand(-1, 3), 0 * losses, 0 * losses)
    assert SmoothSurfaces(SurfaceTable(data.layout, points, *both, 99)).error < 1e-10
    with pytest.raises(lwd.InputError, match=says(4)):
        SmoothSurfaces(SurfaceTable(data.layout, points[:4], losses[:4], energies[:4], losses[:4], losses[:4], 1000))


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
        assert_close(family.extreme().times(tau)[:, 0], tau ** (5 if family.kind == "polynomial" else 8))
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
    assert largest_gap(weak.schedule, lwd.Polynomial().extreme()) < 0.02


def test_the_two_ends_of_the_lambda_path():
    """Oracle: METHOD 3.2's toy: tau^5 at 0.01, a gentler curve at 0.3."""
    weak, strong = (solve_for(kinetic, lwd.Polynomial(), SURFACES, objective()) for kinetic in (0.01, 0.3))
    assert weak.collapsed
    assert not strong.collapsed
    assert largest_gap(weak.schedule, lwd.Polynomial().extreme()) < 0.02
    assert strong.objective > weak.objective
    assert strong.energy < weak.energy
    assert strong.flow > weak.flow


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


def test_information_gain_does_not_depend_on_the_path():
    """Oracle: I-MMSE. With weights d_g t_g / (1 - t_g) the objective is a line integral of a gradient field."""
    factor = torch.randn(3, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    covariance = factor @ factor.T + 0.2 * torch.eye(3, dtype=torch.float64)
    data = lwd.Gaussian(lwd.Layout.of(texture=2, semantic=1), covariance)  # groups of different size: d_g counts

    def integral(schedule):
        edges = torch.tensor([0.0, *schedule.breakpoints, 1.0], dtype=torch.float64)
        total = torch.zeros(())
        for low, high in itertools.pairwise(edges.tolist()):
            nodes = torch.linspace(low, high, 20_001, dtype=torch.float64)
            tau = (nodes[1:] + nodes[:-1]) / 2
            times = 0.9 * schedule.times(tau)  # from the origin to (0.9, 0.9): at 1 the weight is infinite
            losses, _ = data.surfaces(times)
            weights = torch.tensor([group.channels for group in data.layout]) * times / (1 - times)
            total = total + (weights * losses * 0.9 * schedule.rates(tau)).sum() * (high - low) / 20_000
        return float(total.detach())

    values = [
        integral(one)
        for one in (
            lwd.Synchronous(),
            lwd.Offset(0.3),
            lwd.Offset(0.3, lead="texture"),
            lwd.Polynomial.from_shares([[0, 0, 1]]),
            lwd.Cascade(("texture", "semantic"), ("texture", "semantic")),
        )
    ]
    assert max(values) - min(values) < 1e-6 * abs(values[0])


def test_estimated_surfaces_are_within_their_errors():
    """Oracle: the closed form of the exact velocity: 3 standard errors at 99% of the points, none beyond 6; bends by
    autograd of the closed form."""
    data, labels = DATA.draw(1500, seed=1)
    table = tabulate(DATA, data, labels, DATA.layout, points=5)
    losses, energies = DATA.surfaces(table.points)
    for mine, theirs, error in (
        (table.losses, losses, table.loss_errors),
        (table.energies, energies, table.energy_errors),
    ):
        away = (mine - theirs).abs() / error.clamp(min=1e-12)
        away = away[(mine - theirs).abs() > 1e-9]
        assert (away < 3).double().mean() > 0.97
        assert away.max() < 6
    middle = table.bends[12, 0]  # the point (0.5, 0.5)
    assert_close(table.points[12], torch.tensor([0.5, 0.5], dtype=torch.float64))
    matrix = torch.tensor([[1.0, 0.6], [0.6, 1.0]], dtype=torch.float64)

    def linear(t):
        a, b = torch.diag(t), torch.diag(1 - t)
        return (matrix @ a - b) @ torch.linalg.inv(a @ matrix @ a + b @ b)

    t = torch.tensor([0.5, 0.5], dtype=torch.float64)
    m, covariance = linear(t), matrix / 4 + torch.eye(2) / 4
    jacobian = torch.autograd.functional.jacobian(linear, t)
    rows = [m[0]] + [jacobian[0, :, g] + m[0, g] * m[g] for g in range(2)]
    expected = torch.stack([torch.stack([a @ covariance @ b for b in rows]) for a in rows])
    assert_close(middle, expected, atol=0.1, rtol=0.08)


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


def test_files_round_trip_and_bad_ones_are_refused(tmp_path):
    """Oracle: equality; each defect by its sentence."""
    data, labels = DATA.draw(64)
    table = tabulate(DATA, data, labels, DATA.layout, points=5)
    save_surfaces(table, tmp_path / "surfaces.safetensors", {"by": "a test"})
    again, provenance = load_surfaces(tmp_path)
    assert provenance == {"by": "a test"}
    for name in ("points", "losses", "energies", "loss_errors", "energy_errors", "axis", "bends"):
        assert torch.equal(getattr(again, name), getattr(table, name)), name

    def with_changes(**changes):
        fields = {name: getattr(table, name) for name in SurfaceTable.__dataclass_fields__}
        return SurfaceTable(**(fields | changes))

    hole = table.losses.clone()
    hole[3, 1] = torch.nan
    for changes, facts in (
        ({"losses": hole}, ("losses", "NaN", 1, 25)),
        ({"losses": table.losses[:-1]}, ("losses", "(25, 2)", "(24, 2)")),
        ({"energies": -table.energies}, "energies"),
        ({"points": 2 * table.points}, "points"),
        ({"count": 8}, (8, 32)),
        ({"axis": AXIS[:5]}, "axis"),
        ({"axis": AXIS.flip(0)}, "axis"),
        ({"axis": torch.cat([AXIS[:5], AXIS[4:-1]])}, "axis"),
        ({"axis": torch.linspace(0, 1, 17).double().square()}, "points"),
        ({"axis": torch.tensor(0.5).double()}, "axis"),
    ):
        with pytest.raises(lwd.InputError, match=says(facts)):
            with_changes(**changes)
    with pytest.raises(lwd.InputError, match=says(32, 8)):
        tabulate(DATA, data[:8], labels[:8], DATA.layout)
    about = json.loads((tmp_path / "surfaces.json").read_text())
    for change, facts in (
        ({"format": "x"}, ("surfaces.json", "x")),
        ({"layout": [1]}, ("surfaces.json", "layout")),
        ({"count": 3}, (3, 32)),
        ({"layout": {"texture": 1, "semantic": 1, "depth": 1}}, ("(25, 3)", "(25, 2)")),
    ):
        (tmp_path / "surfaces.json").write_text(json.dumps(about | change))
        with pytest.raises(lwd.InputError, match=says(facts)):
            load_surfaces(tmp_path)
    (tmp_path / "surfaces.json").write_text(json.dumps(about))
    (tmp_path / "surfaces.safetensors").write_bytes((tmp_path / "surfaces.safetensors").read_bytes()[:300])
    with pytest.raises(lwd.InputError, match=says("surfaces.safetensors")):
        load_surfaces(tmp_path)
