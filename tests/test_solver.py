"""Solvers against known solutions: measured order, kinks, bounds, independence of the batch."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import lwd
from lwd.solver import step_grid
from lwd.solver.base import combine, cut, stages
from lwd.solver.dopri5 import DOPRI5
from lwd.solver.fixed import FIXED
from messages import says
from strategies import schedules, small_mixture

START = torch.tensor([[1.0, 0.0], [0.3, -0.5]], dtype=torch.float64)
ORDERS = {"euler": 1, "midpoint": 2, "heun": 2, "rk4": 4, "ab2": 2, "ab3": 3, "abm": 3}


def swing(z, tau):
    """z' = z cos(5 tau), solved by `swung`."""
    return z * torch.cos(5 * tau)[:, None]


def swung(z):
    return z * math.exp(math.sin(5) / 5)


def kinked(z, tau):
    """A rate that jumps from 0.5 to 3 at tau = 0.4 (right-continuous)."""
    return z * torch.where(tau < 0.4, 0.5, 3.0)[:, None]


def order(field, truth, method, breakpoints=()):
    """Slope of log error over log step size; abm, whose larger steps are better than its order, with finer grids."""
    errors = [
        (lwd.solve(field, START, method, steps=n, breakpoints=breakpoints).z - truth).abs().max().item()
        for n in ((160, 320) if method == "abm" else (40, 80))
    ]
    return math.log2(errors[0] / errors[1])


@pytest.mark.parametrize("method", ORDERS)
def test_order_of_convergence_on_a_smooth_problem(method):
    """Oracle: closed form; within 0.3 of theory."""
    assert abs(order(swing, swung(START), method) - ORDERS[method]) < 0.3


@pytest.mark.parametrize("method", ORDERS)
def test_restarting_at_a_kink_keeps_the_order(method):
    """Oracle: exp(0.5 * 0.4 + 3 * 0.6). The breakpoint at 0.4 + pi/1000 falls between equal steps."""
    kink = 0.4 + math.pi / 1000

    def field(z, tau):
        return z * torch.where(tau < kink, 0.5, 3.0)[:, None]

    truth = START * math.exp(0.5 * kink + 3 * (1 - kink))
    assert abs(order(field, truth, method, (kink,)) - ORDERS[method]) < 0.3


def test_stepping_across_a_kink_loses_the_order():
    """Control for the test above: without the breakpoint rk4 is no longer of fourth order."""
    kink = 0.4 + math.pi / 1000

    def field(z, tau):
        return z * torch.where(tau < kink, 0.5, 3.0)[:, None]

    truth = START * math.exp(0.5 * kink + 3 * (1 - kink))
    assert abs(order(field, truth, "rk4") - 4) > 1


def test_order_of_dopri5_with_equal_steps():
    """Oracle: the logistic function; the fifth-order weights with the controller taken out."""
    errors, start = [], torch.tensor([[0.1, 0.2], [0.3, 0.05]], dtype=torch.float64)
    for n in (20, 40):
        z = start
        for k in range(n):
            tau, h = torch.full((2,), k / n, dtype=torch.float64), torch.full((2,), 1 / n, dtype=torch.float64)
            ks = stages(lambda z, _: 6 * z * (1 - z), z, tau, h, DOPRI5, 1.0)
            z = z + combine(h, DOPRI5.weights, ks)
        errors.append((z - 1 / (1 + (1 / start - 1) * math.exp(-6))).abs().max().item())
    assert abs(math.log2(errors[0] / errors[1]) - 5) < 0.3


@pytest.mark.parametrize("rtol", [1e-3, 1e-5, 1e-7, 1e-9])
def test_dopri5_keeps_its_tolerance(rtol):
    """Oracle: closed form; the global error stays within 10 times the tolerance per step."""
    solution = lwd.solve(swing, START, rtol=rtol, atol=rtol)
    assert (solution.z - swung(START)).abs().max() < 10 * rtol


