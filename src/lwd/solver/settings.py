"""The choice of a solver and its accuracy, checked before anything is computed."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from lwd.errors import InputError, nearest
from lwd.solver.dopri5 import Control
from lwd.solver.fixed import METHODS as FIXED_METHODS

METHODS = (*FIXED_METHODS, "dopri5")


@dataclass(frozen=True)
class SolverSettings:
    """A method and its accuracy; settings that have no effect on the method are rejected."""

    method: str = "dopri5"
    """euler, midpoint, heun, rk4, ab2, ab3, abm (fixed steps) or dopri5 (adaptive)."""
    steps: int | None = None
    """Number of steps over [0, 1] (fixed-step methods)."""
    grid: Sequence[float] | None = None
    """Times of the steps, from 0 to 1, instead of `steps`."""
    atol: float | None = None
    """Absolute tolerance of dopri5 (default 1e-6)."""
    rtol: float | None = None
    """Relative tolerance of dopri5 (default 1e-3)."""
    max_nfe: int | None = None
    """Maximum number of evaluations of dopri5 (default 10000)."""
    adaptive: Literal["batch", "sample"] | None = None
    """dopri5: one step size for the batch (default), or one per sample, so that results do not depend on the batch."""

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InputError(f"there is no method {self.method!r}; {nearest(str(self.method), METHODS)}")
        adaptive = self.method == "dopri5"
        useless = ("steps", "grid") if adaptive else ("atol", "rtol", "max_nfe", "adaptive")
        instead = "which is adaptive; use atol and rtol" if adaptive else "a fixed-step method; use method 'dopri5'"
        for name in useless:
            if getattr(self, name) is not None:
                raise InputError(f"{name} has no effect on {self.method}, {instead}", argument=name)
        if self.grid is not None and self.steps is not None:
            raise InputError("steps and grid both define the steps; pass one of them")
        self.control()

    def control(self) -> Control:
        """The step-size control of dopri5."""
        options = {name: getattr(self, name) for name in ("atol", "rtol", "max_nfe", "adaptive")}
        return Control(**{name: value for name, value in options.items() if value is not None})


def solver_settings(method: str | SolverSettings = "dopri5", **changes: Any) -> SolverSettings:
    """Build settings from a method name or from other settings, with changes; unknown names are rejected."""
    known = [field.name for field in fields(SolverSettings)]
    for name in changes:
        if name not in known:
            raise InputError(f"there is no solver setting {name!r}; {nearest(str(name), known)}")
    return replace(method, **changes) if isinstance(method, SolverSettings) else SolverSettings(method, **changes)
