"""The stochastic sampler against exact distributions: scores, covariances, orders, the same samples in any batch."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import lwd
from lwd.sampling.diffusion import COEFFICIENTS, Coefficient, LastStep
from lwd.sampling.sde import ReverseSDE, integrate, sde_steps, step_noise
from messages import says
from strategies import random_gaussian, scalar_pair, small_mixture

LAYOUT = lwd.Layout.of(texture=2, semantic=1)
SCHEDULES = {
    "synchronous": lwd.Synchronous(),
    "offset": lwd.Offset(0.3),
    "cascade": lwd.Cascade(),
    "polynomial": lwd.Polynomial([[0.0, 1, 0, 0, 2]]),
}
SIT = "mean:0.04"


def reverse(data, schedule, diffusion="sigma", last="ode:0.04", count=1):
    """The SDE of exact data under `schedule`, for `count` rows of class 0."""
    label = torch.zeros(count, dtype=torch.int64)
    coefficients = tuple(Coefficient.parse(diffusion) for _ in data.layout)
    return ReverseSDE(data, schedule, data.layout, label, coefficients, LastStep.parse(last))


def covariance(data, schedule, method, grid, diffusion="sigma", last="ode:0.04"):
    """Covariance of the result without Monte Carlo: for centred Gaussian data every step is linear in state and noise.

    Row i of the batch starts at a unit vector without noise, or at 0 with unit noise in one coordinate of one step.
    """
    d = data.layout.channels
    steps = grid if isinstance(grid, int) else len(grid) + len(schedule.breakpoints) + len(data.layout)
    rows = d * (1 + steps)
    sde = reverse(data, schedule, diffusion, last, rows)
    asked = {"steps": grid} if isinstance(grid, int) else {"grid": grid}
    taken = sde_steps(sde, schedule.breakpoints, method, **asked)
    assert len(taken) <= steps
    units = torch.eye(rows, dtype=torch.float64).reshape(rows, 1 + steps, d, 1, 1)
    with torch.no_grad():
        end = integrate(sde, units[:, 0], taken, method, lambda k: units[:, 1 + k]).z.flatten(1)
    return end.T @ end


def fine_grid(sde_part, n):
    """n steps to tau = `sde_part` and n / 4 after it."""
    return [k / n * sde_part for k in range(n)] + [sde_part + (1 - sde_part) * k / (n // 4) for k in range(n // 4 + 1)]


def slope(sizes, errors):
    """Regression of log error on log step size."""
    return float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])


@pytest.mark.parametrize("data", [random_gaussian(("texture", "semantic"), seed=1), small_mixture([0, 1, 1])])
def test_the_score_is_the_gradient_of_the_density(data):
    """Oracle: autograd of the exact log-density at independent local times, to 1e-10; t = 0 and 0.999 included."""
    draw = torch.Generator().manual_seed(0)
    times = torch.rand(6, 2, dtype=torch.float64, generator=draw)
    times[0], times[1] = torch.tensor([0.0, 0.6]), torch.tensor([0.4, 0.999])
    z = torch.randn(6, data.layout.channels, 1, 1, dtype=torch.float64, generator=draw).requires_grad_()
    label = torch.arange(6) % (data.classes + 1)
    (exact,) = torch.autograd.grad(data.log_density(z, times, label).sum(), z)
    found = lwd.score(data(z, times, label), z, times, data.layout)
    assert_close(found, exact, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("diffusion", [*COEFFICIENTS, "constant:0.3", "sigma:2"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_coefficient_and_schedule_reaches_the_covariance_of_the_data(name, diffusion):
    """Oracle: S itself, by exact propagation; the noise-free end is 0.01 of local time."""
    data = scalar_pair(0.6)
    found = covariance(data, SCHEDULES[name], "sde-heun", 100, diffusion, "ode:0.01")
    assert_close(found, data.covariances[0], atol=1e-3, rtol=0)


@pytest.mark.parametrize(("method", "order"), [("euler-maruyama", 1), ("sde-heun", 2)])
@pytest.mark.parametrize("name", SCHEDULES)
def test_weak_order(name, method, order):
    """Oracle: S, by exact propagation with 32 to 128 steps; the noise-free end is divided as finely as the rest."""
    data, schedule = scalar_pair(0.6), SCHEDULES[name]
    counts = (32, 64, 128)
    start = float(schedule.tau_of("texture", 0.8).detach())
    errors = [
        (covariance(data, schedule, method, fine_grid(start, n), "sigma", "ode:0.2") - data.covariances[0]).abs().max()
        for n in counts
    ]
    assert abs(slope([1 / n for n in counts], errors) - order) < 0.2, errors


def test_sits_heun_is_not_of_second_order():
    """Control for the test above: noise first and then Heun's step, as in SiT, on unit data; the variance by hand."""

    def error(n):
        variance, h = 1.0, 0.8 / n
        for t in (0.8 * k / n for k in range(n)):
            # Drift v + (1 - t) score = a z with v = (2t - 1) z / V and score = -z / V, V = t^2 + (1 - t)^2.
            a, b = ((3 * s - 2) / (s * s + (1 - s) ** 2) for s in (t, t + h))
            variance = (1 + h / 2 * (a + b * (1 + h * a))) ** 2 * (variance + 2 * (1 - t) * h)
        return abs(variance - 0.68)

    counts = (32, 64, 128)
    assert abs(slope([1 / n for n in counts], [error(n) for n in counts]) - 1) < 0.2


