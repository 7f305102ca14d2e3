"""A pipeline for generating images: load a model by directory or hub id, and call it with class labels."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from lwd.assets import MODELS
from lwd.checkpoints.directory import Checkpoint, load, locate, write_into
from lwd.checkpoints.formats import Recommendation
from lwd.checkpoints.published import PUBLISHED, PublishedNetwork
from lwd.checkpoints.recommended import find_recommended
from lwd.checkpoints.text import is_text
from lwd.compute.devices import Autocast, choose_precision
from lwd.errors import InputError, import_extra, nearest
from lwd.guidance import AutoGuidance, ClassifierFree, Interval, Scale
from lwd.io.files import atomic_directory, write_bytes
from lwd.io.hub import hub_error
from lwd.path import Velocity
from lwd.representations.texture import TextureAutoencoder, to_uint8
from lwd.sampling.sde import SDESettings, sampler_of
from lwd.sampling.sefi import SeFiSettings
from lwd.schedule.base import Schedule
from lwd.solver import Solution, SolverSettings

AUTOENCODER = "vae"
Pixels = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class Images:
    """The output of a pipeline: images (None without an autoencoder), latents by group, and the solver's solution."""

    images: list[Image.Image] | None
    latents: dict[str, Tensor]
    solution: Solution


class LWDPipeline:
    """A checkpoint and, optionally, the autoencoder that decodes its texture latents to pixels.

    precision: bf16 (autocast), fp32, or auto: bf16 on a GPU, fp32 on a CPU.
    """

    def __init__(
        self, checkpoint: Checkpoint, autoencoder: TextureAutoencoder | None = None, precision: str = "auto"
    ) -> None:
        names = checkpoint.layout.names
        self.decoded = "texture" if "texture" in names else names[0]
        if autoencoder is not None:
            texture = checkpoint.layout.groups[checkpoint.layout.index(self.decoded)]
            if autoencoder.channels != texture.channels:
                raise InputError(
                    f"the autoencoder has {autoencoder.channels} latent channels, but the group {texture.name!r} has "
                    f"{texture.channels}"
                )
        self.checkpoint, self.autoencoder, self.precision = checkpoint, autoencoder, precision

    @staticmethod
    def from_pretrained(
        name: str | os.PathLike[str],
        device: torch.device | str = "cpu",
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> "LWDPipeline":
        """Load a directory (checkpoint or run), `fashion` (ships with lwd), `sfd-xl` (`lwd fetch`), or a hub id.

        A text-to-image model (SeFi-Image) becomes a `TextPipeline`; options: its `offload` and `free_text`.
        """
        directory = resolve(name)
        if is_text(directory):
            from lwd.sampling.text import TextPipeline  # a subclass

            return TextPipeline.load(directory, device, dtype, str(name), **options)
        if options:
            raise InputError(f"{next(iter(options))} is for text-to-image models only")
        checkpoint = load(directory, device, dtype)
        vae = directory / AUTOENCODER
        autoencoder = TextureAutoencoder.load(vae).to(device) if vae.is_dir() else None
        return LWDPipeline(checkpoint, autoencoder)

    @property
    def device(self) -> torch.device:
        """Where the network computes."""
        return next(self.checkpoint.velocity.parameters()).device

    def under(self, schedule: Schedule, anyway: bool = False) -> "LWDPipeline":
        """Return the same model under another schedule; see `Checkpoint.under`."""
        return LWDPipeline(self.checkpoint.under(schedule, anyway), self.autoencoder)

    def with_decoder(self, autoencoder: TextureAutoencoder) -> "LWDPipeline":
        """Return the same model with another autoencoder."""
        return LWDPipeline(self.checkpoint, autoencoder)

    def save_pretrained(self, directory: str | os.PathLike[str], replace: bool = False) -> None:
        """Write a directory for the hub: the checkpoint, the autoencoder in vae/, and a model card."""
        with atomic_directory(directory, replace) as folder:
            write_into(folder, self.checkpoint)
            if self.autoencoder is not None:
                self.autoencoder.save(folder / AUTOENCODER)
            write_bytes(folder / "README.md", self.model_card().encode())

    def model_card(self) -> str:
        """Return a template of a model card, to be completed before publishing."""
        config = self.checkpoint.config
        shape = f"{config.depth} blocks of {config.width}, {config.heads} heads, patch {config.patch}"
        return CARD.format(
            groups=config.layout,
            network=f"LightningDiT, {shape}",
            classes=config.classes,
            grid="x".join(map(str, config.grid)),
            schedule=repr(self.checkpoint.schedule),
            decoder="`vae/` (diffusers AutoencoderKL)" if self.autoencoder else "none",
        )

    @torch.no_grad()
    def __call__(
        self,
        class_labels: Sequence[int | str],
        seed: int | Sequence[int] = 0,
        solver: str | Mapping[str, Any] | None = None,
        guide: "LWDPipeline | Checkpoint | Velocity | str | None" = None,
        scale: Scale | None = None,
        interval: Interval | None = None,
        size: Sequence[int] | None = None,
    ) -> Images:
        """Draw one image per label.

        seed: of the first image, the others follow (seed, seed + 1, ...); or one seed per image.
        solver: a method's name, or its settings: {"method": "heun", "steps": 25}; with noise along the way:
        {"method": "euler-maruyama", "steps": 250, "diffusion": "sigma"}. By default the one that `lwd bench sampler`
        recommended for this guidance, or dopri5.
        guide: a weaker model (AutoGuidance) or "null" (classifier-free); needs a scale. size: of the latent grid.
        """
        labels = self.check_labels(class_labels)
        if solver is None:
            one = find_recommended(self.checkpoint.recommended, guide, scale, interval)
            solver = "dopri5" if one is None else solver_of(one)
        settings = solver_options(solver)
        grid = self.checkpoint.config.grid if size is None else tuple(size)
        device = next(self.checkpoint.velocity.parameters()).device
        solution = sampler_of(settings.get("method", "dopri5"))(
            self.guided(guide, scale, interval, choose_precision(self.precision, device)),
            self.checkpoint.schedule,
            self.checkpoint.layout,
            seeds=seeds_of(seed, len(labels)),
            labels=labels,
            size=grid,
            device=device,
            **settings,
        )
        latents = self.checkpoint.latents(solution.z)
        pixels = None if self.autoencoder is None else self.decode(solution.z)
        return Images(None if pixels is None else [Image.fromarray(one) for one in pixels], latents, solution)

    def check_labels(self, labels: Any) -> list[int]:
        """Convert class labels (numbers or names) to numbers, and check that the model knows them."""
        config = self.checkpoint.config
        last = config.classes if config.null_row else config.classes - 1
        if isinstance(labels, str) or not hasattr(labels, "__iter__"):
            raise InputError(f"class_labels must be a list such as [207], got {labels!r}")
        names = {name.lower(): number for number, name in enumerate(self.checkpoint.class_names)}
        numbers = [names.get(label.lower()) if isinstance(label, str) else _as_int(label) for label in labels]
        for label, given in zip(numbers, labels, strict=True):
            if isinstance(given, str) and label is None:
                known = nearest(given, self.checkpoint.class_names) if names else "the model has no class names"
                raise InputError(f"there is no class {given!r}; {known}", argument="labels")
            if label is None or not 0 <= label <= last:
                null = f" ({config.classes} = any class)" if config.null_row else ""
                raise InputError(
                    f"class labels must be in 0..{config.classes - 1}{null}, got {given!r}", argument="labels"
                )
        return [label for label in numbers if label is not None]

    def class_name(self, label: int) -> str:
        """Return the name of a class, or its number if it has none."""
        names = self.checkpoint.class_names
        return names[label] if label < len(names) else str(label)

    def guided(
        self,
        guide: Any,
        scale: Scale | None,
        interval: Interval | None,
        precision: str = "fp32",
        null: Any = None,
    ) -> Velocity:
        """Return the velocity, guided by a weaker model or, with guide="null", by the model itself without a label.

        precision: with bf16 each network is computed under autocast; their combination is float32. null: the condition
        that stands for "without a label", if it is not the model's null label.
        """
        network, layout = self.checkpoint.velocity, self.checkpoint.layout
        low = precision == "bf16"
        main: Velocity = Autocast(network) if low else network
        if guide is None:
            if scale is not None or interval is not None:
                raise InputError(
                    "scale and interval have no effect without a guide (a weak model, or null)", argument="guide"
                )
            return main
        if scale is None:
            raise InputError("a guide needs a scale, for example 1.5 (1 = no guidance)", argument="scale")
        if guide == "null":
            return ClassifierFree(main, self.checkpoint.null_label if null is None else null, scale, layout, interval)
        if isinstance(guide, str):
            raise InputError(f"guide must be a model or 'null', got {guide!r}; load it first with from_pretrained")
        guide = guide.checkpoint if isinstance(guide, LWDPipeline) else guide
        if isinstance(guide, Checkpoint):
            if guide.layout != layout:
                raise InputError(f"the guide has the groups {guide.layout}, but the model has {layout}")
            self.check_guide(guide)
            if guide.schedule != self.checkpoint.schedule and not guide.any_schedule:
                raise InputError(
                    "the guide was trained under another schedule; model and guide must have the same schedule",
                    argument="guide",
                )
            guide = guide.velocity
        return AutoGuidance(main, Autocast(guide) if low else guide, scale, layout, interval)

    def check_guide(self, guide: Checkpoint) -> None:
        """Raise an error if the guide does not take the model's conditions."""
        ours, theirs = self.checkpoint.config, guide.config
        if not isinstance(theirs, type(ours)) or theirs.classes != ours.classes:
            found = getattr(theirs, "classes", "no")
            raise InputError(f"the guide has {found} classes, but the model {ours.classes}")

    @torch.no_grad()
    def decode(self, z: Tensor) -> Pixels:
        """Decode states (b, c, h, w) to pixels (b, height, width, 3) uint8 with the texture autoencoder."""
        if self.autoencoder is None:
            raise InputError("the model has no autoencoder (vae/) to decode with; pass one", argument="decoder")
        pixels: Pixels = to_uint8(self.autoencoder.decode(self.checkpoint.latents(z)[self.decoded])).cpu().numpy()
        return pixels


def solver_of(one: Recommendation) -> dict[str, Any]:
    """A recommendation as settings of a solver."""
    steps = {"grid": one.grid} if one.grid is not None else {"steps": one.steps, "rtol": one.rtol}
    return {"method": one.solver} | {key: value for key, value in steps.items() if value is not None}


def _as_int(value: Any) -> int | None:
    """Convert a Python, NumPy or torch integer to int; None for anything else."""
    try:
        return None if isinstance(value, bool) else index(value)
    except TypeError:
        return None


def seeds_of(seed: int | Sequence[int], count: int) -> Sequence[int]:
    """Seeds of `count` images: consecutive ones, or those given."""
    first = _as_int(seed)
    return list(seed) if first is None else range(first, first + count)  # type: ignore[arg-type]


def solver_options(solver: Any) -> dict[str, Any]:
    """The settings of a solver: its name, or a mapping with known keys."""
    kinds = (SolverSettings, SDESettings, SeFiSettings)
    known = {field.name for kind in kinds for field in fields(kind)} | {"breakpoints"}
    if isinstance(solver, str):
        return {"method": solver}
    if not isinstance(solver, Mapping):
        raise InputError(f"solver must be the name of a method or its settings, got {solver!r}")
    for key in solver:
        if key not in known:
            raise InputError(f"a solver has no setting {key!r}; {nearest(str(key), sorted(known))}")
    return dict(solver)


def resolve(name: str | os.PathLike[str]) -> Path:
    """Return the directory of a checkpoint: a path, the newest of a run, a shipped, fetched or downloaded model."""
    if str(name) in MODELS and not (locate(name) / "config.json").is_file():
        return MODELS[str(name)]
    return locate(name) if Path(name).is_dir() or str(name) in PUBLISHED else _downloaded(str(name))


def _downloaded(name: str) -> Path:
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        known = nearest(name, [*MODELS, *(n for n, one in PUBLISHED.items() if isinstance(one, PublishedNetwork))])
        raise InputError(f"{name} is neither a directory, nor a model by name, nor a hub id (owner/name); {known}")
    hub = import_extra("huggingface_hub", "hub", f"downloading {name}")
    # At any depth; the last three for SeFi-Image. No pickles of networks, no code.
    patterns = ["*.json", "*.safetensors", f"{AUTOENCODER}/*", "*.yaml", "*.txt", "*.jinja"]
    try:
        return Path(hub.snapshot_download(name, allow_patterns=patterns))
    except Exception as error:  # see lwd.io.hub
        raise hub_error(error, f"{name} is not a local directory and could not be downloaded") from error


CARD = """---
library_name: lwd
pipeline_tag: unconditional-image-generation
license: other
---

# Model card

Class-conditional latent diffusion with one clock per representation, after *Learning When to Denoise*
(Qian & Cheng, 2026).

| | |
| --- | --- |
| network | {network} |
| groups (channels) | {groups} |
| latent grid | {grid} |
| classes | {classes} |
| schedule | `{schedule}` |
| decoder | {decoder} |

Add before publishing: training data and its licence, encoders and their training data, training steps, FID with its
protocol, intended use and limitations.

```python
from lwd import LWDPipeline

pipe = LWDPipeline.from_pretrained("path/or/hub-id")
pipe([207], seed=0).images[0].save("sample.png")
```
"""
