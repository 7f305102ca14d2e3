"""Settings of sampling; importing them does not load torch."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from lwd.errors import InputError, nearest
from lwd.io.records import Record

UNIFORM, OPTIMISED = "tau", "optimised"
"""Placements of steps, in addition to the names of groups."""
Kind = Literal["png", "npz"]


class SampleSettings(Record):
    """What to draw and how; equal settings give equal bytes on the same kind of processor."""

    count: Annotated[int, Field(ge=1)] = 64
    """Number of images."""
    seed: Annotated[int, Field(ge=0, lt=2**62)] = 0
    """Seed of the first image; image i has seed + i."""
    labels: tuple[int | str, ...] = ()
    """Classes by number or name; images cycle through them. Empty = all classes."""
    solver: str = "dopri5"
    """Solver: dopri5, ab2, ab3, heun, midpoint, euler or rk4."""
    steps: int | None = None
    """Number of steps (fixed-step solvers only)."""
    placement: str = UNIFORM
    """Placement of the steps: even in tau, even in the time of a group, or optimised."""
    atol: Annotated[float, Field(gt=0)] | None = None
    """Absolute tolerance (dopri5 only; default 1e-6)."""
    rtol: Annotated[float, Field(gt=0)] | None = None
    """Relative tolerance (dopri5 only; default 1e-3)."""
    scale: float | dict[str, float] | None = None
    """Guidance scale, for all groups or by group; 1 = no guidance."""
    interval: tuple[float, float] | dict[str, tuple[float, float]] | None = None
    """Local times with guidance, for all groups or by group."""
    kinds: Annotated[tuple[Kind, ...], Field(min_length=1)] = ("png", "npz")
    """Files to write."""
    batch: Annotated[int, Field(ge=1)] = 64
    """Images per batch."""
    threads: Annotated[int, Field(ge=1)] = 2
    """CPU threads per process; affects the last bits."""

    @model_validator(mode="after")
    def _check(self) -> "SampleSettings":
        from lwd.solver import FIXED_METHODS, METHODS  # loads torch

        if self.solver not in METHODS:
            raise InputError(f"there is no solver {self.solver!r}; {nearest(self.solver, METHODS)}", argument="solver")
        fixed = self.solver in FIXED_METHODS
        useless = ("rtol", "atol") if fixed else ("steps", *(("placement",) if self.placement != UNIFORM else ()))
        for name in useless:
            if getattr(self, name) is not None:
                instead = "dopri5" if fixed else ", ".join(FIXED_METHODS)
                raise InputError(f"{name} has no effect on {self.solver}; use the solver {instead}", argument=name)
        if fixed and (self.steps is None or self.steps < 1):
            raise InputError(f"{self.solver} needs at least 1 step, got {self.steps}", argument="steps")
        return self


class BenchmarkSettings(Record):
    """How to compare solvers on a model."""

    tolerance: Annotated[float, Field(gt=0)] = 0.02
    """Largest allowed error, relative to the standard deviation of the samples."""
    budgets: tuple[Annotated[int, Field(ge=1)], ...] = (4, 6, 8, 12, 16, 24, 32, 48)
    """Numbers of network evaluations per sample to try."""
    count: Annotated[int, Field(ge=1)] = 32
    """Number of samples for the error."""
    samples: Annotated[int, Field(ge=1)] = 1000
    """Number of images for each Fréchet distance."""
    encoder: str = ""
    """Encoder for the Fréchet distance, instead of Inception."""
