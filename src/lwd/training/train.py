"""Stage II: train the final denoiser under a fixed schedule; and the setup that both stages share."""

import os
from collections.abc import Sequence
from typing import Any

import torch

from lwd.checkpoints.directory import locate
from lwd.checkpoints.text import is_text, read_text
from lwd.errors import InputError
from lwd.groups import Layout
from lwd.images.catalog import open_source
from lwd.io.files import model_digest
from lwd.io.tensors import mismatches, read_safetensors
from lwd.latents.aligned import AlignedReader, LiveFeatures
from lwd.latents.base import Latents
from lwd.latents.reader import LatentReader
from lwd.latents.shards import FEATURES
from lwd.models.lightningdit import LightningDiT, LightningDiTConfig
from lwd.models.sefi import SeFiNetwork
from lwd.objective import FlowObjective
from lwd.representations.encoders import load_encoder
from lwd.schedule.io import parse_schedule, read_provenance
from lwd.schedule.learned import Learnable
from lwd.training.config import AlignmentSettings, Config, load_config, with_changes
from lwd.training.task import RunOptions, Task, prepare
from lwd.training.text import load_text_weights, open_captions, text_network, with_text_model
from lwd.training.trainer import Outcome, Trainer
from lwd.version import __version__

Data = Latents | str | os.PathLike[str]
"""Latents in memory, an open reader, or a directory of shards."""


def train(
    config: Config | str,
    data: Data,
    out: str | os.PathLike[str],
    options: RunOptions | None = None,
    init_from: str | os.PathLike[str] | None = None,
) -> Outcome:
    """Train a denoiser under config.schedule and save it in `out`; run again to continue after an interruption.

    config: a configuration, or the name of a preset. data: a directory of shards, or latents in memory.
    init_from: a checkpoint with the initial weights of a new run, such as that of a surface probe.

    Example:
        >>> latents, labels = torch.randn(64, 6, 4, 4), torch.arange(64) % 2
        >>> data = lwd.MemoryReader(latents, labels, lwd.Layout.of(texture=4, semantic=2))
        >>> changes = ["run.steps=2", "run.batch=8", "network.depth=1", "network.width=16", "network.heads=2"]
        >>> config = lwd.load_config("cifar-small", [*changes, "schedule=offset:0.3"])
        >>> lwd.train(config, data, "runs/example").finished
        True
        >>> lwd.load("runs/example").schedule
        Offset(delta=0.3, groups=('texture', 'semantic'), lead='semantic')
    """
    config = with_text_model(load_config(config) if isinstance(config, str) else config, init_from)
    options, devices = prepare(options, config)
    data = open_data(data, config, device=devices.device)
    if not config.schedule:
        raise InputError(
            "training needs a schedule: a file written by a probe, offset:0.3 or synchronous", argument="schedule"
        )
    schedule = parse_schedule(config.schedule, data.layout.names)
    if isinstance(schedule, Learnable):
        if not schedule.frozen:
            raise InputError(
                f"{config.schedule!r} names a family, not a learned curve: it would train the identity; learn one with "
                "a probe, or use synchronous",
                argument="schedule",
            )
        schedule = schedule.to(devices.device)
    o = config.objective
    if config.alignment.images and not o.align:
        raise InputError("alignment.images has no effect without objective.align", argument="alignment.images")
    objective = FlowObjective(data.layout, o.weights, o.reduction, o.weight_gradient, cosine=o.cosine, align=o.align)
    if not o.align:  # without alignment the projector would never be trained
        config = with_changes(config, network={"tap": 0})
    about: dict[str, Any] = {"by": "lwd train", "preset": config.name, "data": data.fingerprint}
    about |= {"seed": config.run.seed, "versions": versions(), "schedule": read_provenance(config.schedule)}
    about |= class_names(data) | encoders_of(data)
    network = options.network or build_network(config, data)
    if init_from is not None:
        about["init_from"] = load_into(network, init_from)
    task = Task(network, objective, schedule, provenance=about)
    return Trainer(config, data, out, task, options).run()