@pytest.mark.parametrize("method", ["euler-maruyama", "sde-heun"])
def test_strong_order_is_one(method):
    """Oracle: the same Brownian paths with 512 steps, 200 of them. D depends on tau alone: Euler-Maruyama has 1."""
    data, fine, rows = scalar_pair(0.6), 512, 200
    draw = torch.Generator().manual_seed(0)
    white = torch.randn(fine, rows, 2, 1, 1, dtype=torch.float64, generator=draw)
    z = torch.randn(rows, 2, 1, 1, dtype=torch.float64, generator=draw)
    sde = reverse(data, lwd.Synchronous(), "sigma", "ode:0.2", rows)

    def state(n):
        """Up to the end of the noise at 0.8, with the fine path's increments added up."""
        steps = sde_steps(sde, (), method, grid=[*(0.8 * k / n for k in range(n)), 0.8, 1.0])[:-1]
        assert len(steps) == n
        width = fine // n
        return integrate(sde, z, steps, method, lambda k: white[k * width : (k + 1) * width].sum(0) / width**0.5).z

    truth = state(fine)
    counts = (8, 16, 32, 64)
    errors = [(state(n) - truth).square().mean().sqrt() for n in counts]
    assert 0.85 < slope([1 / n for n in counts], errors) < 1.3, errors


