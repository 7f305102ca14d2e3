"""Converting reference weights to model directories, and back."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lwd.checkpoints.directory import load, write_checkpoint
from lwd.checkpoints.formats import SamplingDefaults
from lwd.checkpoints.reference import infer_config, to_ours, to_reference
from lwd.errors import InputError
from lwd.groups import Layout
from lwd.io.files import atomic_directory, atomic_file
from lwd.io.tensors import read_state
from lwd.latents.statistics import Statistics, read_reference_statistics
from lwd.models.lightningdit import LightningDiT, LightningDiTConfig, parameter_count
from lwd.representations.ldm import autoencoder_from_ldm, is_ldm
from lwd.schedule.base import Schedule
from lwd.schedule.fixed import Synchronous
from lwd.schedule.io import parse_schedule, read_provenance
from lwd.schedule.learned import Learnable

NO_SCHEDULE = (
    "weights do not contain the schedule that the network was trained under; pass it: offset:0.3 for SFD, or the file "
    "of a learned schedule (another schedule gives wrong samples without an error)"
)


@dataclass(frozen=True)
class Options:
    """Settings that cannot be inferred from the shapes of the weights."""

    layout: Layout | None = None
    schedule: str | None = None
    statistics: Mapping[str, str] | None = None
    heads: int | None = None
    grid: tuple[int, int] | None = None
    tap: int | None = None
    classes: int | None = None
    weights: str = "auto"

    def given(self) -> list[str]:
        """Names of the settings that differ from their default."""
        return [name for name, value in vars(self).items() if value not in (None, "auto")]


def convert(
    source: str | os.PathLike[str], out: str | os.PathLike[str], options: Options, replace: bool = False
) -> str:
    """Convert a model directory to .pt, or the weights of a network or autoencoder to a directory.

    SFD, LightningDiT, SiT and DiT networks are recognised by their tensor names. No LWD weights have been published;
    that they would have SFD's format is a guess.
    """
    if Path(source).is_dir():
        _unused(options, set(), "a model directory already contains it")
        return export_reference(source, out, replace)
    if Path(os.path.realpath(out)) in Path(os.path.realpath(source)).parents:
        raise InputError(f"{out} contains {source} itself; use another directory", argument="out")
    state = read_state(source, options.weights)
    if is_ldm(state):
        _unused(options, {"weights"}, "the weights are an autoencoder's")
        autoencoder = autoencoder_from_ldm(state)
        with atomic_directory(out, replace) as folder:
            autoencoder.save(folder)
        return (
            f"autoencoder: {parameter_count(autoencoder):,} parameters, {autoencoder.channels} latent channels -> {out}"
        )
    network = read_network(source, state, options)
    with atomic_directory(out, replace) as folder:
        network.write(folder)
    return _summary(network.config, f"{network.schedule!r}", network.statistics is not None, out)


@dataclass(frozen=True)
class Converted:
    """A network of another project under our tensor names, ready to write."""

    config: LightningDiTConfig
    state: Mapping[str, Tensor]
    schedule: Schedule
    statistics: Statistics | None
    provenance: Mapping[str, Any]

    def write(self, directory: Path, sampling: SamplingDefaults | None = None, **more: Any) -> None:
        """Write into an existing directory; sampling: how to sample it; more: further provenance of the weights."""
        about = {**self.provenance, **more}
        write_checkpoint(directory, self.config, self.state, self.schedule, self.statistics, about, sampling)


def read_network(source: str | os.PathLike[str], state: Mapping[str, Tensor], options: Options) -> Converted:
    """Build a network from the state dict of `source`; errors name the option to add."""
    config = infer_config(state, options.layout, options.heads, options.grid, options.tap, options.classes)
    if options.tap is not None and not config.tap:
        raise InputError("tap has no effect: the weights have no repa_projector", argument="tap")
    names = config.layout.names
    if options.schedule is None and len(names) > 1:
        raise InputError(NO_SCHEDULE, argument="schedule")
    schedule = Synchronous(names) if options.schedule is None else parse_schedule(options.schedule, names)
    if isinstance(schedule, Learnable) and not schedule.frozen:
        raise InputError("polynomial is a schedule that was never learned; " + NO_SCHEDULE, argument="schedule")
    provenance: dict[str, Any] = {"converted_from": Path(source).name}
    if options.schedule and (about := read_provenance(options.schedule)):
        provenance["schedule"] = about
    statistics = read_reference_statistics(options.statistics) if options.statistics else None
    if statistics is not None:
        statistics.check(config.layout)
    return Converted(config, to_ours(state, config), schedule, statistics, provenance)


def export_reference(directory: str | os.PathLike[str], out: str | os.PathLike[str], replace: bool = False) -> str:
    """Write a model directory as {'ema': state dict} to a .pt file that the reference implementations load."""
    if Path(out).suffix not in (".pt", ".pth", ".ckpt"):
        raise InputError(f"a model directory is exported to a .pt file, got {str(out)!r}", argument="out")
    if Path(out).exists() and not replace:
        raise InputError(f"{out} exists; use another name, or replace it", argument="replace")
    checkpoint = load(directory)
    if len(checkpoint.layout) > 2:
        raise InputError(f"the reference has at most two clocks, but this network has {len(checkpoint.layout)}")
    with atomic_file(out) as file:
        try:
            torch.save({"ema": to_reference(checkpoint.velocity.state_dict(), checkpoint.config)}, file)
        except RuntimeError as error:  # torch raises this if the disk is full
            raise InputError(f"cannot write {out}: {str(error).splitlines()[0]}") from error
    lost = "schedule, statistics, group names, tap, and heads without qk-norm"
    return f"{directory} -> {out} ({{'ema': ...}}; this format does not store: {lost})"


def _summary(config: LightningDiTConfig, schedule: str, statistics: bool, out: str | os.PathLike[str]) -> str:
    with torch.device("meta"):
        count = parameter_count(LightningDiT(config))
    null = " and null" if config.null_row else ""
    lines = [
        f"network:    {count:,} parameters, {config.depth} blocks of {config.width}, {config.heads} heads, "
        f"patch {config.patch}, {config.classes} classes{null}, grid {config.grid[0]}x{config.grid[1]}",
        f"groups:     {config.layout}",
        f"schedule:   {schedule}",
        f"statistics: {'yes' if statistics else 'none (samples keep the scale of the network)'}",
        f"written:    {out}",
    ]
    return "\n".join(lines)


def _unused(options: Options, used: set[str], why: str) -> None:
    extra = [name for name in options.given() if name not in used]
    if extra:
        raise InputError(f"{', '.join(extra)} would have no effect here: {why}", argument=extra[0])