def test_tableaus_satisfy_their_order_conditions():
    """Oracle: sum b = 1, row sums = c, sum b c = 1/2, sum b c^2 = 1/3 and so on; the error weights sum to 0."""
    for tableau, p in [(FIXED[name], p) for name, p in ORDERS.items() if name in FIXED] + [(DOPRI5, 5)]:
        for node, row in zip(tableau.nodes, tableau.stages, strict=True):
            assert_close(math.fsum(row), float(node), atol=1e-14, rtol=0)
        for q in range(1, p + 1):
            moment = math.fsum(b * c ** (q - 1) for b, c in zip(tableau.weights, tableau.nodes, strict=True))
            assert_close(moment, 1 / q, atol=1e-14, rtol=0)
    for q in range(1, 5):
        moment = math.fsum(e * c ** (q - 1) for e, c in zip(DOPRI5.error, DOPRI5.nodes, strict=True))
        assert_close(moment, 0.0, atol=1e-14, rtol=0)
    assert DOPRI5.stages[-1] == DOPRI5.weights[:-1]


@pytest.mark.parametrize(
    "options", [{"method": m, "steps": 7} for m in ORDERS] + [{"adaptive": "batch"}, {"adaptive": "sample"}]
)
def test_the_field_is_never_asked_outside_its_piece(options):
    """Oracle: every tau that reaches the field; [0, 1] always, and the left limit at a breakpoint."""
    seen = []

    def field(z, tau):
        assert tau.dtype == torch.float64
        assert tau.shape == (2,)
        seen.append(tau.clone())
        return kinked(z, tau)

    solution = lwd.solve(field, START, breakpoints=(0.4,), **options)
    times = torch.cat(seen)
    assert times.min() == 0
    assert times.max() <= 1
    assert solution.nfe == len(seen)
    before = torch.cat([tau for tau in seen if (tau < 0.4).all()])
    assert before.max() < 0.4  # never 0.4 itself while integrating up to it
    if options.get("method", "dopri5") in ("rk4", "dopri5"):
        assert_close(solution.z, START * math.exp(0.2 + 1.8), rtol=2e-2, atol=0)


def test_statistics_count_what_happened():
    """Oracle: dopri5 costs 2 evaluations to begin and 6 for each try; fixed methods stages x steps."""
    solution = lwd.solve(swing, START, rtol=1e-8)
    assert solution.nfe == 2 + 6 * (solution.accepted + solution.rejected)
    assert (solution.accepted_per_sample == solution.accepted).all()
    assert lwd.solve(swing, START, "rk4", steps=9).nfe == 36
    assert "nfe=36" in repr(lwd.solve(swing, START, "rk4", steps=9))


def test_per_sample_control_does_not_see_the_rest_of_the_batch():
    """Oracle: a sample alone and in three different companies, bit for bit; the companions need far smaller steps."""

    def field(z, tau):
        return torch.stack([z[:, 1], -z[:, 2].square() * z[:, 0], torch.zeros_like(tau)], 1) * (1 + tau[:, None])

    mine = torch.tensor([[1.0, 0.2, 2.0]], dtype=torch.float64)
    fast = torch.tensor([[0.5, -3.0, 40.0], [9.0, 0.0, 25.0]], dtype=torch.float64)
    alone = lwd.solve(field, mine, adaptive="sample")
    for company, row in ((torch.cat([mine, fast]), 0), (torch.cat([fast, mine]), 2), (torch.cat([mine, mine]), 1)):
        together = lwd.solve(field, company, adaptive="sample")
        assert torch.equal(together.z[row], alone.z[0])
        assert together.accepted_per_sample[row] == alone.accepted
        assert together.rejected_per_sample[row] == alone.rejected
    together = lwd.solve(field, torch.cat([mine, fast]), adaptive="batch")
    assert not torch.equal(together.z[0], alone.z[0])
    assert together.accepted > 3 * alone.accepted


@settings(max_examples=2)
@given(schedules(groups=2, limit=4.0))
def test_batch_and_sample_control_agree(schedule):
    """Oracle: one flow of a mixture by two rules for the step size, at tight tolerance."""
    controls_agree(schedule)


@pytest.mark.slow
@given(schedules(groups=2, limit=4.0))
def test_batch_and_sample_control_agree_on_many_schedules(schedule):
    """Oracle: as above."""
    controls_agree(schedule)


