"""The same path at another tempo: is a schedule's effect that of its path, or of the density of its times?"""

import numpy as np
import torch

from lwd.errors import InputError
from lwd.schedule.base import Schedule
from lwd.schedule.fixed import PiecewiseLinear

DENSE, KNOTS = 200_001, 513


def retimed(curve: Schedule, group: str, power: float) -> PiecewiseLinear:
    """Return the path of `curve` on a clock where `group` moves as a power of the time since it started.

    Only the global clock changes, not the local times that occur together, so a network trained on the result can be
    sampled under `curve`. At uniform global times, and once the group moves, power 1 makes all its local times equally
    likely; power 2 gives them the density 1 / (2 sqrt(t)), as on texture = tau^2. Before that it stays at 0: under
    offset 0.3 for 23% of the global time, at either power. `group` must be the last to arrive.
    """
    tau = np.linspace(0, 1, DENSE)
    times = curve.times(torch.from_numpy(tau)).detach().numpy()
    own = times[:, curve.groups.index(group)]
    if own[-2] >= 1:
        raise InputError(f"{group} arrives before the end of the schedule")
    first = int(np.flatnonzero(own > 0)[0]) - 1
    start, clock = tau[first], np.linspace(0, 1, KNOTS)
    moments = np.interp(clock**power, own[first:], tau[first:])
    before = np.linspace(0, start, KNOTS)[:-1] if first else np.empty(0)
    at = np.concatenate([before, moments])
    rows = [np.interp(at, tau, column).clip(0, 1) for column in times.T]
    for row in rows:
        row[0], row[-1] = 0.0, 1.0
    return PiecewiseLinear(np.concatenate([before, start + (1 - start) * clock]).tolist(), rows, curve.groups)
