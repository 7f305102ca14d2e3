"""What every schedule must be: exact ends, monotone, rates that are its derivative, an inverse."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.testing import assert_close

import lwd
from lwd.surfaces.lambda_path import largest_distance
from messages import says
from strategies import knots, polynomials, rhos, schedules

GRID = torch.linspace(0, 1, 401, dtype=torch.float64)


@given(schedules(limit=1e4))
def test_ends_are_exact_and_every_clock_is_monotone(schedule):
    """Oracle: t(0) = 0, t(1) = 1 with ==; fixed families may be off by rounding within a straight piece."""
    times = schedule.times(GRID)
    assert times.dtype == torch.float64
    assert times.shape == (401, len(schedule.groups))
    assert (times[0] == 0).all()
    assert (times[-1] == 1).all()
    assert (times.diff(dim=0) >= -1e-15).all()
    assert (schedule.rates(GRID) >= 0).all()


@given(schedules(limit=6.0), st.floats(0.001, 0.999))
def test_rates_are_the_central_difference_of_times(schedule, tau):
    """Oracle: (t(tau + h) - t(tau - h)) / 2h away from breakpoints."""
    h = 1e-5
    assume(all(abs(tau - point) > 2 * h for point in schedule.breakpoints))
    difference = (schedule.times(tau + h) - schedule.times(tau - h)) / (2 * h)
    assert_close(schedule.rates(tau), difference, atol=1e-7, rtol=1e-7)


@given(schedules())
def test_rates_integrate_to_times(schedule):
    """Oracle: Gauss-Legendre quadrature, exact for polynomials, on each smooth piece up to tau = 0.83."""
    edges = [0.0, *(p for p in schedule.breakpoints if p < 0.83), 0.83]
    nodes, weights = (torch.from_numpy(x) for x in np.polynomial.legendre.leggauss(8))
    total = torch.zeros(len(schedule.groups), dtype=torch.float64)
    for low, high in itertools.pairwise(edges):
        tau = low + (high - low) * (nodes + 1) / 2
        total += (weights[:, None] * schedule.rates(tau)).sum(0) * (high - low) / 2
    assert_close(total, schedule.times(0.83), atol=1e-12, rtol=0)


@given(polynomials(limit=1e4))
def test_polynomial_is_convex_and_never_ahead_of_its_lead_for_any_rho(schedule):
    """Oracle: the paper's Eq. semantic-leading, held to the last bit; convexity as non-decreasing rates."""
    times, rates = schedule.times(GRID), schedule.rates(GRID)
    lead = schedule.groups.index(schedule.lead)
    assert torch.equal(times[:, lead], GRID)
    assert (rates[:, lead] == 1).all()
    assert (times <= times[:, [lead]]).all()
    assert (rates.diff(dim=0) >= -1e-13 * rates[1:]).all()


@given(rhos(1, limit=20.0))
def test_polynomial_is_the_papers_formula(rho):
    """Oracle: Eq. fprime and fintegral written out with softplus and Z."""
    a = torch.nn.functional.softplus(rho[0])
    m = torch.arange(len(a), dtype=torch.float64)
    z = (a / (m + 1)).sum()
    schedule = lwd.Polynomial(rho)
    assert_close(
        schedule.times(GRID)[:, 0], ((a / (m + 1)) * GRID[:, None] ** (m + 1)).sum(1) / z, atol=1e-13, rtol=1e-12
    )
    assert_close(schedule.rates(GRID)[:, 0], (a * GRID[:, None] ** m).sum(1) / z, atol=1e-12, rtol=1e-12)
    assert_close(schedule.shares().sum(1), torch.ones(1, dtype=torch.float64))


