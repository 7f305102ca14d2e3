"""JSON files of evaluations, and of the downloaded Inception network."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from lwd.io.records import FileRecord, Record


class MetricValue(Record):
    """A metric with its standard error."""

    value: float
    error: Annotated[float, Field(ge=0)]
    """Standard error."""
    without: list[float] = Field(default_factory=list)
    """The value without each tenth of the samples, for paired comparisons."""


class ScoredModel(Record):
    """The model behind evaluated samples."""

    name: str | None = None
    digest: str | None = None
    step: int | float | None = None


class ScoredSamples(Record):
    """The evaluated samples."""

    name: str
    count: int
    digest: str | None = None
    model: ScoredModel | None = None
    """For samples of `lwd sample`."""
    guide: str | None = None
    nfe: int | float | None = None
    """Evaluations of the network per sample."""
    settings: dict[str, Any] = Field(default_factory=dict)
    encoders: dict[str, str] = Field(default_factory=dict)
    """What made the latents that the model was trained on, by group."""


class ScoredReference(Record):
    """The reference images."""

    name: str
    count: int
    digest: str | None = None


class EvaluationFile(FileRecord):
    """evaluation.json: metrics of samples against a reference."""

    format: Literal["lwd.evaluation"] = "lwd.evaluation"
    version: Literal[1] = 1
    metrics: dict[str, MetricValue]
    """Metrics by name."""
    unavailable: dict[str, str] = Field(default_factory=dict)
    """Reasons for missing metrics, by name."""
    warnings: list[str] = Field(default_factory=list)
    """Warnings about the metrics."""
    samples: ScoredSamples
    """The samples."""
    reference: ScoredReference
    """The reference."""
    networks: list[str] = Field(default_factory=list)
    """Identities of the networks that computed features."""
    encoder: str = ""
    """Name of the encoder, as it was asked for."""
    dependent: list[str] = Field(default_factory=list)
    """Latents (or `align`) of the model that the same encoder made: its metrics are not independent of the model."""
    size: int = 0
    """Size in pixels to which the reference was cropped; 0 = not cropped."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Versions of lwd and torch."""

    what: ClassVar[str] = "an evaluation"


class InceptionFile(FileRecord):
    """config.json of the downloaded Inception network in the cache."""

    format: Literal["lwd.inception"] = "lwd.inception"
    version: Literal[1] = 1
    source: str
    """The file it came from."""
    head: bool
    """Whether it has a classifier, which the Inception Score needs."""

    what: ClassVar[str] = "an Inception network"
