"""Training on captions: the network, text encoder and data of a text-to-image model."""

import os
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from lwd.checkpoints.formats import ModelFile, SamplingDefaults, TextParts
from lwd.checkpoints.sefi import TextModel, load_weights
from lwd.checkpoints.text import is_text, read_text, sampling_of
from lwd.errors import InputError
from lwd.latents.base import Latents
from lwd.latents.captions import CaptionReader
from lwd.models.sefi import SeFiNetwork
from lwd.representations.text import TextEncoder
from lwd.schedule.base import Schedule
from lwd.training.config import Config, with_changes
from lwd.training.devices import Devices

PLACES = ("encoder", "autoencoder")


def with_text_model(config: Config, init_from: str | os.PathLike[str] | None) -> Config:
    """Take the text-to-image model of the initial weights, if they belong to one."""
    if init_from is None or not is_text(init_from):
        return config
    return with_changes(config, text={"model": str(init_from)})


def text_model(config: Config) -> TextModel:
    """The text-to-image model whose network, text encoder and autoencoder a run uses."""
    found = _read(config.text.model)
    if found.parts.family == "turbo":
        raise InputError(
            f"{config.text.model} is distilled (turbo), and training would undo that; use a base model",
            argument="text.model",
        )
    return found


@lru_cache(maxsize=8)
def _read(directory: str) -> TextModel:
    """Read once: every checkpoint records the parts, also if the model is moved during a long run."""
    return read_text(directory)


def open_captions(data: str | os.PathLike[str], config: Config, device: torch.device | str) -> CaptionReader:
    """Open shards with embedded captions as conditions."""
    model, names = text_model(config), config.groups
    if names and names != model.network.layout.names:
        expected = ", ".join(model.network.layout.names)
        raise InputError(f"the network takes the groups {expected}, got {', '.join(names)}", argument="groups")
    if config.objective.align:
        raise InputError("alignment features are for class-conditional networks; set objective.align=0")
    if model.text is None:
        raise InputError(f"{config.text.model} has no text encoder", argument="text.model")
    kind = torch.float32 if torch.device(device).type == "cpu" else torch.bfloat16
    encoder = TextEncoder(model.text, device, kind)
    if config.text.live:
        encoder.cache = None
    return CaptionReader(data, model.network.layout, encoder, captions=config.run.labels)


def text_network(config: Config) -> SeFiNetwork:
    """Build the network with random weights, drawn with the seed of the run."""
    torch.manual_seed(config.run.seed)
    return SeFiNetwork(text_model(config).network, config.network.recompute, config.network.compile)


def load_text_weights(network: torch.nn.Module, source: str | os.PathLike[str]) -> None:
    """Copy the weights of a text-to-image model into a network, in float32."""
    model = read_text(source)
    if not isinstance(network, SeFiNetwork):
        raise InputError(f"{source} is a text-to-image model, but the network is another one", argument="init_from")
    load_weights(network, model.stored, model.weights, torch.device("cpu"), torch.float32)
    network.requires_grad_(True)


def model_record(config: Config, schedule: Schedule, provenance: dict[str, Any]) -> ModelFile:
    """What the checkpoints of a run record besides the weights of its network."""
    parts, sampling = TextParts(), SamplingDefaults.model_validate(config.sampling)
    if config.text.model:
        base = text_model(config)
        places = {name: os.path.abspath(path) for name in PLACES if (path := getattr(base.parts, name))}
        parts, sampling = base.parts.changed(**places), sampling_of(schedule, sampling, base.sampling)
    return ModelFile(network={}, sampling=sampling, text=parts, provenance=provenance)


def prepare_data(data: Latents, devices: Devices, say: Callable[[str], object]) -> None:
    """Embed captions before the first step, all processes together."""
    if isinstance(data, CaptionReader):
        data.prepare(devices.rank, devices.world, say)
        devices.wait()
