"""config.json of a model directory; origin.json of a fetched one."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from lwd.io.records import FileRecord, Record


class SamplingDefaults(Record):
    """How a model is meant to be sampled; used where nothing else is asked for."""

    solver: str = "dopri5"
    """Solver."""
    steps: int | None = None
    """Number of steps (fixed-step solvers)."""
    atol: float | None = None
    """Absolute tolerance (dopri5)."""
    rtol: float | None = None
    """Relative tolerance (dopri5)."""
    shift: float | None = None
    """Timestep shift (sefi)."""
    guide: str = ""
    """Preset of the weak model for AutoGuidance, or null for classifier-free guidance; for information."""
    scale: float | dict[str, float] | None = None
    """Guidance scale, used with a guide."""
    interval: tuple[float, float] | dict[str, tuple[float, float]] | None = None
    """Local times at which guidance acts."""
    count: int | None = None
    """Number of images."""


class Recommendation(Record):
    """A solver that `lwd bench sampler` recommends for one kind of guidance."""

    guide: Literal["", "weak", "null"] = ""
    """No guide, a weak model, or null: classifier-free guidance."""
    scale: float | dict[str, float] | None = None
    """Guidance scale."""
    interval: tuple[float, float] | dict[str, tuple[float, float]] | None = None
    """Local times at which guidance acts."""
    solver: str
    """Solver."""
    steps: int | None = None
    """Number of steps (fixed-step solvers)."""
    grid: list[float] | None = None
    """Times of the steps, from 0 to 1."""
    rtol: float | None = None
    """Relative tolerance (dopri5)."""
    nfe: float
    """Evaluations of the network per sample."""
    error: float
    """Measured error, relative to the standard deviation of the samples."""
    tolerance: float
    """Error that was asked for."""


class SamplingFile(FileRecord):
    """sampling.json of a model directory: the solvers that `lwd bench sampler` recommends, one for each guidance."""

    format: Literal["lwd.sampling"] = "lwd.sampling"
    version: Literal[1] = 1
    recommended: list[Recommendation]
    """The recommendations."""

    what: ClassVar[str] = "recommended solvers"


class TextParts(Record):
    """What a text-to-image model has besides its network."""

    encoder: str = ""
    """Directory of the text encoder; empty if there is none."""
    layers: tuple[int, ...] = (9, 18, 27)
    """Hidden states of the text encoder that are concatenated."""
    length: int = 512
    """Tokens of a prompt."""
    autoencoder: str = ""
    """Directory of the texture autoencoder; empty if there is none."""
    autoencoder_kind: str = "flux2"
    """Kind of the autoencoder."""
    family: Literal["base", "rl", "turbo"] = "base"
    """Family of SeFi-Image; turbo models are distilled."""
    size: tuple[int, int] = (1024, 1024)
    """Height and width of its pictures."""


class ModelFile(FileRecord):
    """config.json of a model directory."""

    format: Literal["lwd.model"] = "lwd.model"
    version: Literal[1] = 1
    architecture: Literal["lightningdit", "sefi"] = "lightningdit"
    """The network's class; sefi: a text-to-image model."""
    network: dict[str, Any]
    """Every field of `LightningDiTConfig` or `SeFiConfig`; `layout` holds channels by group, in order."""
    text: TextParts | None = None
    """Text encoder and autoencoder of a text-to-image model."""
    sampling: SamplingDefaults | None = None
    """How to sample it."""
    provenance: dict[str, Any] = Field(default_factory=dict)
    """Where the weights come from; `classes` names the classes; `any_schedule` marks a surface probe's network."""

    what: ClassVar[str] = "a model"


class OriginPart(Record):
    """A downloaded file."""

    size: int
    """In bytes."""
    sha256: str


class OriginFile(FileRecord):
    """origin.json of a directory that `lwd fetch` wrote: what was downloaded. Written last, so it means complete."""

    format: Literal["lwd.origin"] = "lwd.origin"
    version: Literal[1] = 1
    name: str
    """The model's name in the catalog."""
    repository: str
    """owner/name on the hub."""
    revision: str = ""
    """The commit that was downloaded; empty for a local copy."""
    requested: str = ""
    """The branch, tag or commit that was asked for."""
    files: dict[str, OriginPart]
    """Size and checksum by path."""

    what: ClassVar[str] = "the origin of a published model"
