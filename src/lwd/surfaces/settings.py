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
