"""config.json of a model directory."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from lwd.io.records import FileRecord


class ModelFile(FileRecord):
    """config.json of a model directory."""

    format: Literal["lwd.model"] = "lwd.model"
    version: Literal[1] = 1
    architecture: Literal["lightningdit"] = "lightningdit"
    """The network's class."""
    network: dict[str, Any]
    """Every field of `LightningDiTConfig`; `layout` holds channels by group, in order."""
    provenance: dict[str, Any] = Field(default_factory=dict)
    """Where the weights come from; `classes` names the classes; `any_schedule` marks a surface probe's network."""

    what: ClassVar[str] = "a model"
