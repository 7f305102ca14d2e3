"""Every solver carries noise to the data."""

from functools import cache

import pytest
import torch

import lwd
from strategies import small_mixture

SOLVERS = {
    "euler": ({"steps": 200}, 4e-2),
    "midpoint": ({"steps": 60}, 2e-3),
    "heun": ({"steps": 60}, 2e-3),
    "ab2": ({"steps": 120}, 2e-3),
    "ab3": ({"steps": 100}, 5e-4),
    "abm": ({"steps": 100}, 5e-4),
    "rk4": ({"steps": 30}, 2e-4),
    "dopri5": ({"rtol": 1e-6, "atol": 1e-8}, 2e-4),
}
CURVES = {
    "offset": lwd.Offset(0.3),
    "synchronous": lwd.Synchronous(),
    "polynomial": lwd.Polynomial([[0.0, 1, 0, 0, 2]]),
}
COUNT = 1000
MANY = {"seeds": range(COUNT), "size": (1, 1), "dtype": torch.float64}


@cache
def accurate(curve):
    """The same noise, transported by a tight solve."""
    data = small_mixture()
    return lwd.sample(data, CURVES[curve], data.layout, rtol=1e-7, atol=1e-9, **MANY).z.flatten(1)


@pytest.mark.parametrize("method", SOLVERS)
@pytest.mark.parametrize("curve", ["offset", *(pytest.param(c, marks=pytest.mark.slow) for c in list(CURVES)[1:])])
def test_every_solver_transports_noise_to_the_mixture(method, curve):
    """Oracle: the exact moments of the mixture.

    The draws are quadrature in disguise: every solver starts from the same noise, so its moments may differ from those
    of an accurate solve only by its tolerance; the accurate solve's differ from the mixture's by sampling error.
    """
    data = small_mixture()
    options, tolerance = SOLVERS[method]
    z = lwd.sample(data, CURVES[curve], data.layout, method=method, **options, **MANY).z.flatten(1)
    mean = (data.weights[:, None] * data.means).sum(0)
    second = data.covariances + data.means[:, :, None] * data.means[:, None, :]
    covariance = (data.weights[:, None, None] * second).sum(0) - mean[:, None] * mean
    assert (z.mean(0) - accurate(curve).mean(0)).abs().max() < tolerance
    assert (z.T.cov() - accurate(curve).T.cov()).abs().max() < tolerance
    assert (z.mean(0) - mean).abs().max() < tolerance + 5 * 1.2 / COUNT**0.5
    assert (z.T.cov() - covariance).abs().max() < tolerance + 5 * 2.5 / COUNT**0.5