def test_from_shares_is_the_inverse_of_shares():
    """Oracle: tau^3 and a given mixture of powers; then the round trip."""
    assert_close(lwd.Polynomial.from_shares([[0, 0, 2]]).times(GRID)[:, 0].detach(), GRID**3, atol=1e-14, rtol=0)
    mixed = lwd.Polynomial.from_shares([[0.5, 0, 0.5], [0, 1, 3]], groups=("a", "b", "c"), lead="b")
    assert_close(mixed.times(GRID)[:, 0].detach(), 0.5 * GRID + 0.5 * GRID**3, atol=1e-14, rtol=0)
    assert_close(mixed.shares().detach(), torch.tensor([[0.5, 0, 0.5], [0, 0.25, 0.75]]).double(), atol=1e-14, rtol=0)
    with pytest.raises(lwd.InputError, match=says("shares", "[[0.0, 0.0]]")):
        lwd.Polynomial.from_shares([[0, 0]])


def test_the_default_polynomial_is_the_papers_and_starts_at_the_identity():
    """Oracle: the documented distance to t = tau, 1.2e-3 (METHOD asks for less than 1e-2)."""
    schedule = lwd.Polynomial()
    assert (schedule.groups, schedule.lead, schedule.degree) == (("texture", "semantic"), "semantic", 4)
    assert schedule.rho.shape == (1, 5)
    distance = (schedule.times(GRID)[:, 0] - GRID).abs().max()
    assert_close(distance.item(), 0.00116, atol=1e-5, rtol=0)


@given(st.floats(0.01, 0.99))
def test_offset_is_sfds_clamp(delta):
    """Oracle: SFD's formula on its clock s = (1 + delta) tau; its channel mask is our rates."""
    schedule, s = lwd.Offset(delta), (1 + delta) * GRID
    expected = torch.stack([(s - delta).clamp(0, 1), s.clamp(0, 1)], 1)
    assert_close(schedule.times(GRID), expected, atol=1e-14, rtol=0)
    moving = torch.stack([s >= delta, s < 1], 1)
    away = torch.minimum((s - delta).abs(), (s - 1).abs()) > 1e-9
    assert_close(schedule.rates(GRID)[away], (moving.double() * (1 + delta))[away], atol=1e-12, rtol=0)
    assert_close(schedule.breakpoints, (delta / (1 + delta), 1 / (1 + delta)))


def test_fixed_families_by_hand():
    """Oracle: values worked out on paper; N groups."""
    names = ("a", "b", "c")
    tau = torch.tensor([0.0, 1 / 6, 1 / 3, 0.5, 1.0], dtype=torch.float64)
    cascade = lwd.Cascade(names, order=("b", "a", "c"))
    assert_close(cascade.times(tau), torch.tensor([[0, 0, 0], [0, 0.5, 0], [0, 1, 0], [0.5, 1, 0], [1, 1, 1]]).double())
    assert_close(cascade.rates(tau)[2], torch.tensor([3.0, 0, 0]).double())  # right-continuous at the breakpoint
    assert_close(cascade.rates(1.0), torch.tensor([0.0, 0, 3]).double())
    assert lwd.Cascade().order == ("semantic", "texture")
    waiting = lwd.Cascade(names, ("b", "a", "c"), handover=0.5)  # three moves of a half, then the last half together
    quarters = torch.tensor([0.0, 0.25, 0.5, 0.75, 0.875, 1.0], dtype=torch.float64)
    expected = [[0, 0, 0], [0, 0.5, 0], [0.5, 0.5, 0], [0.5, 0.5, 0.5], [0.75, 0.75, 0.75], [1, 1, 1]]
    assert_close(waiting.times(quarters), torch.tensor(expected).double())
    assert waiting.breakpoints == (0.25, 0.5, 0.75)
    assert_close(lwd.Synchronous(names).times(tau), tau[:, None].expand(-1, 3))
    assert lwd.Synchronous(names).breakpoints == ()
    bent = lwd.PiecewiseLinear((0, 0.25, 0.5, 1), {"a": (0, 0.1, 0.2, 1), "b": (0, 0.5, 1, 1)})
    assert bent.breakpoints == (0.5,)  # at 0.25 nothing bends
    assert_close(bent.times(0.75), torch.tensor([0.6, 1.0]).double())


