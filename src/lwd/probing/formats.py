"""JSON files of probes."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from lwd.io.records import FileRecord, Record


class TraceFile(FileRecord):
    """trace.json: rho during the probe."""

    format: Literal["lwd.trace"] = "lwd.trace"
    version: Literal[1] = 1
    step: list[int]
    """Steps at which rho was recorded."""
    rho: list[list[float]]
    """rho at each of these steps, flattened."""

    what: ClassVar[str] = "a trace"


class SweepLine(Record):
    """One probe of a sweep."""

    kinetic: Annotated[float, Field(alias="lambda")]
    """lambda."""
    schedule: dict[str, Any]
    """The learned curve, as in a schedule file."""
    word: str
    """collapsed, converged or moving."""
    distance: float
    """Distance to the extreme of the family, in sup norm."""
    moved: float | None
    """Movement over the last fifth of the steps."""
    departure: float
    """Distance from all groups running together."""
    travelled: float | None = None
    """Distance from where the curve started."""


class SweepFile(FileRecord):
    """sweep.json: probes by lambda."""

    format: Literal["lwd.sweep"] = "lwd.sweep"
    version: Literal[1] = 1
    weakest: Annotated[float | None, Field(alias="weakest stable lambda")]
    """The smallest lambda at and above which no curve collapsed."""
    probes: list[SweepLine]
    """One for each lambda, increasing."""

    what: ClassVar[str] = "a sweep"


class StartLine(Record):
    """One start of a joint probe."""

    start: float
    """Where rho started."""
    objective: float
    """Flow loss plus lambda times kinetic energy on the batches after the last step."""


class StartsFile(FileRecord):
    """starts.json: joint probes from several starts."""

    format: Literal["lwd.starts"] = "lwd.starts"
    version: Literal[1] = 1
    best: float
    """The start whose curve was kept."""
    starts: list[StartLine]
    """All starts."""

    what: ClassVar[str] = "a probe from several starts"
