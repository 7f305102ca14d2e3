"""JSON files of sample sets and solver benchmarks."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from lwd.io.records import FileRecord, Record


class SampledModel(Record):
    """A model, guide or decoder behind a set of samples."""

    name: str = ""
    """Where it was; informative only."""
    digest: str = ""
    """Checksum of its files."""
    step: int | None = None
    """Training steps."""
    schedule: dict[str, Any] | None = None
    """The schedule used for sampling."""


class Evaluations(Record):
    """Evaluations of the network per sample."""

    mean: float
    min: int
    max: int


class SamplesFile(FileRecord):
    """manifest.json of a set of samples."""

    format: Literal["lwd.samples"] = "lwd.samples"
    version: Literal[1] = 1
    settings: dict[str, Any]
    """Every setting (`SampleSettings`)."""
    device: str
    """Kind of device."""
    model: SampledModel = SampledModel()
    """The model."""
    decoder: SampledModel | None = None
    """The texture autoencoder."""
    guide: SampledModel | None = None
    """The guide; empty for classifier-free guidance."""
    encoders: dict[str, str] = Field(default_factory=dict)
    """What made the latents that the model was trained on, by group, if its checkpoint records it."""
    solver: dict[str, Any]
    """Options of the solver, with the times of placed steps."""
    size: tuple[int, int]
    """Height and width of the images."""
    labels: list[int]
    """Class of each image."""
    order: list[int]
    """Row r of the .npz is image order[r]."""
    nfe: Evaluations
    """Evaluations of the network per sample."""
    files: dict[str, str]
    """SHA-256 by file."""
    versions: dict[str, str]
    """Versions of lwd and torch."""

    what: ClassVar[str] = "a set of samples"


class BenchmarkFile(FileRecord):
    """sampler.json: solvers compared on a model."""

    format: Literal["lwd.sampler_bench"] = "lwd.sampler_bench"
    version: Literal[1] = 1
    tolerance: float
    """Largest allowed error."""
    model: SampledModel = SampledModel()
    """The model."""
    decoder: SampledModel | None = None
    """The texture autoencoder."""
    guide: SampledModel | None = None
    """The guide."""
    trials: list[dict[str, Any]]
    """solver, placement, steps, rtol, nfe and error of each trial."""
    recommended: str
    """Options of `lwd sample` for the recommended trial."""
    quality: list[tuple[float, float, float]] | None = None
    """Evaluations, Fréchet distance and its standard error."""

    what: ClassVar[str] = "a solver benchmark"
