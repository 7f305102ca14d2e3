"""A trained model as a directory: network, layout, schedule and statistics, which is all that sampling needs."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lwd.checkpoints.formats import ModelFile, Recommendation, SamplingDefaults
from lwd.checkpoints.published import PUBLISHED, locate_published
from lwd.checkpoints.recommended import read_recommended, write_recommended
from lwd.compute.devices import choose_device
from lwd.errors import InputError
from lwd.groups import Layout
from lwd.io.files import atomic_directory
from lwd.io.tensors import mismatches, read_safetensors, write_safetensors
from lwd.latents.statistics import Statistics, load_statistics, save_statistics
from lwd.models.lightningdit import LightningDiT, LightningDiTConfig
from lwd.schedule.base import Schedule
from lwd.schedule.io import load_schedule, read_provenance, save_schedule


@dataclass(frozen=True)
class Checkpoint:
    """Everything that sampling needs; `velocity` is the network in eval mode."""

    velocity: LightningDiT
    schedule: Schedule
    statistics: Statistics | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Where the weights come from; under "schedule", how the schedule was found."""
    sampling: SamplingDefaults | None = None
    """How the model is meant to be sampled."""
    recommended: tuple[Recommendation, ...] = ()
    """Solvers that `lwd bench sampler` recommends."""

    def __post_init__(self) -> None:
        if self.schedule.groups != self.layout.names:
            raise InputError(
                f"the schedule is for {', '.join(self.schedule.groups)}, "
                f"but the network for {', '.join(self.layout.names)}"
            )
        if self.statistics is not None:
            self.statistics.check(self.layout)

    @property
    def config(self) -> LightningDiTConfig:
        return self.velocity.config

    @property
    def layout(self) -> Layout:
        return self.config.layout

    @property
    def null_label(self) -> int:
        return self.velocity.null_label

    @property
    def any_schedule(self) -> bool:
        """Whether the network was trained at independent local times, so that it works under every schedule."""
        return bool(self.provenance.get("any_schedule"))

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes 0, 1, ...; empty if they are not known."""
        names = self.provenance.get("classes")
        if not isinstance(names, list) or len(names) != self.config.classes:
            return ()
        return tuple(str(name) for name in names)

    def under(self, schedule: Schedule, anyway: bool = False) -> "Checkpoint":
        """Return the same network under another schedule.

        Raises an error if the network was trained under a single schedule, unless `anyway`.
        """
        if schedule == self.schedule:
            return self
        if not (self.any_schedule or anyway):
            raise InputError(
                "the model was trained under another schedule and has not seen the local times of this one; use the "
                "network of a surface probe, train under the new schedule, or allow it",
                argument="other_schedule",
            )
        return replace(self, schedule=schedule, recommended=())

    def latents(self, z: Tensor) -> dict[str, Tensor]:
        """Split a sampled state into groups, on the scale of their encoders."""
        return self.layout.split(z if self.statistics is None else self.statistics.denormalize(z, self.layout))

    def __repr__(self) -> str:
        c = self.config
        statistics = "with statistics" if self.statistics else "no statistics"
        return f"Checkpoint({c.depth} blocks of {c.width}, {c.layout}, {self.schedule!r}, {statistics})"


def write_checkpoint(
    directory: Path,
    config: LightningDiTConfig,
    state: Mapping[str, Tensor],
    schedule: Schedule,
    statistics: Statistics | None,
    provenance: Mapping[str, Any] | None = None,
    sampling: SamplingDefaults | None = None,
) -> None:
    """Write config.json, model.safetensors, schedule.json and statistics.json into an existing directory."""
    about = dict(provenance or {})
    write_safetensors(directory / "model.safetensors", state)
    save_schedule(schedule, directory / "schedule.json", about.pop("schedule", None))
    if statistics is not None:
        save_statistics(statistics, directory / "statistics.json")
    ModelFile(network=config.to_dict(), sampling=sampling, provenance=about).write(directory / "config.json")


def save(checkpoint: Checkpoint, directory: str | os.PathLike[str], replace: bool = False) -> None:
    """Write a checkpoint as a directory, atomically."""
    with atomic_directory(directory, replace) as folder:
        write_into(folder, checkpoint)


def write_into(directory: Path, checkpoint: Checkpoint) -> None:
    """Write the files of a checkpoint into an existing directory."""
    c = checkpoint
    write_checkpoint(directory, c.config, c.velocity.state_dict(), c.schedule, c.statistics, c.provenance, c.sampling)
    write_recommended(directory, c.recommended)


def locate(directory: str | os.PathLike[str]) -> Path:
    """Return the checkpoint in a directory: the directory itself, the newest of a run, or a published model by name."""
    directory = Path(directory)
    if str(directory) in PUBLISHED and not directory.is_dir():
        return locate_published(str(directory))
    latest = directory / "checkpoints" / "latest"
    if (directory / "config.json").exists() or not latest.is_file():
        return directory
    try:
        name = Path(latest.read_text("utf-8", errors="replace").strip()).name
    except OSError as error:
        raise InputError(f"cannot read {latest}: {error.strerror or error}") from error
    if not name.isdecimal() or len(name) > 20:
        raise InputError(f"{latest} must contain the name of a checkpoint such as 00000100, got {name[:40]!r}")
    return latest.parent / name


def load(
    directory: str | os.PathLike[str], device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> Checkpoint:
    """Read a checkpoint, or the newest one of a run. Memory holds one copy of the weights."""
    directory = locate(directory)
    if not directory.is_dir():
        hint = "; to read a .pt file, use lwd convert" if directory.is_file() else ""
        raise InputError(f"{directory} is not a checkpoint directory{hint}")
    from lwd.checkpoints.text import is_text, load_text  # a subclass

    if is_text(directory):
        return load_text(directory, device, dtype)
    record = ModelFile.read(directory / "config.json")
    config = network_config(record, directory / "config.json")
    device = choose_device(device)
    with torch.device("meta"), _Undrawn():
        network = LightningDiT(config)
    state = read_safetensors(directory / "model.safetensors", str(device))
    problems = mismatches({name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}, state)
    if problems:
        raise InputError(f"{directory / 'model.safetensors'} does not fit its config.json: " + "; ".join(problems))
    network.load_state_dict(state, assign=True)
    # One dtype for all weights: the requested one, or the widest in the file; at least float32 on a CPU.
    kinds = {tensor.dtype for tensor in state.values()} | (
        {torch.float32} if torch.device(device).type == "cpu" else set()
    )
    dtype = dtype or reduce(torch.promote_types, kinds)
    statistics, schedule = directory / "statistics.json", directory / "schedule.json"
    provenance = dict(record.provenance)
    if about_schedule := read_provenance(schedule):
        provenance["schedule"] = about_schedule
    return Checkpoint(
        network.requires_grad_(False).eval().to(dtype),
        load_schedule(schedule),
        load_statistics(statistics) if statistics.exists() else None,
        provenance,
        record.sampling,
        read_recommended(directory),
    )


class _Undrawn(TorchFunctionMode):
    """Build a network without drawing its weights: on the meta device `normal_` imports torch._dynamo, for seconds."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in ("normal_", "uniform_"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def network_config(record: ModelFile, path: Path) -> LightningDiTConfig:
    """Read the configuration of the network in a model directory; errors name `path`."""
    try:
        return LightningDiTConfig.from_dict(record.network)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
