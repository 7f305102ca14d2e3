"""Text-to-image models that lwd trained: model directories that also name their text encoder and autoencoder.

Models of SeFi-Image are read from their own layout (`lwd.checkpoints.sefi`); `read_text` reads both.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lwd.checkpoints.directory import locate
from lwd.checkpoints.formats import ModelFile, SamplingDefaults, TextParts
from lwd.checkpoints.sefi import SOLVER, TextCheckpoint, TextModel, is_sefi, offset_of, read_sefi
from lwd.errors import InputError
from lwd.io.files import read_json
from lwd.io.tensors import find_weights, write_safetensors
from lwd.latents.statistics import Statistics, load_statistics, save_statistics
from lwd.models.sefi import SeFiConfig, SeFiNetwork
from lwd.schedule.base import Schedule
from lwd.schedule.io import load_schedule, read_provenance, save_schedule

ARCHITECTURE = "sefi"
STEPS = 50
"""Euler steps under a curve, if nothing else is recorded: as many as the reference takes under its offset."""


def is_text(directory: str | os.PathLike[str]) -> bool:
    """Whether a directory holds a text-to-image model: in the layout of SeFi-Image, or of lwd."""
    path = locate(directory) / "config.json"
    if not path.is_file():
        return is_sefi(path.parent)
    value = read_json(path)
    return isinstance(value, Mapping) and value.get("architecture") == ARCHITECTURE


def read_text(directory: str | os.PathLike[str], name: str = "") -> TextModel:
    """Read everything but the weights of a text-to-image model, or of the newest one of a run."""
    root = locate(directory)
    if not (root / "config.json").is_file():
        return read_sefi(root, name)
    record = ModelFile.read(root / "config.json")
    try:
        if record.architecture != ARCHITECTURE:
            raise InputError("it is a class-conditional model, not text-to-image")
        config = SeFiConfig.from_dict(record.network)
        with torch.device("meta"):
            SeFiNetwork(config)
    except InputError as error:
        raise InputError(f"{root / 'config.json'}: {error}") from error
    schedule, statistics = load_schedule(root / "schedule.json"), root / "statistics.json"
    about, offset = dict(record.provenance), offset_of(schedule)
    if found := read_provenance(root / "schedule.json"):
        about["schedule"] = found
    return TextModel(
        config,
        schedule,
        root,
        find_weights(root, "model"),
        record.sampling or SamplingDefaults(),
        record.text or TextParts(),
        None if offset is None else (offset, offset),
        load_statistics(statistics) if statistics.is_file() else None,
        about,
    )


def load_text(
    directory: str | os.PathLike[str],
    device: torch.device | str | None = "cpu",
    dtype: torch.dtype | None = None,
    name: str = "",
) -> TextCheckpoint:
    """Read a text-to-image model of either layout; arguments as in `load_sefi`."""
    return read_text(directory, name).load(device, dtype)


def write_text(
    directory: Path,
    config: SeFiConfig,
    state: Mapping[str, Tensor],
    schedule: Schedule,
    statistics: Statistics | None,
    record: ModelFile,
) -> None:
    """Write config.json, model.safetensors, schedule.json and statistics.json into an existing directory.

    record: sampling, text parts and provenance; the network's configuration is filled in.
    """
    about = dict(record.provenance)
    write_safetensors(directory / "model.safetensors", state)
    save_schedule(schedule, directory / "schedule.json", about.pop("schedule", None))
    if statistics is not None:
        save_statistics(statistics, directory / "statistics.json")
    changes: dict[str, Any] = {"architecture": ARCHITECTURE, "network": config.to_dict(), "provenance": about}
    record.changed(**changes).write(directory / "config.json")


def sampling_of(schedule: Schedule, configured: SamplingDefaults, base: SamplingDefaults | None) -> SamplingDefaults:
    """How a trained model is meant to be sampled: as configured, or as its base model was.

    The reference's sampler knows only offsets: under a curve, Euler's method with as many steps.
    """
    if base is None or configured != type(configured)():
        return configured
    if offset_of(schedule) is not None or base.solver != SOLVER:
        return base
    return SamplingDefaults(solver="euler", steps=base.steps or STEPS, guide=base.guide, scale=base.scale)
