"""The stochastic sampler against exact distributions: scores, covariances, orders of convergence."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import lwd
from lwd.sampling.diffusion import COEFFICIENTS
from lwd.sampling.sde import integrate, sde_steps, step_noise
from sampling.exact_sde import LAYOUT, SCHEDULES, reverse
from strategies import random_gaussian, scalar_pair, small_mixture

SLOW = pytest.mark.slow


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


FORMS = (*COEFFICIENTS, "constant:0.3", "sigma:2")
EVERY = [
    pytest.param(name, form, marks=[] if (name == "offset" and ":" not in form) or form == "sigma" else SLOW)
    for name, form in itertools.product(SCHEDULES, FORMS)
]


@pytest.mark.parametrize(("name", "diffusion"), EVERY)
def test_every_coefficient_and_schedule_reaches_the_covariance_of_the_data(name, diffusion):
    """Oracle: S itself, by exact propagation; the noise-free end is 0.01 of local time."""
    data = scalar_pair(0.6)
    found = covariance(data, SCHEDULES[name], "sde-heun", 100, diffusion, "ode:0.01")
    assert_close(found, data.covariances[0], atol=1e-3, rtol=0)


@pytest.mark.parametrize(("method", "order"), [("euler-maruyama", 1), ("sde-heun", 2)])
@pytest.mark.parametrize("name", [name if name == "offset" else pytest.param(name, marks=SLOW) for name in SCHEDULES])
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
    """Oracle: the same Brownian paths with 256 steps, 100 of them. D depends on tau alone: Euler-Maruyama has 1."""
    data, fine, rows = scalar_pair(0.6), 256, 100
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
    counts = (8, 16, 32)
    errors = [(state(n) - truth).square().mean().sqrt() for n in counts]
    assert 0.85 < slope([1 / n for n in counts], errors) < 1.3, errors


@pytest.mark.parametrize("diffusion", ["sigma", pytest.param("increasing-decreasing", marks=SLOW)])
@pytest.mark.parametrize("name", [name if name == "cascade" else pytest.param(name, marks=SLOW) for name in SCHEDULES])
def test_mixtures_keep_their_moments(name, diffusion):
    """Oracle: mean and covariance of the mixture, within 5 standard errors of 1000 samples and 0.01 for the steps."""
    data, count, draw = small_mixture(), 1000, torch.Generator().manual_seed(1)
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
        steps = sde_steps(sde, (), "euler-maruyama", steps=2000)[-2:]
        t = steps[0].start
        z = torch.tensor([math.hypot(t, 1 - t), 0.0], dtype=torch.float64).reshape(2, 1, 1, 1)
        unit = torch.tensor([0.0, 1.0], dtype=torch.float64).reshape(2, 1, 1, 1)
        end = integrate(sde, z, steps, "euler-maruyama", lambda _, unit=unit: unit).z
        assert_close(1 - float(end.square().sum()), factor * h**2, rtol=4 * h, atol=0)
