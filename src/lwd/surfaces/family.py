"""The best curve of a family on loss surfaces: minimisation from several starts, and fits to other curves."""

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lwd.errors import InputError, nearest
from lwd.objective import FlowObjective
from lwd.schedule.base import Schedule
from lwd.schedule.learned import Bernstein, Learnable, Polynomial
from lwd.surfaces.integral import Surfaces, fit_schedule, path_objective

SHARES = (0.2, 0.7)
"""Starting points between a curve and the extreme of its family: the identity alone may miss a better curve."""
LIMIT = 20.0
"""Beyond this |rho| a softplus or softmax share is below 1e-8 of another, and the curve no longer changes."""


def parse_family(text: str, groups: Sequence[str]) -> Learnable:
    """Build a family of curves at the identity: `polynomial`, `bernstein` (convex), `monotone`, each with `:DEGREE`."""
    word, _, argument = text.partition(":")
    families = ("polynomial", "bernstein", "monotone")
    if word not in families:
        raise InputError(f"there is no family {word!r}; {nearest(word, families)}")
    if argument and not argument.isdecimal():
        raise InputError(f"{word} takes a degree, for example {word}:8, got {text}")
    degree = int(argument) if argument else None
    if word == "polynomial":
        return Polynomial(groups=groups, degree=degree)
    return Bernstein(groups=groups, degree=degree, convex=word == "bernstein")


def best_curve(
    family: Learnable, surfaces: Surfaces, objective: FlowObjective, starts: Sequence[Schedule] = ()
) -> Learnable:
    """Minimise from the rho of `family`, from points between it and the extremes, and from `starts`; return the best.

    weight_gradient="stop" is an update rule, not the gradient of a function: it is followed from the rho of `family`
    only.
    """
    if objective.weight_gradient == "stop":
        return fit_schedule(family, surfaces, objective)
    initial: list[Learnable] = [family]
    initial += [between(family, edge, share) for edge in family.extremes() for share in SHARES]
    for start in starts:
        same = isinstance(start, Learnable) and type(start) is type(family) and start.rho.shape == family.rho.shape
        initial.append(start if same else fitted_to(family, start))  # type: ignore[arg-type]
    minima = [descend(one, surfaces, objective) for one in initial]
    return min(minima, key=lambda one: float(path_objective(one, surfaces, objective).detach()))


def descend(schedule: Learnable, surfaces: Surfaces, objective: FlowObjective, steps: int = 80) -> Learnable:
    """Minimise in rho with L-BFGS, for weight_gradient "exact" or "none"; returns a frozen copy."""
    return _minimise(schedule, lambda one: path_objective(one, surfaces, objective), steps)


def fitted_to(
    family: Learnable, curve: Schedule, steps: int = 100, watch: Callable[[], object] = lambda: None
) -> Learnable:
    """Fit a curve of the family to another curve, in the mean square over tau; watch: called often, may raise."""
    if curve.groups != family.groups:
        raise InputError(f"the curve is for {', '.join(curve.groups)}, but the family for {', '.join(family.groups)}")
    tau = torch.linspace(0, 1, 65, dtype=torch.float64)
    wanted = curve.times(tau).detach()

    def distance(one: Learnable) -> Tensor:
        watch()
        return 100 * (one.times(tau) - wanted).square().mean()

    return _minimise(between(family, family.extremes()[0], 0.3), distance, steps)


def between(family: Learnable, edge: Learnable, share: float) -> Learnable:
    """Return the curve of the family `share` of the way from its own curve to an edge."""
    return family.with_shares(torch.lerp(family.shares().detach(), edge.shares().detach(), share))


def _minimise(schedule: Learnable, value: Callable[[Learnable], Tensor], steps: int) -> Learnable:
    learned = copy.deepcopy(schedule)
    if not learned.rho.numel():
        return learned.freeze()
    learned.rho.requires_grad_(True)
    optimizer = torch.optim.LBFGS(
        [learned.rho], max_iter=steps, tolerance_grad=1e-8, tolerance_change=1e-11, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        total = value(learned)
        # A weak penalty keeps rho finite; beyond LIMIT the curve does not change.
        total = total + 1e-6 * (learned.rho.abs() - LIMIT).clamp(min=0).square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    if not torch.isfinite(learned.rho).all():
        return copy.deepcopy(schedule).freeze()
    return learned.freeze()