@pytest.mark.parametrize("diffusion", ["sigma", "increasing-decreasing"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_mixtures_keep_their_moments(name, diffusion):
    """Oracle: mean and covariance of the mixture, within 5 standard errors of 2000 samples and 0.01 for the steps."""
    data, count, draw = small_mixture(), 2000, torch.Generator().manual_seed(1)
    sde = reverse(data, SCHEDULES[name], diffusion, "ode:0.04", count)
    steps = sde_steps(sde, SCHEDULES[name].breakpoints, "sde-heun", steps=40)

    def white(_=0):
        return torch.randn(count, 3, 1, 1, dtype=torch.float64, generator=draw)

    with torch.no_grad():
        z = integrate(sde, white(), steps, "sde-heun", white).z.flatten(1)
    mean = (data.weights[:, None] * data.means).sum(0)
    second = data.covariances + data.means[:, :, None] * data.means[:, None, :]
    assert_close(z.mean(0), mean, atol=0.01 + 5 * 1.2 / count**0.5, rtol=0)
    expected = (data.weights[:, None, None] * second).sum(0) - mean[:, None] * mean
    assert_close(z.T.cov(), expected, atol=0.01 + 5 * 2.5 / count**0.5, rtol=0)


@pytest.mark.parametrize(("method", "plain"), [("euler-maruyama", "euler"), ("sde-heun", "heun")])
@pytest.mark.parametrize("name", SCHEDULES)
def test_without_diffusion_it_is_the_ode_bit_for_bit(name, method, plain):
    """Oracle: `lwd.sample` with the ODE method and the same steps, in float32, plain and guided."""
    data = small_mixture([0, 1, 1])
    guided = lwd.ClassifierFree(data, data.null_label, {"texture": 2.0}, LAYOUT, interval={"texture": (0.2, 0.7)})
    for velocity in (data, guided):
        options = {"seeds": range(5), "labels": [0, 1, 1, 0, 1], "size": (1, 1), "steps": 9}
        ours = lwd.sample_sde(velocity, SCHEDULES[name], LAYOUT, method=method, diffusion="none", **options)
        ode = lwd.sample(velocity, SCHEDULES[name], LAYOUT, method=plain, **options)
        assert torch.equal(ours.z, ode.z)
        assert ours.nfe == ode.nfe


def test_it_is_sits_sampler():
    """Oracle: SiT's loop (transport/integrators.py, Euler, form sigma, last step Mean of 0.04) written out."""
    layout = lwd.Layout.of(image=3)
    data = lwd.Gaussian(layout, random_gaussian(("a",), channels=3, seed=4).covariances[0])
    seeds, n, last = [3, 8], 25, 0.04
    label = torch.zeros(2, dtype=torch.int64)
    run = {"seeds": seeds, "size": (1, 1), "dtype": torch.float64, "steps": n}
    ours = lwd.sample_sde(data, lwd.Synchronous(("image",)), layout, **run)
    x = lwd.seeded_noise(seeds, (3, 1, 1)).double()
    clock = torch.linspace(0, 1 - last, n, dtype=torch.float64)
    dt = clock[1] - clock[0]

    def drift(x, t):
        v = data(x, t.expand(2, 1), label)
        return v + (1 - t) * (t * v - x) / ((1 - t) ** 2 + t * (1 - t))

    for k, t in enumerate(clock[:-1]):
        x = x + drift(x, t) * dt + (2 * (1 - t)).sqrt() * dt.sqrt() * step_noise(seeds, k, (3, 1, 1)).double()
    x = x + drift(x, clock[-1]) * last
    assert_close(ours.z, x, atol=1e-12, rtol=0)
    assert ours.nfe == n


@pytest.mark.parametrize(("kind", "factor"), [("ode", 1), ("mean", 3)])
def test_what_the_last_step_costs(kind, factor):
    """Oracle: by hand, to leading order in its size h: the variance of unit data falls by h^2 (ode) or 3 h^2 (mean).

    The last two of many steps, from the exact variance t^2 + (1 - t)^2 in one row and unit noise in the other.
    """
    data = lwd.Gaussian(lwd.Layout.of(image=1), torch.eye(1))
    for h in (0.01, 0.02, 0.04):
        sde = reverse(data, lwd.Synchronous(("image",)), "sigma", f"{kind}:{h}", 2)
        steps = sde_steps(sde, (), "euler-maruyama", steps=10_000)[-2:]
        t = steps[0].start
        z = torch.tensor([math.hypot(t, 1 - t), 0.0], dtype=torch.float64).reshape(2, 1, 1, 1)
        unit = torch.tensor([0.0, 1.0], dtype=torch.float64).reshape(2, 1, 1, 1)
        end = integrate(sde, z, steps, "euler-maruyama", lambda _, unit=unit: unit).z
        assert_close(1 - float(end.square().sum()), factor * h**2, rtol=4 * h, atol=0)


def test_a_group_that_stands_still_is_not_touched():
    """Oracle: under the cascade texture keeps its noise, bit for bit, until semantic has arrived, and then the reverse.

    The velocity is NaN for a group at the ends of its clock, where nobody may ask for its score.
    """

    def velocity(z, times, label):  # noqa: ARG001
        t = LAYOUT.expand(times)
        return torch.where((t == 1), torch.nan, 0.5 - z)

    sde = ReverseSDE(
        velocity,
        lwd.Cascade(),
        LAYOUT,
        torch.zeros(4, dtype=torch.int64),
        (Coefficient("constant"), Coefficient("constant")),
        LastStep(),
    )
    start = lwd.seeded_noise(range(4), (3, 2, 2))
    steps = sde_steps(sde, lwd.Cascade().breakpoints, "euler-maruyama", steps=12)
    states = {0.0: start}
    integrate(sde, start, steps, "euler-maruyama", lambda k: step_noise(range(4), k, (3, 2, 2)), states.__setitem__)
    assert all(z.isfinite().all() for z in states.values())
    for tau, z in states.items():
        if tau <= 0.5:
            assert torch.equal(z[:, :2], start[:, :2])
        else:
            assert torch.equal(z[:, 2:], states[0.5][:, 2:])
    assert not torch.equal(states[0.5][:, 2:], start[:, 2:])


def test_groups_have_their_own_coefficients():
    """Oracle: two independent scalars; semantic's is the ODE's own result where only texture has noise."""
    data = scalar_pair(0.0)
    run = {"seeds": range(6), "size": (1, 1), "dtype": torch.float64}
    mixed = lwd.sample_sde(data, lwd.Synchronous(), data.layout, diffusion={"texture": "constant:0.5"}, steps=40, **run)
    grid = [*(0.96 * k / 39 for k in range(40)), 1.0]
    ode = lwd.sample(data, lwd.Synchronous(), data.layout, method="euler", grid=grid, **run)
    assert_close(mixed.z[:, 1], ode.z[:, 1], atol=1e-12, rtol=0)
    assert (mixed.z[:, 0] - ode.z[:, 0]).abs().min() > 1e-3


@pytest.mark.parametrize("name", SCHEDULES)
def test_steps_stop_at_kinks_and_where_the_noise_of_a_group_ends(name):
    """Oracle: counting; tau of local time 1 - h for each group; after the last of these there is one step."""
    data, schedule = scalar_pair(), SCHEDULES[name]
    sde = reverse(data, schedule, "sigma", SIT)
    steps = sde_steps(sde, schedule.breakpoints, "euler-maruyama", steps=20)
    ends = [float(schedule.tau_of(group, 0.96).detach()) for group in schedule.groups]
    stops = [step.end for step in steps]
    assert len(steps) == 20
    for point in (*schedule.breakpoints, *ends):
        assert min(abs(point - stop) for stop in stops) < 1e-12
    assert steps[-1].start == pytest.approx(max(ends), abs=1e-12)
    for before, after in itertools.pairwise(steps):
        assert abs(before.end - after.start) < 1e-12
    given = sde_steps(sde, schedule.breakpoints, "sde-heun", grid=(0, 0.3, 0.99, 1))
    assert {0.3, 0.99, 1.0} <= {step.end for step in given}


def test_the_network_is_asked_for_scores_before_one():
    """Oracle: every local time with a score in it, by a coefficient that notes them; the velocity itself may see 1."""
    seen = []

    class Noted(Coefficient):
        def __call__(self, t):
            seen.append(t.detach())
            return super().__call__(t)

    data = scalar_pair()
    for schedule, method in itertools.product(SCHEDULES.values(), ("euler-maruyama", "sde-heun")):
        sde = ReverseSDE(
            data, schedule, data.layout, torch.zeros(1, dtype=torch.int64),
            (Noted("constant"), Noted("constant")), LastStep("mean", 0.1),
        )  # fmt: skip
        steps = sde_steps(sde, schedule.breakpoints, method, steps=12)
        integrate(sde, torch.zeros(1, 2, 1, 1), steps, method, lambda _: torch.zeros(1, 2, 1, 1))
    assert max(float(t.max()) for t in seen) <= 0.9 + 1e-9


def test_noise_is_a_function_of_seed_and_step_alone():
    """Oracle: equality across batch and order; no two of 2000 (seed, step) alike; mean and deviation of a normal."""
    three = step_noise([3, 2**62, 3], 5, (2, 2, 2))
    assert torch.equal(three[0], three[2])
    assert torch.equal(step_noise([2**62], 5, (2, 2, 2))[0], three[1])
    many = torch.stack([step_noise(range(100), k, (3, 2, 2)) for k in range(20)]).reshape(2000, -1)
    assert len({tuple(row) for row in many.tolist()}) == 2000
    assert not torch.equal(step_noise([0], 0, (2, 2, 2)), lwd.seeded_noise([0], (2, 2, 2)))
    assert not torch.equal(step_noise([0], 1, (2, 2, 2)), step_noise([1], 0, (2, 2, 2)))
    assert abs(float(many.mean())) < 5 / many.numel() ** 0.5
    assert abs(float(many.std()) - 1) < 5 / many.numel() ** 0.5


@pytest.mark.parametrize("method", ["euler-maruyama", "sde-heun"])
def test_a_sample_is_a_function_of_its_seed_and_label(method):
    """Oracle: the same seeds one by one, reversed and together. The exact velocity is batched algebra: to rounding."""
    data = small_mixture([0, 1, 1])
    settings = {"size": (1, 1), "dtype": torch.float64, "method": method, "steps": 12}
    seeds, labels = [5, 9, 2], [0, 1, 2]
    together = lwd.sample_sde(data, lwd.Offset(0.3), LAYOUT, seeds=seeds, labels=labels, **settings).z
    backwards = lwd.sample_sde(data, lwd.Offset(0.3), LAYOUT, seeds=seeds[::-1], labels=labels[::-1], **settings).z
    assert_close(backwards.flip(0), together, atol=1e-12, rtol=0)
    for row in range(3):
        alone = lwd.sample_sde(data, lwd.Offset(0.3), LAYOUT, seeds=[seeds[row]], labels=labels[row], **settings)
        assert_close(alone.z[0], together[row], atol=1e-12, rtol=0)
        assert len(alone.z) == len(alone.nfe_per_sample) == 1


def test_coefficients_by_hand():
    """Oracle: SiT's forms at t = 0, 1/2 and 1, with their scale."""
    t = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    for text, expected in (
        ("none", (0, 0, 0)),
        ("constant:0.5", (0.5, 0.5, 0.5)),
        ("sigma", (1, 0.5, 0)),
        ("sigma:2", (2, 1, 0)),
        ("decreasing", (1, 0.25, 0)),
        ("increasing-decreasing", (0, 1, 0)),
    ):
        assert_close(Coefficient.parse(text)(t), torch.tensor(expected, dtype=torch.float64), atol=1e-15, rtol=0)


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"method": "euler"}, ("euler", "euler-maruyama", "sde-heun")),
        ({"steps": None}, ("euler-maruyama", "steps")),
        ({"steps": 0}, ("steps", 0)),
        ({"steps": 2}, ("steps=2", "breakpoints")),
        ({"grid": (0, 1)}, ("steps", "grid")),
        ({"rtol": 1e-3}, ("rtol", "diffusion", "last_step")),
        ({"diffusion": "sgima"}, ("sgima", "sigma")),
        ({"diffusion": "SBDM"}, ("SBDM", "sigma")),
        ({"diffusion": "sigma:-1"}, "sigma:-1"),
        ({"diffusion": "sigma:nan"}, "sigma:nan"),
        ({"diffusion": "sigma:much"}, "sigma:much"),
        ({"diffusion": "none:2"}, "none:2"),
        ({"diffusion": {"depth": "sigma"}}, ("depth", "texture", "semantic")),
        ({"diffusion": 3}, 3),
        ({"last_step": "mean:0"}, "mean:0"),
        ({"last_step": "mean:1"}, "mean:1"),
        ({"last_step": "tweedie"}, ("tweedie", "mean", "ode")),
        ({"seeds": []}, "seed"),
        ({"seeds": [-1]}, ("seed", -1)),
        ({"seeds": [1.5]}, ("seed", 1.5)),
    ],
)
def test_what_does_not_fit_is_refused(options, facts):
    data = small_mixture()
    with pytest.raises(lwd.InputError, match=says(facts)):
        lwd.sample_sde(data, lwd.Offset(0.3), LAYOUT, **{"seeds": [0], "size": (1, 1), "steps": 9} | options)


def test_other_groups_and_infinite_states_are_refused():
    data = small_mixture()
    with pytest.raises(lwd.InputError, match=says("semantic, texture", "texture, semantic")):
        lwd.sample_sde(data, lwd.Offset(0.3, ("semantic", "texture")), LAYOUT, seeds=[0], steps=9)
    with pytest.raises(lwd.SolveError, match=says("euler-maruyama", 9)):
        lwd.sample_sde(lambda z, *_: z * math.nan, lwd.Offset(0.3), LAYOUT, seeds=[0], size=(1, 1), steps=9)
