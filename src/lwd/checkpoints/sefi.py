"""SeFi-Image models in the layout of the hub, read without executing anything.

sefi_config.yaml    transformer/config.json    transformer/diffusion_pytorch_model*.safetensors (one file or shards)
scheduler/scheduler_config.json    vae/ (the Flux 2 autoencoder)    text_encoder/Qwen3-VL-*-Instruct/
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lwd.checkpoints.directory import Checkpoint
from lwd.checkpoints.formats import SamplingDefaults, TextParts
from lwd.checkpoints.sefi_config import CUSTOM, Family, SeFiFile, find_config, read_config
from lwd.compute.devices import choose_device
from lwd.errors import InputError
from lwd.groups import Layout
from lwd.io.files import read_json
from lwd.io.tensors import Stored, find_weights
from lwd.latents.statistics import Statistics
from lwd.models.sefi import SeFiConfig, SeFiNetwork, scale_settings
from lwd.representations.text import TextSettings
from lwd.schedule.base import Schedule
from lwd.schedule.fixed import Cascade, Offset, Synchronous

GROUPS = ("semantic", "texture")
SOLVER = "sefi"
"""The name of the reference's sampler."""
PATCH = 2
"""Latent pixels of the autoencoder along each side of a token."""
FACTOR = 16
"""Pixels of a picture along each side of a token, with the published autoencoders."""
LEVELS = 1000
WEIGHTS = "diffusion_pytorch_model"
QWEN = {
    "qwen3vl_2b": "Qwen3-VL-2B-Instruct",
    "qwen3vl_4b": "Qwen3-VL-4B-Instruct",
    "qwen3vl_8b": "Qwen3-VL-8B-Instruct",
}


@dataclass(frozen=True)
class TextCheckpoint(Checkpoint):
    """A text-to-image model with two clocks; its conditions are `Prompts`."""

    velocity: SeFiNetwork  # type: ignore[assignment]
    text: TextSettings | None = None
    autoencoder: Path | None = None
    """The directory of its texture autoencoder."""
    autoencoder_kind: str = "flux2"
    band: tuple[float, float] | None = (0.1, 0.1)
    """Offsets that it was trained with; None if it was trained under a curve."""
    family: str = "base"
    size: tuple[int, int] = (1024, 1024)
    """Height and width of its pictures."""

    @property
    def config(self) -> SeFiConfig:  # type: ignore[override]
        return self.velocity.config

    @property
    def null_label(self) -> int:
        raise InputError("a text-to-image model has no null label; its negative prompt is empty by default")

    @property
    def class_names(self) -> tuple[str, ...]:
        return ()

    def under(self, schedule: Schedule, anyway: bool = False) -> Checkpoint:
        """Return the same network under another schedule; outside its band only if `anyway`."""
        if self.band is None or anyway or self.any_schedule:
            return Checkpoint.under(self, schedule, anyway)
        (low, high), offset = self.band, offset_of(schedule)
        if schedule == self.schedule or (offset is not None and low <= offset <= high):
            return Checkpoint.under(self, schedule, anyway=True)
        raise InputError(
            f"the model was trained with offsets from {low:g} to {high:g}, and has not seen other local times; "
            "use such an offset, or allow other schedules (lwd surfaces measure says how far it can be trusted)",
            argument="other_schedule",
        )

    def grid(self, size: tuple[int, int] | None = None) -> tuple[int, int]:
        """Height and width of the latents of a picture."""
        height, width = size or self.size
        factor = pixels_per_token(self.autoencoder)
        if min(height, width) < factor or height % factor or width % factor:
            raise InputError(f"height and width must be multiples of {factor}, got {height}x{width}", argument="size")
        return height // factor, width // factor

    def __repr__(self) -> str:
        count = sum(weight.numel() for weight in self.velocity.parameters())
        return f"TextCheckpoint({count / 1e9:.2g}B parameters, {self.layout}, {self.schedule!r})"


