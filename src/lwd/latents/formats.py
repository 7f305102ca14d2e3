"""JSON files of latents: the manifest of a directory, statistics, and the state of a running encoding."""

from collections import Counter
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from lwd.errors import InputError
from lwd.io.records import FileRecord, Record

Layout = dict[str, Annotated[int, Field(ge=1)]]


class GroupStatistics(Record):
    """Per-channel statistics of one group; z = (latent - mean) / std."""

    mean: list[float]
    """Mean of each channel."""
    std: list[Annotated[float, Field(gt=0)]]
    """Standard deviation of each channel."""


class StatisticsFile(FileRecord):
    """statistics.json: per-channel statistics of each group's latents."""

    format: Literal["lwd.statistics"] = "lwd.statistics"
    version: Literal[1] = 1
    groups: Annotated[dict[str, GroupStatistics], Field(min_length=1)]
    """Statistics by group."""

    what: ClassVar[str] = "statistics"


class ShardLine(Record):
    """One shard of a directory."""

    file: str
    """Name of the file, next to the manifest."""
    count: Annotated[int, Field(ge=0)]
    """Number of images."""
    sha256: str
    """Checksum of the file."""


class Manifest(FileRecord):
    """manifest.json of a directory of shards; written last, so that a directory with a manifest is complete."""

    format: Literal["lwd.shards"] = "lwd.shards"
    version: Literal[1] = 1
    layout: Layout
    """Channels by group, in order."""
    classes: Annotated[int, Field(ge=1)]
    """Number of classes."""
    count: Annotated[int, Field(ge=0)]
    """Number of images in all shards."""
    shards: list[ShardLine]
    """The shards, in order."""
    statistics: dict[str, GroupStatistics]
    """Statistics by group, over the latents and their mirrored copies."""
    provenance: dict[str, Any] = Field(default_factory=dict)
    """Source, encoders, class names and the size of images; `left_out` lists images that could not be read."""

    what: ClassVar[str] = "a manifest of shards"

    @model_validator(mode="after")
    def _check_files(self) -> "Manifest":
        names = [line.file for line in self.shards]
        for name in names:
            if PurePath(name).name != name or name.startswith("."):
                raise InputError(f"shards must be files next to the manifest, got {name!r}")
        repeated = [name for name, times in Counter(names).items() if times > 1]
        if repeated:
            raise InputError(f"shards lists {', '.join(repeated[:5])} more than once")
        return self

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes; empty if they are not known."""
        names = self.provenance.get("classes")
        return tuple(map(str, names)) if isinstance(names, list) and len(names) == self.classes else ()

    @property
    def encoders(self) -> dict[str, str]:
        """Identities of the encoders and compressors by group; empty if they are not known."""
        found = self.provenance.get("encoders")
        return {str(name): str(one) for name, one in found.items()} if isinstance(found, dict) else {}


class CaptionsFile(FileRecord):
    """captions.json beside manifest.json: a text for each image."""

    format: Literal["lwd.captions"] = "lwd.captions"
    version: Literal[1] = 1
    captions: list[str]
    """One for each image in the shards, in order."""

    what: ClassVar[str] = "captions"


class PartMoments(Record):
    """Count, mean and sum of squared deviations of each channel of a group."""

    count: int
    mean: list[float]
    squares: list[float]


class ShardPart(Record):
    """parts/NNNNN.json, written after shard N while `lwd encode` runs; a shard without it is encoded again."""

    line: ShardLine | None
    """The shard's entry in the manifest; null if none of its images could be read."""
    bytes: int
    """Size of the shard's file."""
    shape: tuple[int, int] | None
    """Height and width of the images."""
    moments: dict[str, PartMoments]
    """Moments of the latents by group."""
    bad: list[tuple[int, str]]
    """Numbers and names of images that could not be read."""
