"""The reverse SDE of exact data, for the tests of the stochastic sampler."""

import torch

import lwd
from lwd.sampling.diffusion import Coefficient, LastStep
from lwd.sampling.sde import ReverseSDE

LAYOUT = lwd.Layout.of(texture=2, semantic=1)
SCHEDULES = {
    "synchronous": lwd.Synchronous(),
    "offset": lwd.Offset(0.3),
    "cascade": lwd.Cascade(),
    "polynomial": lwd.Polynomial([[0.0, 1, 0, 0, 2]]),
}


def reverse(data, schedule, diffusion="sigma", last="ode:0.04", count=1):
    """The SDE of exact data under `schedule`, for `count` rows of class 0."""
    label = torch.zeros(count, dtype=torch.int64)
    coefficients = tuple(Coefficient.parse(diffusion) for _ in data.layout)
    return ReverseSDE(data, schedule, data.layout, label, coefficients, LastStep.parse(last))