@dataclass(frozen=True)
class TextModel:
    """A text-to-image model before its weights are read."""

    network: SeFiConfig
    schedule: Schedule
    weights: Path
    """Directory of the weights."""
    stored: Mapping[str, Stored]
    sampling: SamplingDefaults
    parts: TextParts
    band: tuple[float, float] | None
    statistics: Statistics | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> TextSettings | None:
        """Its text encoder."""
        p = self.parts
        return TextSettings(Path(p.encoder), p.layers, p.length) if p.encoder else None

    def load(self, device: torch.device | str | None = "cpu", dtype: torch.dtype | None = None) -> TextCheckpoint:
        """Read the weights; memory holds one copy of them. dtype: see `load_sefi`."""
        where, p = choose_device(device), self.parts
        with torch.device("meta"):
            network = SeFiNetwork(self.network)
        kind = dtype or (torch.float32 if where.type == "cpu" else torch.bfloat16)
        load_weights(network, self.stored, self.weights, where, kind)
        return TextCheckpoint(
            network.requires_grad_(False).eval(),
            self.schedule,
            self.statistics,
            provenance=self.provenance,
            sampling=self.sampling,
            text=self.text,
            autoencoder=Path(p.autoencoder) if p.autoencoder else None,
            autoencoder_kind=p.autoencoder_kind,
            band=self.band,
            family=p.family,
            size=p.size,
        )


def is_sefi(directory: str | os.PathLike[str]) -> bool:
    """Whether a directory holds a SeFi-Image model."""
    root = Path(directory)
    return not (root / "config.json").is_file() and find_config(root) is not None


def schedule_of(offset: float) -> Schedule:
    """The schedule in which the semantic group runs ahead by `offset`, from 0 to 1."""
    if offset == 0:
        return Synchronous(GROUPS)
    return Cascade(GROUPS, ("semantic", "texture")) if offset == 1 else Offset(offset, GROUPS, "semantic")


def offset_of(schedule: Schedule) -> float | None:
    """The offset of such a schedule; None for all others."""
    if isinstance(schedule, Synchronous):
        return 0.0
    if isinstance(schedule, Cascade) and len(schedule.groups) == 2 and schedule.handover == 1:
        return 1.0
    return schedule.delta if isinstance(schedule, Offset) and len(schedule.groups) == 2 else None


def load_sefi(
    directory: str | os.PathLike[str],
    device: torch.device | str | None = "cpu",
    dtype: torch.dtype | None = None,
    name: str = "",
) -> TextCheckpoint:
    """Read a model from its directory; memory holds one copy of the weights.

    dtype: bfloat16 on a GPU and float32 on a CPU, unless given. name: the hub id, if it was downloaded.
    """
    return read_sefi(directory, name).load(device, dtype)


def read_sefi(directory: str | os.PathLike[str], name: str = "") -> TextModel:
    """Read everything but the weights of a model."""
    root = Path(directory)
    if not root.is_dir():
        raise InputError(f"{root} is not a directory")
    path = find_config(root)
    if path is None:
        raise InputError(f"{root} is not a SeFi-Image model: it has no sefi_config.yaml")
    config = read_config(path)
    check_scheduler(_asset(root, config.model.assets.scheduler_path, "scheduler") / "scheduler_config.json")
    stored = find_weights(root / "transformer", WEIGHTS)
    vae = _asset(root, config.model.texture_vae.base_path, "vae")
    try:
        architecture = _architecture(config, root, vae, stored)
        with torch.device("meta"):
            SeFiNetwork(architecture)  # so that an error names the configuration
        family = config.family(name or "/".join(root.resolve().parts[-3:]))
    except InputError as error:
        raise InputError(f"{path}: {error}", error.argument) from error
    guidance, offsets = config.guidance(family), config.training.sefi
    return TextModel(
        architecture,
        schedule_of(config.offset),
        root / "transformer",
        stored,
        SamplingDefaults(
            solver=SOLVER,
            steps=config.steps(family),
            shift=config.shift(family),
            guide="null" if guidance != 1 else "",
            scale=guidance,
        ),
        _parts(config, root, vae, family),
        (offsets.delta_t_min, offsets.delta_t_max),
        provenance={"source": name or root.name, "family": family},
    )


def _parts(config: SeFiFile, root: Path, vae: Path, family: Family) -> TextParts:
    text = config.model.text_encoder
    return TextParts(
        encoder=str(_text_folder(config, root)),
        layers=text.hidden_layers,
        length=text.max_length,
        autoencoder=str(vae) if (vae / "config.json").is_file() else "",
        autoencoder_kind=config.model.texture_vae.name,
        family=family,
        size=config.size,
    )