@pytest.mark.parametrize("names", [("texture", "semantic"), ("a", "b", "c")])
def test_a_handover_goes_from_one_clock_to_the_cascade(names):
    """Oracle: the two schedules at its ends; the path does not jump on the way."""
    one, cascade = lwd.Synchronous(names), lwd.Cascade(names)
    assert largest_distance(lwd.Cascade(names, handover=1e-4), one) < 1e-3
    assert largest_distance(lwd.Cascade(names, handover=1 - 1e-4), cascade) < 1e-3
    assert lwd.Cascade(names, handover=1) == cascade
    assert cascade.to_dict().keys() == {"format", "version", "kind", "groups", "order"}  # as earlier versions wrote it


@given(schedules(limit=8.0), st.data())
def test_tau_of_is_the_first_time_a_group_gets_there(schedule, data):
    """Oracle: t(tau_of(t)) >= t, and just before it t has not been reached."""
    group = data.draw(st.sampled_from(schedule.groups))
    column = schedule.groups.index(group)
    t = torch.tensor(data.draw(st.lists(st.floats(0, 1), min_size=1, max_size=5)), dtype=torch.float64)
    tau = schedule.tau_of(group, t).detach()
    assert (schedule.times(tau)[:, column] >= t - 1e-15).all()
    before = torch.nextafter(tau, torch.zeros_like(tau))
    # Below 2^-12 float64 is finer than the 2^-64 to which the inverse is found.
    assert ((schedule.times(before)[:, column] < t) | (tau < 2**-12)).all()
    assert float(schedule.tau_of(group, 0.0).detach()) == 0


def test_tau_of_has_the_implicit_gradient():
    """Oracle: central differences in t and in rho."""
    rho, t = torch.tensor([[0.3, -1.0, 0.5, 0.2, 1.0]]).double(), torch.tensor(0.37, dtype=torch.float64)
    schedule = lwd.Polynomial(rho)
    t.requires_grad_()
    grad_t, grad_rho = torch.autograd.grad(schedule.tau_of("texture", t), [t, schedule.rho])

    def inverse(rho, t):
        return float(lwd.Polynomial(rho).tau_of("texture", t).detach())

    h = 1e-6
    assert_close(grad_t.item(), (inverse(rho, 0.37 + h) - inverse(rho, 0.37 - h)) / (2 * h), atol=1e-8, rtol=0)
    for m in range(5):
        step = torch.zeros(1, 5).double()
        step[0, m] = h
        slope = (inverse(rho + step, 0.37) - inverse(rho - step, 0.37)) / (2 * h)
        assert_close(grad_rho[0, m].item(), slope, atol=1e-8, rtol=0)


def test_the_lead_is_the_same_by_default_everywhere():
    """Oracle: semantic if there is one, otherwise the last group."""
    for names, lead in ((("texture", "semantic", "depth"), "semantic"), (("a", "b"), "b"), (("x",), "x")):
        made = [lwd.Offset(0.3, names), lwd.Cascade(names), lwd.Polynomial(groups=names)]
        words = [lwd.parse_schedule(word, names) for word in ("offset:0.3", "cascade", "polynomial")]
        assert made == words
        assert {schedule.lead for schedule in made} == {lead}


def test_numbers_of_other_libraries_are_numbers():
    knots = lwd.PiecewiseLinear(torch.linspace(0, 1, 3), np.array([[0, 0.25, 1], [0, 0.75, 1]]))
    assert knots == lwd.PiecewiseLinear((0, 0.5, 1), [(0, 0.25, 1), (0, 0.75, 1)])
    assert lwd.Offset(np.float64(0.3)) == lwd.Offset(0.3)


@given(knots())
def test_breakpoints_are_where_rates_jump(schedule):
    """Oracle: left and right rates differ at breakpoints and agree at every other knot."""
    for tau in schedule.tau[1:-1]:
        left = schedule.rates(math.nextafter(tau, 0))
        jumps = not torch.allclose(left, schedule.rates(tau), rtol=1e-9, atol=1e-9)
        assert jumps == (tau in schedule.breakpoints)


