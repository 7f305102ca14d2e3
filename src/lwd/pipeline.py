"""For people who only want images: load a model by directory or hub id, call it with class labels."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from lwd.checkpoint import Checkpoint, load, write_checkpoint
from lwd.errors import InputError, import_extra
from lwd.files import atomic_directory, write_bytes
from lwd.guidance import AutoGuidance, ClassifierFree, Interval, Scale
from lwd.path import Velocity
from lwd.representations.texture import TextureAutoencoder, to_uint8
from lwd.sampler import sample
from lwd.solver import Solution

AUTOENCODER = "vae"


@dataclass(frozen=True)
class Images:
    """What a call of the pipeline gives: pictures (None without an autoencoder), latents by group, and the cost."""

    images: list[Image.Image] | None
    latents: dict[str, Tensor]
    solution: Solution


class LWDPipeline:
    """A checkpoint and, if it has one, the autoencoder that turns its texture latents into pixels."""

    def __init__(self, checkpoint: Checkpoint, autoencoder: TextureAutoencoder | None = None) -> None:
        if autoencoder is not None:
            texture = checkpoint.layout.groups[0]
            if autoencoder.channels != texture.channels:
                raise InputError(
                    f"the autoencoder has {autoencoder.channels} latent channels, the group {texture.name!r} has "
                    f"{texture.channels}"
                )
        self.checkpoint, self.autoencoder = checkpoint, autoencoder

    @classmethod
    def from_pretrained(
        cls, name: str | os.PathLike[str], device: torch.device | str = "cpu", dtype: torch.dtype | None = None
    ) -> "LWDPipeline":
        """A directory, or the id of a model on the Hugging Face hub (`owner/name`), downloaded once."""
        directory = Path(name) if Path(name).is_dir() else _downloaded(str(name))
        checkpoint = load(directory, device, dtype)
        vae = directory / AUTOENCODER
        autoencoder = TextureAutoencoder.load(vae).to(device) if vae.is_dir() else None
        return cls(checkpoint, autoencoder)

    def save_pretrained(self, directory: str | os.PathLike[str], replace: bool = False) -> None:
        """Write the hub's layout: our checkpoint files, vae/ in diffusers' form, and a model card."""
        point = self.checkpoint
        with atomic_directory(directory, replace) as aside:
            write_checkpoint(aside, point.config, point.velocity.state_dict(), point.schedule, point.statistics)
            if self.autoencoder is not None:
                self.autoencoder.save(aside / AUTOENCODER)
            write_bytes(aside / "README.md", self.model_card().encode())

    def model_card(self) -> str:
        """A template to complete before publishing."""
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
        class_labels: Sequence[int],
        seed: int | Sequence[int] = 0,
        solver: str | Mapping[str, Any] = "dopri5",
        guide: "LWDPipeline | Checkpoint | Velocity | str | None" = None,
        scale: Scale | None = None,
        interval: Interval | None = None,
        size: Sequence[int] | None = None,
    ) -> Images:
        """One image per label.

        seed: of the first image, the others follow (seed, seed + 1, ...); or one seed per image.
        solver: a method's name, or its settings: {"method": "heun", "steps": 25}.
        guide: a weaker model (AutoGuidance) or "null" (classifier-free); needs a scale. size: of the latent grid.
        """
        labels = self._labels(class_labels)
        seeds = range(seed, seed + len(labels)) if isinstance(seed, int) else list(seed)
        settings = {"method": solver} if isinstance(solver, str) else dict(solver)
        solution = sample(
            self._guided(guide, scale, interval),
            self.checkpoint.schedule,
            self.checkpoint.layout,
            seeds=seeds,
            labels=labels,
            size=tuple(size or self.checkpoint.config.grid),
            device=next(self.checkpoint.velocity.parameters()).device,
            **settings,
        )
        latents = self.checkpoint.latents(solution.z)
        return Images(self._decoded(next(iter(latents.values()))), latents, solution)

    def _labels(self, labels: Sequence[int]) -> list[int]:
        null = self.checkpoint.null_label
        labels = [int(label) for label in labels]
        for label in labels:
            if not 0 <= label <= null:
                raise InputError(f"class labels lie in 0..{null - 1} ({null} = any class), got {label}")
        return labels

    def _guided(self, guide: Any, scale: Scale | None, interval: Interval | None) -> Velocity:
        main, layout = self.checkpoint.velocity, self.checkpoint.layout
        if guide is None:
            if scale is not None or interval is not None:
                raise InputError("scale and interval have no effect without a guide; pass guide=WEAK or guide='null'")
            return main
        if scale is None:
            raise InputError("a guide needs a scale, for example scale=1.5 (1 = no guidance)")
        if guide == "null":
            return ClassifierFree(main, main.null_label, scale, layout, interval)
        if isinstance(guide, str):
            raise InputError(f"guide is a model or 'null', got {guide!r}; load it first with from_pretrained")
        guide = guide.checkpoint if isinstance(guide, LWDPipeline) else guide
        if isinstance(guide, Checkpoint):
            if guide.layout != layout:
                raise InputError(f"the guide has the groups {guide.layout}, the model {layout}")
            if guide.schedule != self.checkpoint.schedule:
                raise InputError("the guide was trained under another schedule; main and guide must share their path")
            guide = guide.velocity
        return AutoGuidance(main, guide, scale, layout, interval)

    def _decoded(self, texture: Tensor) -> list[Image.Image] | None:
        if self.autoencoder is None:
            return None
        pixels = to_uint8(self.autoencoder.decode(texture)).cpu().numpy()
        return [Image.fromarray(image) for image in pixels]


def _downloaded(name: str) -> Path:
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise InputError(f"{name} is neither a directory nor a hub id (owner/name)")
    hub = import_extra("huggingface_hub", "hub", f"downloading {name}")
    patterns = ["*.json", "*.safetensors", f"{AUTOENCODER}/*"]
    try:
        return Path(hub.snapshot_download(name, allow_patterns=patterns))
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{name} is not a directory here and could not be downloaded ({reason})") from error


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

Describe before publishing: training data and its licence, encoders and what they were trained on, training
steps, FID with its protocol, intended use and limits.

```python
from lwd import LWDPipeline

pipe = LWDPipeline.from_pretrained("path/or/hub-id")
pipe([207], seed=0).images[0].save("sample.png")
```
"""
