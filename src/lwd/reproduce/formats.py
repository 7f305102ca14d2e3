"""JSON files of a reproduction."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from lwd.io.records import FileRecord, Record


class ReproductionFile(FileRecord):
    """reproduce.json: what affects every result in a directory; another scale or other data are rejected."""

    format: Literal["lwd.reproduction"] = "lwd.reproduction"
    version: Literal[1] = 1
    scale: dict[str, Any]
    """The scale (`lwd.reproduce.scales.Scale`)."""
    latents: dict[str, str] = Field(default_factory=dict)
    """Directories of the user's latents, by semantic latent."""
    decoder: str = ""
    """The user's texture autoencoder."""
    reference: str = ""
    """The user's reference."""
    encoder: str = ""
    """The user's encoder of metrics."""
    repeat_probe: bool = False
    """Whether each training seed has its own probe."""

    what: ClassVar[str] = "a reproduction"


class Cell(Record):
    """A number that was measured here."""

    mean: float
    """The mean over seeds."""
    error: float | None = None
    """Standard error: over seeds if there are several, else of the metric's estimate; null if unknown."""
    values: list[float]
    """One value for each seed."""


class TableRow(Record):
    """One row: what was measured here, and what the paper reports."""

    name: str
    steps: int | None = None
    """Training steps."""
    measured: dict[str, Cell] = Field(default_factory=dict)
    """Measured here, by metric."""
    paper: dict[str, float] = Field(default_factory=dict)
    """Reported by the paper for the same row, by metric."""
    words: dict[str, str] = Field(default_factory=dict)
    """Other columns, as text."""


class TableFile(FileRecord):
    """TABLE.json: a table or figure of the paper, measured here."""

    format: Literal["lwd.table"] = "lwd.table"
    version: Literal[1] = 1
    table: str
    """Name of the table."""
    title: str
    """What it shows."""
    scale: str
    """tiny, cifar10 or imagenet256."""
    seeds: list[int]
    """Training seeds."""
    metrics: dict[str, str]
    """Titles of the measured columns, by metric."""
    rows: list[TableRow]
    """The rows."""
    context: list[TableRow] = Field(default_factory=list)
    """The paper's rows where this scale is not comparable with it."""
    curves: dict[str, dict[str, list[float]]] = Field(default_factory=dict)
    """Local times by schedule and group, at evenly spaced tau."""
    unavailable: dict[str, str] = Field(default_factory=dict)
    """Reasons for missing metrics."""
    notes: list[str] = Field(default_factory=list)
    """What to know when reading it."""
    source: str
    """Where the paper's numbers are printed."""
    commands: list[str]
    """Commands that make the same results by hand."""
    versions: dict[str, str]
    """Versions of lwd and torch."""

    what: ClassVar[str] = "a table"
