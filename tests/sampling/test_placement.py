"""Step placement: exact spacing, kinks, and less error for the same steps on the mixture oracle."""

import itertools

import pytest
import torch
from torch.testing import assert_close

import lwd
from lwd.sampler import field_breakpoints
from lwd.sampling.flow import Flow
from lwd.sampling.placement import even_in, least_local_error, place
from messages import says
from strategies import small_mixture

LAYOUT = lwd.Layout.of(texture=2, semantic=1)
SCHEDULES = {
    "synchronous": lwd.Synchronous(),
    "offset": lwd.Offset(0.3),
    "polynomial": lwd.Polynomial([[0.0, -1.0, 1.0, 0.0, -1.0]]),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_steps_are_even_in_the_groups_local_time(name):
    """Oracle: differences of the group's times between kinks are equal; every kink is a stop; the count is kept."""
    schedule = SCHEDULES[name]
    for group in schedule.groups:
        times = even_in(group, 9, schedule, schedule.breakpoints)
        assert len(times) == 10
        assert times[0] == 0
        assert times[-1] == 1
        assert set(schedule.breakpoints) <= set(times)
        local = schedule.times(torch.tensor(times, dtype=torch.float64))[:, schedule.groups.index(group)].detach()
        stops = [0.0, *schedule.breakpoints, 1.0]
        for low, high in itertools.pairwise(stops):
            piece = local[[i for i, t in enumerate(times) if low <= t <= high]]
            assert_close(piece.diff(), torch.full_like(piece.diff(), float(piece.diff().mean())), atol=1e-9, rtol=0)


def test_the_timestep_shift():
    """Oracle: by hand, tau = 0.3 s / (1 - 0.7 s); A = 1 is even steps; A and 1 / A mirror."""
    flow = Flow(small_mixture(), lwd.Synchronous(), LAYOUT, (1, 1))
    expected = [0, 0.3 * 0.25 / 0.825, 0.3 * 0.5 / 0.65, 0.3 * 0.75 / 0.475, 1]
    assert place("shift:0.3", 4, "heun", flow) == pytest.approx(expected, abs=1e-12)
    assert place("shift:1", 7, "heun", flow) == pytest.approx(place("tau", 7, "heun", flow), abs=1e-12)
    mirrored = [1 - tau for tau in reversed(place("shift:4", 9, "heun", flow))]
    assert place("shift:0.25", 9, "heun", flow) == pytest.approx(mirrored, abs=1e-12)


@pytest.mark.parametrize("ends", [(), (0.5, 0.9)])
@pytest.mark.parametrize("placement", ["tau", "texture", "shift:0.3", "shift:1", "shift:3"])
def test_placed_steps_stop_at_kinks(placement, ends):
    """Oracle: counting; s = tau / (A - (A - 1) tau) is even between stops; one step after the end of the noise."""
    schedule = lwd.Offset(0.3)
    times = place(placement, 15, "heun", Flow(small_mixture(), schedule, LAYOUT, (1, 1)), ends)
    assert len(times) == 16
    assert {0.0, *schedule.breakpoints, *ends, 1.0} <= set(times)
    assert all(a < b for a, b in itertools.pairwise(times))
    if ends:
        assert times[-2] == 0.9
    if placement.startswith("shift"):
        a = float(placement.removeprefix("shift:"))
        stops = sorted({0.0, *schedule.breakpoints, *ends, 1.0})
        for low, high in itertools.pairwise(stops):
            s = torch.tensor([t / (a - (a - 1) * t) for t in times if low <= t <= high], dtype=torch.float64)
            assert_close(s.diff(), s.diff().mean().expand(len(s) - 1), atol=1e-12, rtol=0)


def test_the_solver_stops_where_it_is_told():
    """Oracle: the times seen by the field of Euler's method are the grid, kinks included; watch sees every end."""
    seen, watched = [], []

    def field(z, tau):
        seen.append(float(tau[0]))
        return torch.zeros_like(z)

    lwd.solve(
        field,
        torch.zeros(1, 1),
        "euler",
        grid=(0, 0.1, 0.6, 1),
        breakpoints=(0.5,),
        watch=lambda tau, _: watched.append(tau),
    )
    assert seen == [0, 0.1, 0.5, 0.6]
    assert watched == [0.1, 0.5, 0.6, 1]
    watched.clear()
    lwd.solve(field, torch.zeros(1, 1), breakpoints=(0.25, 0.5), watch=lambda tau, _: watched.append(tau))
    assert watched == [0.25, 0.5, 1]


@pytest.mark.parametrize("order", [1, 2])
def test_least_local_error_of_a_known_field(order):
    """Oracle: brute force over all grids of a coarse candidate set, errors written out.

    dz/dtau = g(tau) does not depend on z: a step's error is the quadrature error of g.
    """
    powers = torch.tensor([8.0], dtype=torch.float64)

    def field(z, tau):
        return ((powers + 1) * tau[:, None] ** powers).expand_as(z)

    z = torch.zeros(1, 1, dtype=torch.float64)
    found = least_local_error(field, z, 3, order, candidates=12)
    fine = torch.linspace(0, 1, 13, dtype=torch.float64)
    slope = [9 * float(t) ** 8 for t in fine]
    # The trajectory that errors are measured against: trapezoidal steps between candidates.
    truth = [0.0]
    for i in range(12):
        truth.append(truth[-1] + (slope[i] + slope[i + 1]) / 24)

    def cost(i, j):
        rate = slope[i] if order == 1 else (slope[i] + slope[j]) / 2
        return abs(truth[j] - truth[i] - float(fine[j] - fine[i]) * rate)

    best = min(itertools.combinations(range(1, 12), 2), key=lambda ij: cost(0, ij[0]) + cost(*ij) + cost(ij[1], 12))
    assert_close(torch.tensor(found), torch.tensor([0.0, *(float(fine[i]) for i in best), 1.0]))


QUICK = {("euler", "offset")}
COMBINED = [
    pytest.param(method, name, marks=[] if (method, name) in QUICK else [pytest.mark.slow])
    for method, name in itertools.product(("euler", "heun", "ab2"), SCHEDULES)
]


@pytest.mark.parametrize(("method", "name"), COMBINED)
def test_optimised_steps_have_less_error(method, name):
    """Oracle: the final state at rtol 1e-7, on other seeds than the calibration's."""
    data, schedule = small_mixture(), SCHEDULES[name]
    options = {"seeds": range(64), "size": (1, 1), "dtype": torch.float64}
    truth = lwd.sample(data, schedule, LAYOUT, rtol=1e-7, atol=1e-9, **options).z

    def error(placement):
        grid = place(placement, 8, method, Flow(data, schedule, LAYOUT, (1, 1)))
        z = lwd.sample(data, schedule, LAYOUT, method=method, grid=grid, **options).z
        return float((z - truth).square().mean().sqrt())

    found = {placement: error(placement) for placement in ("tau", "texture", "semantic", "optimised")}
    assert found["optimised"] < 0.99 * min(found[name] for name in ("tau", "texture", "semantic")), found


def test_the_search_keeps_its_budget():
    """Oracle: calls of the field, counted: the starts, the accurate solve and the budget, and not much more."""
    data, calls = small_mixture(), 0

    def counted(z, times, label):
        nonlocal calls
        calls += 1
        return data(z, times, label)

    place("optimised", 40, "heun", Flow(counted, lwd.Synchronous(), LAYOUT, (1, 1)))
    assert calls < 800 + 400 + 5 * 80 + 2 * 128 + 80


def test_what_cannot_be_placed_is_said():
    data, schedule = small_mixture(), lwd.Offset(0.3)
    for arguments, facts in (
        (("tua", 8, "heun"), ("tua", "tau", "texture", "semantic", "optimised")),
        (("optimised", 8, "dopri5"), "dopri5"),
        (("shift:0", 8, "heun"), "shift:0"),
        (("shift:inf", 8, "heun"), "shift:inf"),
        (("shift:x", 8, "heun"), "shift:x"),
        (("texture", 2, "heun"), 2),
        (("optimised", 1, "heun"), (1, 2)),
    ):
        with pytest.raises(lwd.InputError, match=says(facts)):
            place(*arguments, Flow(data, schedule, LAYOUT, (1, 1)))
    field = torch.zeros_like
    for grid in ((0, 1, 0.5), (0.1, 1), (0,), (0, float("nan"), 1)):
        with pytest.raises(lwd.InputError, match=says("grid")):
            lwd.solve(lambda z, _: field(z), torch.zeros(1, 1), "euler", grid=grid)
    with pytest.raises(lwd.InputError, match=says("grid", "steps")):
        lwd.solve(lambda z, _: field(z), torch.zeros(1, 1), "euler", grid=(0, 1), steps=3)
    assert field_breakpoints(data, schedule) == schedule.breakpoints
