"""JSON files of a run."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from lwd.io.records import FileRecord, Record


class RunFile(Record):
    """run.json: the settings and data of a run."""

    config: dict[str, Any]
    """The resolved settings."""
    data: str = "unknown"
    """Fingerprint of the data."""
    latents: str = ""
    """Fingerprint of the latents alone, if alignment features are computed from images."""


class LogSums(Record):
    """Sums of the current, unfinished metrics line."""

    count: int
    sums: dict[str, float]


class TrainingState(FileRecord):
    """state.json of a checkpoint: everything except the tensors."""

    format: Literal["lwd.training"] = "lwd.training"
    version: Literal[1] = 1
    step: Annotated[int, Field(ge=0)]
    """Number of steps done."""
    sha256: dict[str, str]
    """Checksums of all other files."""
    config: dict[str, Any]
    """Settings of the run."""
    lwd: str
    """Version of lwd."""
    data: str
    """Fingerprint of the data."""
    schedule: dict[str, Any] | None
    """The fixed schedule; null for a probe."""
    bad: int
    """Non-finite steps in a row."""
    skipped: int
    """Non-finite steps in total."""
    rollbacks: int
    """Number of returns to a checkpoint."""
    updates: int
    """Updates of the network's optimizer."""
    averages: LogSums | None = None
    """Sums of the current, unfinished metrics line."""
    averaged: int | None = None
    """Number of values in the mean of rho (joint probe)."""
    rho_updates: Annotated[int | None, Field(alias="rho updates")] = None
    """Updates of rho's optimizer (joint probe)."""

    what: ClassVar[str] = "a training checkpoint"
