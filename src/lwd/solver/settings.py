"""Which solver, and how finely: checked once, before anything is computed."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from lwd.errors import InputError, nearest
from lwd.solver.dopri5 import Control
from lwd.solver.fixed import METHODS as FIXED_METHODS

METHODS = (*FIXED_METHODS, "dopri5")


@dataclass(frozen=True)
class SolverSettings:
    """A method and its accuracy; a setting that has no effect on the method is refused."""

    method: str = "dopri5"
    """euler, midpoint, heun, rk4, ab2, ab3 (fixed steps) or dopri5 (adaptive)."""
    steps: int | None = None
    """Number of steps over [0, 1] (fixed-step methods)."""
    grid: Sequence[float] | None = None
    """The times between which to step, from 0 to 1, instead of `steps`."""
    atol: float | None = None
    """Absolute tolerance of dopri5 (default 1e-6)."""
    rtol: float | None = None
    """Relative tolerance of dopri5 (default 1e-3)."""
    max_nfe: int | None = None
    """Evaluations after which dopri5 gives up (default 10000)."""
    adaptive: Literal["batch", "sample"] | None = None
    """dopri5: one step size for the batch (default), or one for each sample, whose result then depends on no other."""

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InputError(f"there is no method {self.method!r}; {nearest(str(self.method), METHODS)}")
        adaptive = self.method == "dopri5"
        useless = ("steps", "grid") if adaptive else ("atol", "rtol", "max_nfe", "adaptive")
        instead = "which chooses its own; use atol and rtol" if adaptive else "which takes steps; use method 'dopri5'"
        for name in useless:
            if getattr(self, name) is not None:
                raise InputError(f"{name} has no effect on {self.method}, {instead}", argument=name)
        if self.grid is not None and self.steps is not None:
            raise InputError("steps and grid both say where to step; pass one of them")
        self.control()

    def control(self) -> Control:
        """dopri5's step-size control."""
        options = {name: getattr(self, name) for name in ("atol", "rtol", "max_nfe", "adaptive")}
        return Control.of(**options)


def solver_settings(method: str | SolverSettings = "dopri5", **changes: Any) -> SolverSettings:
    """Settings from a method's name or other settings, with changes; unknown names are refused."""
    known = [field.name for field in fields(SolverSettings)]
    for name in changes:
        if name not in known:
            raise InputError(f"a solver has no setting {name!r}; {nearest(str(name), known)}")
    return replace(method, **changes) if isinstance(method, SolverSettings) else SolverSettings(method, **changes)