def test_freezing_and_averaging_rho_is_algorithm_1():
    """Oracle: the mean of rho after the burn-in, by hand; not the mean of the curves."""
    schedule, average = lwd.Polynomial(), lwd.RhoAverage(burn_in=2)
    seen = [torch.full((1, 5), float(step), dtype=torch.float64) for step in range(1, 6)]
    for step, rho in enumerate(seen, start=1):
        with torch.no_grad():
            schedule.rho.copy_(rho)
        average.update(step, schedule)
    learned = average.frozen(schedule)
    assert_close(learned.rho.detach(), torch.full((1, 5), (3 + 4 + 5) / 3, dtype=torch.float64))
    assert learned.frozen
    assert not schedule.frozen
    with pytest.raises(lwd.InputError, match=says(9)):
        lwd.RhoAverage(9).frozen(schedule)


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (lambda: lwd.Offset(0.0), ("delta", "0.0", "Synchronous()")),
        (lambda: lwd.Offset(1.0), ("delta", "1.0", "Cascade()")),
        (lambda: lwd.Offset(float("nan")), ("delta", "nan")),
        (lambda: lwd.Offset(0.3, lead="semantics"), ("semantics", "texture", "semantic")),
        (lambda: lwd.Cascade(order=("texture",)), ("order", "texture", "semantic")),
        (lambda: lwd.Cascade(handover=0), ("handover", "0.0", "Synchronous()")),
        (lambda: lwd.Cascade(handover=1.2), ("handover", "1.2")),
        (lambda: lwd.Cascade(handover=float("nan")), ("handover", "nan")),
        (lambda: lwd.Polynomial([[0.0, float("inf")]]), ("rho", "inf")),
        (lambda: lwd.Polynomial([[0.0], [0.0]]), ("rho", "(2, 1)")),
        (lambda: lwd.Polynomial({"depth": [0.0]}), ("rho", "texture", "depth")),
        (lambda: lwd.Polynomial([[0.0, 0.0]], degree=4), ("rho", 5, 2)),
        (lambda: lwd.Polynomial().times(1.5), ("tau", 1.5)),
        (lambda: lwd.Polynomial(degree=2.5), ("degree", 2.5)),
        (lambda: lwd.Polynomial(groups=("a",), degree=-5), ("degree", -5)),
        (lambda: lwd.Offset(1e-17), ("delta", "1e-17")),
        (lambda: lwd.PiecewiseLinear((0, 1e-17, 1), [(0, 0.5, 1)] * 2), ("tau", "1e-17")),
        (lambda: lwd.Synchronous(groups="texture"), ("groups", "texture")),
        (lambda: lwd.PiecewiseLinear((0, 0.5, 0.5, 1), [(0, 0.1, 0.2, 1)] * 2), ("tau", 0.5)),
        (lambda: lwd.PiecewiseLinear((0, 0.5, 1), [(0, 0.5, 1), (0, 1.5, 1)]), ("semantic", 1.5)),
        (lambda: lwd.PiecewiseLinear((0, 0.5, 1), [(0, 1), (0, 1)]), ("texture", "tau", 2, 3)),
        (lambda: lwd.PiecewiseLinear((0, 0.9), [(0, 1), (0, 1)]), ("tau", 0.9)),
    ],
)
def test_bad_schedules_are_refused_with_a_sentence(make, facts):
    with pytest.raises(lwd.InputError, match=says(facts)):
        make()


@pytest.mark.parametrize(
    "schedule", [lwd.Polynomial(), lwd.Bernstein(), lwd.Offset(0.3), lwd.Cascade(), lwd.Synchronous()]
)
def test_clocks_follow_the_device_of_tau(schedule):
    """Oracle: the meta device stands in for a GPU: a schedule that lies on the CPU serves any state."""
    tau = torch.zeros(4, dtype=torch.float64, device="meta")
    assert schedule.times(tau).device.type == "meta"
    assert schedule.rates(tau).device.type == "meta"
