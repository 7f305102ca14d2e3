"""Settings of sampling; importing them does not load torch."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from lwd.errors import InputError, nearest
from lwd.io.records import Record

SEFI = "sefi"
"""The sampler of SeFi-Image's reference."""
UNIFORM, SHIFT, OPTIMISED, RECOMMENDED = "tau", "shift", "optimised", "recommended"
"""Placements of steps beside the groups' names; a shift is written with its factor, shift:0.3."""
Kind = Literal["png", "npz"]


class SampleSettings(Record):
    """What to draw and how; equal settings give equal bytes on the same kind of processor."""

    count: Annotated[int, Field(ge=1)] = 64
    """Number of images."""
    seed: Annotated[int, Field(ge=0, lt=2**62)] = 0
    """Seed of image 0; image i has seed + i."""
    labels: tuple[int | str, ...] = ()
    """Classes by number or name; images cycle through them. Empty = all classes."""
    prompts: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Prompts of a text-to-image model; images cycle through them."""
    negative: str | None = None
    """Negative prompt (default: empty)."""
    size: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] | None = None
    """Height and width of the pictures of a text-to-image model, in pixels."""
    solver: str = "dopri5"
    """Solver: dopri5, ab2, ab3, abm, heun, midpoint, euler, rk4, sefi; with noise: euler-maruyama, sde-heun."""
    steps: int | None = None
    """Number of steps (all solvers but dopri5)."""
    shift: Annotated[float, Field(gt=0)] | None = None
    """Timestep shift (sefi only; default: the model's)."""
    placement: str = UNIFORM
    """Where the steps are placed: evenly in tau or a group's time, shift:A, or optimised."""
    diffusion: str | dict[str, str] | None = None
    """Noise of SDE solvers: sigma:1, constant:0.5, or texture=sigma:1 (default sigma:1)."""
    last_step: str | None = None
    """Noise-free last step of SDE solvers: mean:0.04 or ode:0.04 (default by solver)."""
    atol: Annotated[float, Field(gt=0)] | None = None
    """Absolute tolerance (dopri5 only; default 1e-6)."""
    rtol: Annotated[float, Field(gt=0)] | None = None
    """Relative tolerance (dopri5 only; default 1e-3)."""
    scale: float | dict[str, float] | None = None
    """Guidance scale, for all groups or by group; 1 = no guidance."""
    interval: tuple[float, float] | dict[str, tuple[float, float]] | None = None
    """Local times with guidance, for all groups or by group."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """Arithmetic of the networks: bf16 (autocast), fp32 (to the bit), or auto: bf16 on a GPU."""
    kinds: Annotated[tuple[Kind, ...], Field(min_length=1)] = ("png", "npz")
    """Files to write."""
    batch: Annotated[int, Field(ge=1)] = 64
    """Images per batch; 1 for text-to-image."""
    threads: Annotated[int, Field(ge=1)] = 2
    """CPU threads; they affect the last bits."""

    @model_validator(mode="after")
    def _check(self) -> "SampleSettings":
        from lwd.sampling.sde import SDE_METHODS  # loads torch
        from lwd.solver import FIXED_METHODS, METHODS

        known = (*METHODS, SEFI, *SDE_METHODS)
        if self.solver not in known:
            raise InputError(f"there is no solver {self.solver!r}; {nearest(self.solver, known)}", argument="solver")
        fixed = (*FIXED_METHODS, *SDE_METHODS)
        uses = {"rtol": ("dopri5",), "atol": ("dopri5",), "steps": (*fixed, SEFI), "placement": fixed, "shift": (SEFI,)}
        uses |= {"diffusion": SDE_METHODS, "last_step": SDE_METHODS}
        for name, solvers in uses.items():
            value = getattr(self, name)
            if self.solver not in solvers and value is not None and (name, value) != ("placement", UNIFORM):
                instead = ", ".join(solvers)
                raise InputError(f"{name} has no effect on {self.solver}; use the solver {instead}", argument=name)
        if self.solver in fixed and self.steps is None:
            raise InputError(f"{self.solver} needs a number of steps", argument="steps")
        if self.steps is not None and self.steps < 1:
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
