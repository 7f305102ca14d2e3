"""All paths of two clocks in one coordinate.

A path of two clocks is a function d of s = (t_texture + t_semantic) / 2, with t_semantic = s + d(s), t_texture =
s - d(s) and d(0) = d(1) = 0; no clock runs backwards if and only if |d'| <= 1. So every schedule is such a d, up
to its gauge: d = 0 is one clock, d = min(s, delta / 2, 1 - s) is Offset(delta), d = min(s, 1 - s) the cascade.
"""

from collections.abc import Sequence

import numpy as np

from lwd.schedule.fixed import PiecewiseLinear


def repaired(leads: Sequence[float]) -> list[float]:
    """Leads d at the inner knots, moved as little as is needed from left to right so that no clock runs backwards."""
    pieces, before, found = len(leads) + 1, 0.0, []
    for k, lead in enumerate(leads, 1):
        most = min(k, pieces - k) / pieces
        before = float(np.clip(np.clip(lead, -most, most), before - 1 / pieces, before + 1 / pieces))
        found.append(before)
    return found


def path(leads: Sequence[float]) -> PiecewiseLinear:
    """The schedule of leads at evenly spaced inner knots of s."""
    d = [0.0, *repaired(leads), 0.0]
    s = [k / (len(d) - 1) for k in range(len(d))]
    rows = [[min(max(a + sign * b, 0.0), 1.0) for a, b in zip(s, d, strict=True)] for sign in (-1, 1)]
    return PiecewiseLinear(s, [list(np.maximum.accumulate(row)) for row in rows])


def leads_of_offset(delta: float, pieces: int) -> list[float]:
    return [min(k / pieces, delta / 2, 1 - k / pieces) for k in range(1, pieces)]