def open_data(
    data: Data, config: Config, groups: Sequence[str] | None = None, device: torch.device | str = "cpu"
) -> Latents:
    """Open a directory of shards, with alignment features if the objective needs them; return latents unchanged.

    device: where alignment features are computed, if config.alignment.images names the images.
    """
    if not isinstance(data, str | os.PathLike):
        return data
    if config.text.model:
        return open_captions(data, config.changed(groups=tuple(groups)) if groups else config, device)
    reader = _open_shards(data, config, groups or config.groups or None, device)
    if not config.run.labels:
        reader.ignore_labels()
    return reader


def _open_shards(
    data: str | os.PathLike[str], config: Config, groups: Sequence[str] | None, device: torch.device | str
) -> LatentReader:
    if config.objective.align and config.alignment.images:
        return AlignedReader(data, live_features(config.alignment, device), groups)
    try:
        return LatentReader(data, groups=groups, features=config.objective.align > 0)
    except InputError as error:
        if FEATURES not in str(error):
            raise
        raise InputError(
            f"{error}; alignment needs features: encode them, name the images to compute them from "
            "(alignment.images), or set objective.align=0"
        ) from error


def live_features(settings: AlignmentSettings, device: torch.device | str) -> LiveFeatures:
    """Load the encoder and open the images of alignment features that are computed while training."""
    if not settings.encoder:
        raise InputError(
            "features from images need an encoder, such as facebook/dinov2-with-registers-base",
            argument="alignment.encoder",
        )
    encoder, source = load_encoder(settings.encoder), open_source(settings.images)
    return LiveFeatures(encoder, source, settings.size, device, settings.precision == "bf16", settings.loaders)


def build_network(config: Config, data: Latents) -> LightningDiT | SeFiNetwork:
    """Build the configured network for these data, initialised with the seed of the run."""
    if config.text.model:
        return text_network(config)
    width = getattr(data, "feature_width", None)
    features = {"features": width} if width else {}
    network = network_config(config, data.layout, classes=data.classes, grid=data.size, **features)
    torch.manual_seed(config.run.seed)
    return LightningDiT(network, config.network.recompute, config.network.compile)


def network_config(config: Config, layout: Layout, **shape: Any) -> LightningDiTConfig:
    """Return the architecture of the configured network; shape: classes, grid and features of the data."""
    n = config.network
    shape |= {
        "null_row": config.run.labels and config.run.label_drop > 0,
        "tap": n.tap,
        "projector_width": n.projector_width,
    }
    if n.size:
        return LightningDiTConfig.of(n.size, layout, **shape)
    return LightningDiTConfig(layout, n.depth, n.width, n.heads, patch=n.patch, **shape)


def load_into(network: torch.nn.Module, source: str | os.PathLike[str]) -> str:
    """Copy the weights of a checkpoint into a network; returns its digest. A projector may be missing."""
    directory = locate(source)
    if is_text(directory):
        load_text_weights(network, directory)
        return model_digest(read_text(directory).weights)
    if not (directory / "model.safetensors").exists():
        raise InputError(
            f"{directory}/model.safetensors does not exist; use the directory of a probe or training",
            argument="init_from",
        )
    weights = read_safetensors(directory / "model.safetensors")
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    own = {name: shape for name, shape in shapes.items() if not name.startswith("repa_projector") or name in weights}
    problems = mismatches(own, {name: tensor for name, tensor in weights.items() if name in own or name not in shapes})
    if problems:
        raise InputError(f"{directory} does not fit this network: " + "; ".join(problems))
    network.load_state_dict(weights, strict=False)
    return model_digest(directory)


def started(network: torch.nn.Module, init_from: str | os.PathLike[str] | None) -> torch.nn.Module:
    """Return the network with the initial weights of a checkpoint, if one is named."""
    if init_from is not None:
        load_into(network, init_from)
    return network


def class_names(data: Latents) -> dict[str, list[str]]:
    """Return the names of the classes for the provenance of a checkpoint, if the data have them."""
    names = getattr(data, "class_names", ())
    return {"classes": list(names)} if names else {}


def encoders_of(data: Latents) -> dict[str, dict[str, str]]:
    """Return what made the latents, if the data know it: metrics of the same encoder are not independent."""
    found = getattr(data, "encoders", {})
    return {"encoders": dict(found)} if found else {}


def versions() -> dict[str, str]:
    """Return the versions of lwd and torch, for provenance."""
    return {"lwd": __version__, "torch": torch.__version__}
