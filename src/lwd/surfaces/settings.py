"""Settings of a lambda path; importing them does not load torch."""

from typing import Annotated, Literal

from pydantic import Field

from lwd.io.records import Record


class PathSettings(Record):
    """Which lambdas to solve for, and how to choose one."""

    lambdas: Annotated[tuple[Annotated[float, Field(ge=0)], ...], Field(min_length=1)] = tuple(
        round(10 ** (-3.4 + k / 5), 6) for k in range(16)
    )
    """Weights of the kinetic energy."""
    steps: Annotated[int, Field(ge=1)] | None = None
    """Also choose a lambda for a sampler with this many steps."""
    order: Literal[1, 2] = 2
    """Order of that sampler."""
    tolerance: Annotated[float, Field(gt=0)] = 0.05
    """Largest allowed error of the sampler."""
    scale: Annotated[float, Field(gt=0)] = 1.0
    """Measured / predicted sampler error."""
    floor: bool = True
    """Also solve for the best monotone path (two groups)."""


class MeasureSettings(Record):
    """How to measure the surfaces of a network without training it."""

    points: Annotated[int, Field(ge=5)] = 25
    """Grid points along each clock; only those in the band are measured."""
    samples: Annotated[int, Field(ge=32)] = 128
    """Number of images."""
    batch: Annotated[int, Field(ge=1)] = 16
    """Images per batch."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Random seed for choosing images."""
    breakdown: Annotated[float, Field(gt=0)] = 0.1
    """Increase of the loss at which an estimated band ends."""
    calibration: Annotated[int, Field(ge=0)] = 8
    """Images whose real sampling error calibrates predicted ones; 0 = none."""