def controls_agree(schedule):
    data = small_mixture()
    label = torch.zeros(3, dtype=torch.int64)
    noise = lwd.seeded_noise(range(3), (3, 1, 1)).double()
    field = torch.no_grad()(lwd.flow_field(data, schedule, data.layout, label))
    results = [
        lwd.solve(field, noise, breakpoints=schedule.breakpoints, rtol=1e-8, atol=1e-9, adaptive=mode).z
        for mode in ("batch", "sample")
    ]
    assert_close(results[0], results[1], atol=1e-6, rtol=0)


@given(st.integers(1, 60), st.sets(st.floats(0.01, 0.99), max_size=4))
def test_the_grid_has_exactly_the_steps_asked_for_and_stops_at_every_edge(steps, inner):
    """Oracle: counting; and every step begins where the one before ended (points within 1e-12 are one kink)."""
    pieces = cut(tuple(inner))
    if steps < len(pieces):
        with pytest.raises(lwd.InputError, match=says(steps, len(pieces) - 1)):
            step_grid(steps, pieces)
        return
    grid = step_grid(steps, pieces)
    assert len(grid) == steps
    assert {piece.end for piece in pieces} <= {step.end for step in grid}
    assert (grid[0].start, grid[-1].end) == (0.0, 1.0)
    for before, after in pairwise(grid):
        assert 0 <= after.start - before.end <= 1e-12
        assert before.start < before.last <= before.end


@pytest.mark.parametrize(
    "options", [{"method": "rk4", "steps": 60}, {"rtol": 1e-6}, {"rtol": 1e-6, "adaptive": "sample"}]
)
def test_two_jumps_one_rounding_apart_are_one_kink(options):
    """Oracle: exp of the integrated rate, which jumps at 0.4 and again at the next float."""
    second = math.nextafter(0.4, 1)

    def field(z, tau):
        return z * torch.where(tau < 0.4, 0.5, torch.where(tau < second, 50.0, 3.0))[:, None]

    for points in ((0.4, second), (second, 0.4)):
        solution = lwd.solve(field, START, breakpoints=points, **options)
        assert_close(solution.z, START * math.exp(0.2 + 1.8), rtol=1e-5, atol=1e-9)


def test_short_pieces_do_not_shrink_the_steps_after_them():
    """Oracle: the count of evaluations with one kink, plus one more piece's worth."""

    def field(z, tau):
        return z * torch.where(tau < 0.5, 1.0, 2.0)[:, None]

    one = lwd.solve(field, START, breakpoints=(0.5,)).nfe
    assert lwd.solve(field, START, breakpoints=(0.5, 0.5 + 1e-9)).nfe <= one + 7


@pytest.mark.parametrize("adaptive", ["batch", "sample"])
def test_gradients_flow_through_the_steps_and_not_through_their_size(adaptive):
    """Oracle: z' = -z^3 cos(5 tau) gives d z(1) / d z(0) = (z(1) / z(0))^3, sample by sample."""
    start = torch.tensor([[1.3], [0.2]], dtype=torch.float64, requires_grad=True)
    end = lwd.solve(lambda z, tau: -(z**3) * torch.cos(5 * tau)[:, None], start, rtol=1e-8, adaptive=adaptive).z
    (grad,) = torch.autograd.grad(end[0].sum(), start)
    assert_close(grad[0], (end[0] / start[0]).detach() ** 3, rtol=1e-5, atol=0)
    assert grad[1] == 0


def test_the_default_tolerances_are_the_papers():
    """Oracle: atol 1e-6 and rtol 1e-3 given by hand, bit for bit."""
    solution = lwd.solve(swing, START)
    assert torch.equal(solution.z, lwd.solve(swing, START, "dopri5", atol=1e-6, rtol=1e-3, adaptive="batch").z)
    assert not torch.equal(solution.z, lwd.solve(swing, START, rtol=1e-2).z)


