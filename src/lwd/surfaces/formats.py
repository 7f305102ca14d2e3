"""JSON files of loss surfaces and lambda paths."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from lwd.io.records import FileRecord, Record


class SurfacesFile(FileRecord):
    """surfaces.json next to surfaces.safetensors; written last, so that both files are complete if it exists."""

    format: Literal["lwd.surfaces"] = "lwd.surfaces"
    version: Literal[1] = 1
    layout: dict[str, Annotated[int, Field(ge=1)]]
    """Channels by group, in order."""
    count: int
    """Number of samples at each point."""
    band: tuple[float, float, int] | None = None
    """Smallest and largest offset that was measured, and the column of the group that leads; null = everywhere."""
    provenance: dict[str, Any] = Field(default_factory=dict)
    """How they were measured; `error_scales`: measured / predicted sampler error, by order."""

    what: ClassVar[str] = "surfaces"


class PathPoint(Record):
    """The best curve for one lambda."""

    kinetic: Annotated[float, Field(alias="lambda")]
    """lambda."""
    schedule: dict[str, Any]
    """The curve, as in a schedule file."""
    objective: float
    """Flow loss plus lambda times kinetic energy."""
    flow: float
    """Flow loss."""
    energy: float
    """Kinetic energy."""
    collapsed: bool
    """Whether the curve has collapsed to the extreme of its family."""
    floor: float | None
    """Objective of the best monotone path, for two groups."""
    outside: float | None = None
    """Largest distance from the band of the surfaces, if they have one and the curve leaves it."""
    error: float | None
    """Predicted error of the sampler, if a number of steps was given."""


class LambdaPathFile(FileRecord):
    """path.json: the best schedule for every lambda."""

    format: Literal["lwd.lambda_path"] = "lwd.lambda_path"
    version: Literal[1] = 1
    threshold: float | None
    """lambda below which curves collapse; null if none did."""
    weakest: float | None
    """The weakest stable lambda."""
    chosen: float | None
    """The lambda chosen for a number of steps."""
    steps: int | None
    """Number of sampler steps that `chosen` is for."""
    tolerance: float
    """Largest allowed error of the sampler."""
    order: int
    """Order of the sampler."""
    scale: float
    """Measured / predicted sampler error."""
    by: str
    """The command that wrote it."""
    family: str
    """Family of curves."""
    weights: dict[str, float]
    """Weights of the groups."""
    reduction: str
    """Average over channels or groups."""
    kinetic_average: str = "groups"
    """Average of the energies: as the reduction, or over each group's channels (files of version 0.1)."""
    weight_gradient: str = "exact"
    """Gradient of the rate correction."""
    surfaces: Any
    """Provenance of the surfaces, or their checksum."""
    points: list[PathPoint]
    """One for each lambda, increasing."""

    what: ClassVar[str] = "a lambda path"
