"""Other people's weights into our directories, and back."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lwd.checkpoints.directory import load, write_checkpoint
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
    "a network with two clocks was trained under one schedule, and its file does not say which: offset:0.3 for SFD, "
    "the learned schedule.json for LWD; any other curve gives wrong samples without an error"
)


@dataclass(frozen=True)
class Options:
    """What shapes cannot tell."""

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
    """Convert by what `source` is: a directory of ours -> .pt; an autoencoder or a network -> a directory of ours."""
    if Path(source).is_dir():
        _unused(options, set(), "a directory of ours already holds it")
        return export_reference(source, out, replace)
    if Path(os.path.realpath(out)) in Path(os.path.realpath(source)).parents:
        raise InputError(f"{out} holds {source} itself; write to another place")
    state = read_state(source, options.weights)
    if is_ldm(state):
        _unused(options, {"weights"}, "an autoencoder has none")
        autoencoder = autoencoder_from_ldm(state)
        with atomic_directory(out, replace) as aside:
            autoencoder.save(aside)
        return (
            f"autoencoder: {parameter_count(autoencoder):,} parameters, {autoencoder.channels} latent channels -> {out}"
        )
    network = read_network(source, state, options)
    with atomic_directory(out, replace) as aside:
        network.write(aside)
    return _summary(network.config, f"{network.schedule!r}", network.statistics is not None, out)


@dataclass(frozen=True)
class Converted:
    """Another project's network in our names, ready to be written."""

    config: LightningDiTConfig
    state: Mapping[str, Tensor]
    schedule: Schedule
    statistics: Statistics | None
    provenance: Mapping[str, Any]

    def write(self, directory: Path, **more: Any) -> None:
        """Fill an existing directory; more: what else to keep about the weights' origin."""
        about = {**self.provenance, **more}
        write_checkpoint(directory, self.config, self.state, self.schedule, self.statistics, about)


def read_network(source: str | os.PathLike[str], state: Mapping[str, Tensor], options: Options) -> Converted:
    """A network from the state dict of `source`; errors say what the options must add."""
    config = infer_config(state, options.layout, options.heads, options.grid, options.tap, options.classes)
    if options.tap is not None and not config.tap:
        raise InputError("tap has no effect: the weights have no repa_projector", argument="tap")
    names = config.layout.names
    if options.schedule is None and len(names) > 1:
        raise InputError(NO_SCHEDULE, argument="schedule")
    schedule = Synchronous(names) if options.schedule is None else parse_schedule(options.schedule, names)
    if isinstance(schedule, Learnable) and not schedule.frozen:
        raise InputError("polynomial is a curve that was never learned; " + NO_SCHEDULE, argument="schedule")
    provenance: dict[str, Any] = {"converted_from": Path(source).name}
    if about := read_provenance(options.schedule) if options.schedule else {}:
        provenance["schedule"] = about
    statistics = read_reference_statistics(options.statistics) if options.statistics else None
    if statistics is not None:
        statistics.check(config.layout)
    return Converted(config, to_ours(state, config), schedule, statistics, provenance)


def export_reference(directory: str | os.PathLike[str], out: str | os.PathLike[str], replace: bool = False) -> str:
    """A directory of ours -> {'ema': state dict} in a .pt file that the reference implementations load."""
    if Path(out).suffix not in (".pt", ".pth", ".ckpt"):
        raise InputError(f"a directory of ours is exported to a .pt file, got {str(out)!r}")
    if Path(out).exists() and not replace:
        raise InputError(f"{out} exists; use another name, or replace it", argument="replace")
    checkpoint = load(directory)
    if len(checkpoint.layout) > 2:
        raise InputError(f"the reference has at most two clocks, this network has {len(checkpoint.layout)}")
    with atomic_file(out) as file:
        try:
            torch.save({"ema": to_reference(checkpoint.velocity.state_dict(), checkpoint.config)}, file)
        except RuntimeError as error:  # how torch reports a disk that is full
            raise InputError(f"cannot write {out}: {str(error).splitlines()[0]}") from error
    lost = "schedule, statistics, group names, tap, and heads without qk-norm"
    return f"{directory} -> {out} ({{'ema': ...}}; not part of that format: {lost})"


def _summary(config: LightningDiTConfig, schedule: str, statistics: bool, out: str | os.PathLike[str]) -> str:
    with torch.device("meta"):
        count = parameter_count(LightningDiT(config))
    null = " and null" if config.null_row else ""
    lines = [
        f"network:    {count:,} parameters, {config.depth} blocks of {config.width}, {config.heads} heads, "
        f"patch {config.patch}, {config.classes} classes{null}, grid {config.grid[0]}x{config.grid[1]}",
        f"groups:     {config.layout}",
        f"schedule:   {schedule}",
        f"statistics: {'yes' if statistics else 'none: samples stay on the scale of the network'}",
        f"written:    {out}",
    ]
    return "\n".join(lines)


def _unused(options: Options, used: set[str], why: str) -> None:
    extra = [name for name in options.given() if name not in used]
    if extra:
        raise InputError(f"{', '.join(extra)} would have no effect here: {why}", argument=extra[0])