def test_time_does_not_drift():
    """Oracle: a field that returns tau; 250 Euler steps of float32 state still end at the exact sum."""
    z = torch.zeros(1, 1)
    seen = []
    lwd.solve(lambda z, tau: (seen.append(tau.item()), torch.zeros_like(z))[1], z, "euler", steps=250)
    assert seen == [k / 250 for k in range(250)]


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"method": "dopri"}, ("dopri", "dopri5")),
        ({"method": "euler"}, ("euler", "steps")),
        ({"method": "euler", "steps": 0}, ("steps", 0)),
        ({"method": "euler", "steps": 2.5}, ("steps", 2.5)),
        ({"method": "euler", "steps": 5, "rtol": 1e-3}, ("rtol", "euler")),
        ({"method": "heun", "steps": 5, "adaptive": "sample"}, ("adaptive", "heun")),
        ({"steps": 250}, ("steps", "dopri5")),
        ({"method": "euler", "steps": 1, "breakpoints": (0.5,)}, ("breakpoints", "steps=1")),
        ({"breakpoints": (0.0,)}, ("breakpoints", "0.0")),
        ({"breakpoints": (float("nan"),)}, ("breakpoints", "nan")),
        ({"rtol": -1.0}, ("rtol", "-1.0")),
        ({"atol": 0.0}, ("atol", "0.0")),
        ({"max_nfe": 0}, ("max_nfe", 0)),
        ({"adaptive": "both"}, ("both", "batch", "sample")),
    ],
)
def test_bad_settings_are_refused_with_a_sentence(options, facts):
    with pytest.raises(lwd.InputError, match=says(facts)):
        lwd.solve(swing, START, **options)


def test_what_cannot_be_integrated_says_where_and_why():
    with pytest.raises(lwd.SolveError, match=r"max_nfe\D*20\b.*tau\D*0\.\d+"):
        lwd.solve(lambda z, tau: 500 * torch.cos(300 * tau)[:, None] * z, START, max_nfe=20)
    with pytest.raises(lwd.SolveError, match=r"tau\D*0\b"):
        lwd.solve(lambda z, _: z * torch.nan, START)
    with pytest.raises(lwd.SolveError, match=r"tau\D*0\.5\b"):
        lwd.solve(lambda z, tau: z / (tau < 0.5)[:, None], START)
    with pytest.raises(lwd.SolveError, match=says("euler", 10)):
        lwd.solve(lambda z, tau: z / (tau < 0.5)[:, None], START, "euler", steps=10)
    with pytest.raises(lwd.InputError, match=says("batch")):
        lwd.solve(swing, START[:0])
    with pytest.raises(lwd.InputError, match=says("(1, 2)", "(2, 2)")):
        lwd.solve(lambda z, _: z[:1], START)


def test_the_multistep_method_asks_once_per_step_and_is_exact_on_straight_slopes():
    """Oracle: z' = 2 tau has a quadratic solution, which order 2 hits exactly, with unequal steps around a kink."""
    solution = lwd.solve(lambda z, tau: (2 * tau)[:, None].expand_as(z), START, "ab2", steps=7, breakpoints=(0.3,))
    assert_close(solution.z, START + 1, atol=1e-14, rtol=0)
    assert solution.nfe == 7 + 2  # a Heun step at the beginning of each piece


def test_abm_predicts_and_corrects_with_the_classical_coefficients():
    """Oracle: Adams-Bashforth 55, -59, 37, -9 and Adams-Moulton 9, 19, -5, 1 (over 24), once there are four slopes."""
    states, slopes, h = [], [], 1 / 9

    def field(z, tau):
        states.append(z)
        slopes.append(swing(z, tau))
        return slopes[-1]

    solution = lwd.solve(field, START, "abm", steps=9)
    assert solution.nfe == 9 + 1
    del states[1], slopes[1]  # the second stage of the first step
    states.append(solution.z)

    def total(weights, last):
        return h / 24 * sum(weight * slopes[last - i] for i, weight in enumerate(weights))

    corrected = states[4] - total((55, -59, 37, -9), 3)
    for k in range(4, 9):
        corrected = corrected + total((9, 19, -5, 1), k)
        assert_close(states[k + 1], corrected + total((55, -59, 37, -9), k), atol=1e-13, rtol=0)


def test_abm_corrects_no_step_that_ends_at_a_kink_and_is_more_accurate_than_ab3():
    """Oracle: the closed form, with the same evaluations."""
    kink, errors = 0.4, {}
    for method in ("ab3", "abm"):
        solution = lwd.solve(kinked, START, method, steps=20, breakpoints=(kink,))
        errors[method] = (solution.z - START * math.exp(0.5 * kink + 3 * (1 - kink))).abs().max()
        assert solution.nfe == 20 + 2
    assert errors["abm"] < 0.1 * errors["ab3"]
