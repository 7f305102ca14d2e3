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
    wandb: str = ""
    """Id of the run on Weights & Biases; empty if it was never logged there."""
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
    """The fixed schedule; of a surface probe the schedules that it focuses on; else null."""
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


class StoredTensor(Record):
    """Where a training tensor is: its shape, safetensors dtype, and blocks."""

    shape: tuple[int, ...]
    dtype: str
    parts: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]
    """File, offsets and sizes of each block; the file has it under the tensor's own name."""


class TensorIndex(FileRecord):
    """training.json of a checkpoint that several processes wrote: where the training tensors are."""

    format: Literal["lwd.training-parts"] = "lwd.training-parts"
    version: Literal[1] = 1
    tensors: dict[str, StoredTensor]
    """Weights, Adam's moments and rho, by name."""
    sha256: dict[str, str]
    """Checksums of the files."""

    what: ClassVar[str] = "an index of training tensors"
