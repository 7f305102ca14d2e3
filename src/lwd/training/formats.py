"""JSON files of a run."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from lwd.io.records import FileRecord, Record


class RunFile(Record):
    """run.json: what a run is."""

    config: dict[str, Any]
    """The resolved settings."""
    data: str = "unknown"
    """Fingerprint of the data."""


class LogSums(Record):
    """Sums of the metrics line that was being averaged."""

    count: int
    sums: dict[str, float]


class TrainingState(FileRecord):
    """state.json of a checkpoint: everything but the tensors."""

    format: Literal["lwd.training"] = "lwd.training"
    version: Literal[1] = 1
    step: Annotated[int, Field(ge=0)]
    """Steps done."""
    sha256: dict[str, str]
    """Checksum of every other file."""
    config: dict[str, Any]
    """The run's settings."""
    lwd: str
    """Version of lwd."""
    data: str
    """Fingerprint of the data."""
    schedule: dict[str, Any] | None
    """The fixed schedule; null for a probe."""
    bad: int
    """Non-finite steps in a row."""
    skipped: int
    """Non-finite steps in all."""
    rollbacks: int
    """Returns to a checkpoint."""
    updates: int
    """Updates of the network's optimizer."""
    averages: LogSums | None = None
    """Sums of the metrics line that was being averaged."""
    averaged: int | None = None
    """Values of rho in the mean (a joint probe)."""
    rho_updates: Annotated[int | None, Field(alias="rho updates")] = None
    """Updates of rho's optimizer (a joint probe)."""

    what: ClassVar[str] = "a training checkpoint"