def _architecture(config: SeFiFile, root: Path, vae: Path, stored: Mapping[str, Stored]) -> SeFiConfig:
    file = _asset(root, config.model.assets.transformer_config_path, "transformer") / "config.json"
    value = read_json(file)
    if not isinstance(value, Mapping):
        raise InputError(f"{file} must be an object")
    backbone, scale = dict(value), config.scale()
    if scale == CUSTOM:
        backbone |= config.model.transformer_overrides.model_dump(exclude_none=True)
    elif scale:
        backbone |= scale_settings(scale)
    if type(backbone.get("joint_attention_dim")) is not int:
        raise InputError(f"{file} has no joint_attention_dim (the width of prompt embeddings)")
    semantic, texture = config.model.semantic_channels, _texture_channels(vae)
    entry = stored.get("backbone.x_embedder.weight")
    if texture is None and entry is not None and len(entry.shape) == 2:
        texture = entry.shape[1] - semantic
    if texture is None or texture < 1:
        raise InputError(f"model.semantic_channels is {semantic}, which leaves no channels for the texture")
    (height, width), factor = config.size, pixels_per_token(vae)
    grid = (max(1, height // factor), max(1, width // factor))
    return SeFiConfig(Layout.of(semantic=semantic, texture=texture), backbone, grid)


def _texture_channels(vae: Path) -> int | None:
    if not (vae / "config.json").is_file():
        return None
    value = read_json(vae / "config.json")
    channels = value.get("latent_channels") if isinstance(value, Mapping) else None
    if type(channels) is not int:
        raise InputError(f"{vae / 'config.json'} has no latent_channels")
    return channels * PATCH**2


def pixels_per_token(vae: Path | None) -> int:
    """Pixels along each side of a token: the autoencoder halves the picture at all levels but one."""
    if vae is None or not (vae / "config.json").is_file():
        return FACTOR
    value = read_json(vae / "config.json")
    levels = value.get("block_out_channels") if isinstance(value, Mapping) else None
    return FACTOR if not isinstance(levels, list) or not 0 < len(levels) < 16 else int(PATCH * 2 ** (len(levels) - 1))


def _asset(root: Path, base: str, folder: str) -> Path:
    """Return a folder of the model below a path in its configuration, or in the model's own directory."""
    candidates = (root / base / folder, root / base, root / folder)
    files = ("config.json", "scheduler_config.json")
    return next((one for one in candidates if any((one / file).is_file() for file in files)), root / folder)


def _text_folder(config: SeFiFile, root: Path) -> Path:
    text = config.model.text_encoder
    folder = QWEN.get(text.model_name.strip().lower(), text.model_name)
    bases = [root / text.weights_root, root / "text_encoder", root]
    places = [place for base in bases for place in (base / folder, base)]
    return next((place for place in places if (place / "config.json").is_file()), places[0])


def check_scheduler(path: Path) -> None:
    """Raise an error unless the reference's noise levels are the 1,000 that lwd knows: 1, 0.999, ..., 0.001."""
    if not path.is_file():
        return
    value: Any = read_json(path)
    value = value if isinstance(value, Mapping) else {}
    if value.get("num_train_timesteps", LEVELS) != LEVELS:
        raise InputError(f"{path}: num_train_timesteps must be {LEVELS}, got {value['num_train_timesteps']}")
    if not value.get("use_dynamic_shifting", False) and value.get("shift", 1.0) != 1:
        raise InputError(f"{path}: noise levels with a fixed shift ({value['shift']}) are not supported, only 1")


def load_weights(
    network: SeFiNetwork, stored: Mapping[str, Stored], where: Path, device: torch.device, dtype: torch.dtype
) -> None:
    """Fill a network on the meta device, one tensor at a time, after all names and shapes were checked."""
    expected = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    problems = [f"missing {name} {shape}" for name, shape in expected.items() if name not in stored]
    for name, one in stored.items():
        if name not in expected:
            problems.append(f"unexpected {name} {one.shape}")
        elif one.shape != expected[name]:
            problems.append(f"{name} is {one.shape}, must be {expected[name]}")
        elif not one.dtype.is_floating_point:
            problems.append(f"{name} is {one.dtype}, must be floating point")
    if problems:
        more = f"; and {len(problems) - 8} more" if len(problems) > 8 else ""
        raise InputError(f"{where} does not fit its configuration: {'; '.join(sorted(problems)[:8])}{more}")
    for name, one in stored.items():
        _assign(network, name, one.read().to(device, dtype))


def _assign(network: torch.nn.Module, name: str, tensor: Tensor) -> None:
    folder, _, leaf = name.rpartition(".")
    setattr(network.get_submodule(folder), leaf, torch.nn.Parameter(tensor, requires_grad=False))
