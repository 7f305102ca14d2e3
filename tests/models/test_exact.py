"""The oracles themselves, each against something that does not share their algebra."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal
from torch.testing import assert_close

import lwd
from messages import says
from strategies import NAMES, random_gaussian, scalar_pair, schedules, small_mixture

open_unit = st.floats(0.05, 0.95)


def states(data, count, seed=1):
    return torch.randn(
        count, data.layout.channels, 1, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


def labels_of(data, count):
    return torch.arange(count) % (data.classes + 1)


@given(st.integers(1, 4), st.data())
def test_score_identity_theorem_1_iii(groups, draw):
    """Oracle: v_g = z_g / t_g + (1 - t_g) / t_g * score_g, with the score by autograd of the density (<= 1e-8)."""
    data = random_gaussian(NAMES[:groups], seed=groups) if draw.draw(st.booleans()) else small_mixture([0, 1, 1])
    n = len(data.layout)
    times = torch.tensor([[draw.draw(open_unit) for _ in range(n)] for _ in range(3)], dtype=torch.float64)
    z, label = states(data, 3).requires_grad_(), labels_of(data, 3)
    (score,) = torch.autograd.grad(data.log_density(z, times, label).sum(), z)
    t = data.layout.expand(times)
    assert_close(data(z, times, label), z / t + (1 - t) / t * score, atol=1e-8, rtol=1e-8)


def test_interpolating_density_theorem_1_i():
    """Oracle: torch.distributions' mixture with means A m and covariances A S A + B^2, by class and overall."""
    data = small_mixture([0, 1, 1])
    z, times = states(data, 6), torch.rand(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    for label, members in ((0, [0]), (1, [1, 2]), (2, [0, 1, 2])):
        density = data.log_density(z, times, torch.full((6,), label))
        for row in range(6):
            a = torch.diag(torch.tensor([times[row, 0], times[row, 0], times[row, 1]]))
            b = torch.eye(3, dtype=torch.float64) - a
            parts = MultivariateNormal(data.means[members] @ a, a @ data.covariances[members] @ a + b @ b)
            mixture = MixtureSameFamily(Categorical(data.weights[members]), parts)
            assert_close(density[row], mixture.log_prob(z[row].flatten()))


def test_interpolated_samples_have_the_density_theorem_1_i():
    """Oracle: moments of A x1 + B x0 over 200,000 drawn pairs, within 5 standard errors."""
    data = random_gaussian(("texture", "semantic"), seed=5)
    x1, _ = data.draw(200_000, seed=3)
    x0 = torch.randn(x1.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    times = torch.tensor([[0.3, 0.8]], dtype=torch.float64).expand(len(x1), 2)
    z = lwd.interpolate(x1, x0, times, data.layout)[0].flatten(1)
    a = torch.diag(torch.tensor([0.3, 0.3, 0.8, 0.8], dtype=torch.float64))
    b = torch.eye(4, dtype=torch.float64) - a
    assert_close(z.T.cov(), a @ data.covariances[0] @ a + b @ b, atol=5 * 3 / 200_000**0.5, rtol=0)
    assert_close(z.mean(0), torch.zeros(4, dtype=torch.float64), atol=5 * 2 / 200_000**0.5, rtol=0)


@settings(max_examples=3)
@given(schedules(limit=6.0))
def test_any_schedule_transports_noise_to_the_data_covariance_theorem_1_ii(schedule):
    """Oracle: for N(0, S) data the flow's transition matrix satisfies Phi Phi^T = S (<= 1e-6)."""
    transports(schedule)


@pytest.mark.slow
@given(schedules(limit=6.0))
def test_many_schedules_transport_noise_to_the_data_covariance_theorem_1_ii(schedule):
    """Oracle: as above."""
    transports(schedule)


def transports(schedule):
    data = random_gaussian(schedule.groups, seed=len(schedule.groups))
    d = data.layout.channels
    field = lwd.flow_field(data, schedule, data.layout, torch.zeros(d, dtype=torch.int64))
    with torch.no_grad():
        solution = lwd.solve(
            field, torch.eye(d, dtype=torch.float64)[..., None, None], breakpoints=schedule.breakpoints,
            rtol=1e-9, atol=1e-11, max_nfe=100_000,
        )  # fmt: skip
    phi = solution.z.flatten(1).T  # the field is linear: row i of the batch is Phi e_i
    assert_close(phi @ phi.T, data.covariances[0], atol=1e-6, rtol=0)


def test_least_squares_on_samples_approaches_the_velocity_theorem_2():
    """Oracle: the coefficients of a linear denoiser fitted to (z, target) pairs; error falls as 1 / sqrt(n)."""
    data = random_gaussian(("texture", "semantic"), seed=6)
    times = torch.tensor([[0.35, 0.7]], dtype=torch.float64)
    eye = torch.eye(4, dtype=torch.float64)[..., None, None]
    exact = data(eye, times.expand(4, 2), torch.zeros(4, dtype=torch.int64)).flatten(1)
    errors = []
    for count in (2_000, 200_000):
        x1, _ = data.draw(count, seed=7)
        x0 = torch.randn(x1.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(8))
        z, target = lwd.interpolate(x1, x0, times.expand(count, 2), data.layout)
        fitted = torch.linalg.lstsq(z.flatten(1), target.flatten(1)).solution
        errors.append((fitted - exact).abs().max().item())
    assert errors[1] < 0.02
    assert errors[1] < errors[0] / 3


def test_surfaces_are_the_losses_of_the_velocity():
    """Oracle: Monte Carlo of |v - u|^2 and |v|^2 through `interpolate`, within 5 standard errors."""
    for data in (random_gaussian(("texture", "semantic"), seed=9), small_mixture([0, 1, 2]), small_mixture([0, 0, 1])):
        x1, label = data.draw(50_000, seed=1)
        x0 = torch.randn(x1.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        for t in ([0.2, 0.6], [0.9, 0.3], [0.0, 1.0]):
            times = torch.tensor([t], dtype=torch.float64)
            z, target = lwd.interpolate(x1, x0, times.expand(len(x1), 2), data.layout)
            v = data(z, times.expand(len(x1), 2), label)
            errors, energies = data.surfaces(times, samples=4096)
            for value, sampled in ((errors, (v - target).square()), (energies, v.square())):
                rows = data.layout.means(sampled)
                bound = 5 * rows.std(0) / len(rows) ** 0.5 + 2e-3
                assert ((value[0] - rows.mean(0)).abs() <= bound).all()


def test_information_about_another_group_never_hurts():
    """Oracle: l_g does not increase with another group's time (METHOD 6)."""
    data = random_gaussian(("texture", "semantic"), seed=10)
    other = torch.linspace(0, 1, 21, dtype=torch.float64)
    for own in (0.1, 0.5, 0.9):
        own_t = torch.full_like(other, own)
        assert (data.surfaces(torch.stack([own_t, other], 1))[0][:, 0].diff() <= 1e-12).all()
        assert (data.surfaces(torch.stack([other, own_t], 1))[0][:, 1].diff() <= 1e-12).all()


def test_i_mmse_information_is_path_independent():
    """Oracle: sum_g d_g int t_g / (1 - t_g) l_g dt_g between two points of the box is the same along any path."""
    data = random_gaussian(("texture", "semantic"), seed=11)
    nodes, weights = (torch.from_numpy(x) for x in np.polynomial.legendre.leggauss(60))
    tau, weights = (nodes + 1) / 2, weights / 2
    start, end = torch.tensor([0.1, 0.2]).double(), torch.tensor([0.85, 0.7]).double()

    def information(path, rate):
        times = start + (end - start) * path
        integrand = data.layout.channels / 2 * times / (1 - times) * data.surfaces(times)[0] * (end - start) * rate
        return (weights[:, None] * integrand).sum()

    straight = information(torch.stack([tau, tau], 1), torch.ones(60, 2).double())
    bent = information(torch.stack([tau**4, 2 * tau - tau**2], 1), torch.stack([4 * tau**3, 2 - 2 * tau], 1))
    other = information(torch.stack([tau, tau**3], 1), torch.stack([torch.ones(60).double(), 3 * tau**2], 1))
    assert_close(straight, other, atol=1e-10, rtol=0)
    assert_close(straight, bent, atol=1e-10, rtol=0)


def test_scalar_pair_by_hand():
    """Oracle: one scalar without its partner: v = ((2t - 1) / (t^2 + (1-t)^2)) z, and l = 1 / (t^2 + (1-t)^2)."""
    data = scalar_pair(0.0)
    times = torch.tensor([[0.3, 0.9]], dtype=torch.float64)
    variance = times.square() + (1 - times).square()
    z = torch.tensor([[[[0.7]], [[-1.2]]]], dtype=torch.float64)
    velocity = data(z, times, torch.zeros(1, dtype=torch.int64)).flatten(1)
    assert_close(velocity, (2 * times - 1) / variance * z.flatten(1))
    assert_close(data.surfaces(times)[0], 1 / variance)


def test_positions_and_dtypes():
    """Oracle: the same Gaussian read as 4 channels, or as 2 channels on 2 positions with the same flat order."""
    data = random_gaussian(("texture", "semantic"), seed=12)
    wide = lwd.Gaussian(lwd.Layout.of(texture=1, semantic=1), data.covariances[0], size=(1, 2))
    z, times = torch.randn(3, 4, 1, 1), torch.rand(3, 2)
    label = torch.zeros(3, dtype=torch.int64)
    out = wide(z.reshape(3, 2, 1, 2), times, label)
    assert out.dtype == torch.float32
    assert torch.equal(out.flatten(), data(z, times, label).flatten())
    assert wide.draw(5)[0].shape == (5, 2, 1, 2)
    assert torch.equal(data.draw(5, seed=1)[0], data.draw(5, seed=1)[0])


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (lambda: lwd.Gaussian(lwd.Layout.of(a=2), torch.eye(3)), ("a=2", "(1, 3)", "(1, 3, 3)")),
        (lambda: lwd.Gaussian(lwd.Layout.of(a=2), torch.ones(2, 2)), "covariances"),
        (lambda: small_mixture([0, 2, 2]), ("labels", "[0, 2]")),
        (lambda: small_mixture([0, 1]), ("labels", 3)),
        (lambda: small_mixture()(torch.zeros(1, 3), torch.zeros(1, 2), torch.tensor([5])), ("labels", "0..0", 1)),
    ],
)
def test_bad_distributions_are_refused_with_a_sentence(make, facts):
    with pytest.raises(lwd.InputError, match=says(facts)):
        make()
