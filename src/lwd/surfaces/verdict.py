"""Decide whether a learned curve collapsed, converged or was still moving."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lwd.schedule.learned import Learnable

COLLAPSE = 0.02
"""A curve closer than this (sup norm) to the extreme of its family has collapsed."""
STILL = 0.01
"""A curve that moved less than this over the last fifth of the probe has converged."""


@dataclass(frozen=True)
class Verdict:
    """The state of a curve: `distance` to the extreme of its family, and movement `moved` at the end, in sup norm."""

    word: str
    distance: float
    moved: float | None
    """None if there is no history, as for a curve solved on surfaces."""
    departure: float
    """How far the curve is from all groups running together."""
    travelled: float | None = None
    """How far the curve is from where it started; None where there was no history."""

    def __str__(self) -> str:
        if self.word == "collapsed":
            return (
                f"collapsed: the curve is within {self.distance:.3f} of the extreme of its family (below {COLLAPSE}); "
                "use a larger kinetic weight"
            )
        where = f"{self.distance:.3f} from the extreme, {self.departure:.3f} from one common clock"
        if self.word == "moving":
            return f"still moving: it moved {self.moved:.3f} in the last fifth of the steps; run longer ({where})"
        if self.moved is None:
            return f"stable: {where}"
        text = f"converged: it moved {self.moved:.3f} in the last fifth of the steps ({where})"
        if self.travelled is None or self.travelled >= STILL:
            return text
        return (
            f"{text}; it ended within {STILL} of where it started, which may be a local minimum: try other starts "
            "(0, 0.3, 0.9), or a surface probe"
        )


def judge(schedule: Learnable, history: tuple[list[int], Tensor] | None = None, points: int = 101) -> Verdict:
    """Decide whether a learned curve collapsed, converged or was still moving."""
    tau = torch.linspace(0, 1, points, dtype=torch.float64)
    curve = schedule.times(tau).detach()
    # Per group: one group at its extreme is enough, whatever the others do.
    edges = torch.stack([edge.times(tau).detach() for edge in schedule.extremes()])
    gaps = (curve - edges).abs().amax(1).amin(0)
    learned = [i for i, name in enumerate(schedule.groups) if name != getattr(schedule, "lead", None)]
    distance = float(gaps[learned].min())
    moved = travelled = None
    if history is not None and history[0]:
        steps, curves = history
        late = [i for i, step in enumerate(steps) if step >= 0.8 * steps[-1]]
        moved = float((curves[late] - curves[-1]).abs().max())
        travelled = float((curve - curves[0]).abs().max())
    departure = float((curve - tau[:, None]).abs().max())
    word = "collapsed" if distance < COLLAPSE else "moving" if moved and moved > STILL else "converged"
    return Verdict(word, distance, moved, departure, travelled)
