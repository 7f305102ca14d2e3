"""Text-to-image models: prompts in, images out."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from PIL import Image
from torch import nn

from lwd.checkpoints.directory import Checkpoint
from lwd.checkpoints.sefi import SOLVER, TextCheckpoint, TextModel
from lwd.checkpoints.text import read_text
from lwd.compute.devices import choose_device
from lwd.errors import InputError
from lwd.guidance import Scale
from lwd.models.sefi import Prompts
from lwd.representations.flux2 import Flux2Autoencoder
from lwd.representations.text import TextEncoder
from lwd.representations.texture import TextureAutoencoder
from lwd.sampling.pipeline import Images, LWDPipeline, seeds_of, solver_options
from lwd.sampling.sde import sampler_of
from lwd.sampling.settings import SampleSettings
from lwd.schedule.base import Schedule

NO_NEGATIVE = "a negative prompt has no effect without classifier-free guidance (guide null, scale above 1)"
Encoder = Callable[[Sequence[str]], Prompts]
TURBO_STEPS = (4, 8, 10)
SPARE = 0.8
"""Share of a GPU's free memory that weights may fill; the rest is for activations."""


class TextPipeline(LWDPipeline):
    """A text-to-image model with two clocks, its text encoder and its autoencoder.

    encoder: texts to `Prompts`, for example `lwd.representations.text.TextEncoder`. free_text: release the text
    encoder's weights before denoising. device: where the network computes, if it is offloaded.
    """

    checkpoint: TextCheckpoint

    def __init__(
        self,
        checkpoint: TextCheckpoint,
        autoencoder: TextureAutoencoder | None = None,
        encoder: Encoder | None = None,
        free_text: bool = False,
        device: torch.device | None = None,
    ) -> None:
        super().__init__(checkpoint, autoencoder)
        self.encoder, self.free_text, self._device = encoder, free_text, device

    @classmethod
    def load(
        cls,
        directory: Path,
        device: torch.device | str | None = "cpu",
        dtype: torch.dtype | None = None,
        name: str = "",
        offload: bool | None = None,
        free_text: bool = False,
    ) -> "TextPipeline":
        """Load a directory in SeFi-Image's layout, or one that lwd trained; the text encoder follows the first prompt.

        offload: keep the weights in the CPU's memory and move them block by block (default: if they do not fit).
        """
        where = choose_device(device)
        kind = dtype or (torch.float32 if where.type == "cpu" else torch.bfloat16)
        model = read_text(directory, name)
        away = offload if offload is not None else not fits(model, where, kind)
        checkpoint = model.load("cpu" if away else where, kind)
        if away:
            offload_blocks(checkpoint.velocity, where)
        vae, autoencoder = checkpoint.autoencoder, None
        if vae is not None:
            autoencoder = Flux2Autoencoder.read(vae, checkpoint.autoencoder_kind, kind).to(where)
        encoder = TextEncoder(checkpoint.text, where, kind) if checkpoint.text is not None else None
        return cls(checkpoint, autoencoder, encoder, free_text, where)

    @property
    def device(self) -> torch.device:
        return super().device if self._device is None else self._device

    def under(self, schedule: Schedule, anyway: bool = False) -> "TextPipeline":
        point = cast(TextCheckpoint, self.checkpoint.under(schedule, anyway))
        return TextPipeline(point, self.autoencoder, self.encoder, self.free_text, self._device)

    def with_decoder(self, autoencoder: TextureAutoencoder) -> "TextPipeline":
        return TextPipeline(self.checkpoint, autoencoder, self.encoder, self.free_text, self._device)

    @torch.no_grad()
    def __call__(  # type: ignore[override]
        self,
        prompt: str | Sequence[str] | Prompts,
        negative_prompt: str | Sequence[str] | Prompts = "",
        seed: int | Sequence[int] = 0,
        solver: str | Mapping[str, Any] | None = None,
        size: int | tuple[int, int] | None = None,
        **guidance: Any,
    ) -> Images:
        """Draw one image per prompt.

        negative_prompt: one for all, or one each. seed, solver: as for other models; by default the model's own, the
        reference's sampler. size: height and width in pixels, or one number for both.
        guidance: scale (default: the model's; 1 = none), interval, guide ("null", or a weaker model).
        """
        for name in guidance:
            if name not in ("guide", "scale", "interval"):
                raise InputError(f"there is no option {name!r}; known: guide, scale, interval")
        options = self.default_solver() if solver is None else solver_options(solver)
        if options.get("method") == SOLVER:
            options = self.default_solver() | options
        self._check_turbo(options, guidance.get("scale"))
        grid = self.checkpoint.grid((size, size) if isinstance(size, int) else size)
        prompts = self.embed(prompt)
        guide = guidance.get("guide", self.default_guide(guidance.get("scale")))
        scale = None if guide is None else guidance.get("scale", self._scale)
        if guide != "null" and negative_prompt != "":
            raise InputError(NO_NEGATIVE, argument="negative")
        null = self.embed(negative_prompt) if guide == "null" else None
        if self.free_text:
            self.free()
        solution = sampler_of(options.get("method", "dopri5"))(
            self.guided(guide, scale, guidance.get("interval"), null=None if null is None else null.to(self.device)),
            self.checkpoint.schedule,
            self.checkpoint.layout,
            seeds=seeds_of(seed, len(prompts)),
            labels=prompts,
            size=grid,
            device=self.device,
            **options,
        )
        pixels = None if self.autoencoder is None else self.decode(solution.z)
        images = None if pixels is None else [Image.fromarray(one) for one in pixels]
        return Images(images, self.checkpoint.latents(solution.z), solution)

    def embed(self, prompt: str | Sequence[str] | Prompts) -> Prompts:
        """Embed texts; embeddings are returned as they are."""
        if isinstance(prompt, Prompts):
            return prompt
        texts = [prompt] if isinstance(prompt, str) else list(prompt)
        if self.encoder is None:
            raise InputError("the model has no text encoder; pass prompt embeddings (lwd.Prompts)", argument="prompts")
        found = self.encoder(texts)
        wanted = self.checkpoint.config.text_width
        if found.embeddings.shape[2] != wanted:
            raise InputError(
                f"the text encoder's embeddings have width {found.embeddings.shape[2]}, but the model takes {wanted}"
            )
        return found

    def free(self) -> None:
        """Release the text encoder's weights."""
        if isinstance(self.encoder, TextEncoder):
            self.encoder.free()

    @property
    def _scale(self) -> Scale | None:
        return self.checkpoint.sampling.scale if self.checkpoint.sampling is not None else None

    def default_solver(self) -> dict[str, Any]:
        """The model's own sampler and steps."""
        found = self.checkpoint.sampling
        if found is None:
            return {"method": SOLVER}
        given = {name: getattr(found, name) for name in ("steps", "shift", "atol", "rtol")}
        return {"method": found.solver} | {name: value for name, value in given.items() if value is not None}

    def default_guide(self, scale: Scale | None) -> str | None:
        """Classifier-free guidance, unless the scale is 1."""
        return None if (self._scale if scale is None else scale) in (None, 1) else "null"

    def _check_turbo(self, options: Mapping[str, Any], scale: Scale | None) -> None:
        if self.checkpoint.family == "turbo":
            if options.get("method") == SOLVER and options.get("steps") not in TURBO_STEPS:
                known = ", ".join(map(str, TURBO_STEPS))
                raise InputError(f"turbo models take {known} steps, got {options.get('steps')}", argument="steps")
            if scale not in (None, 1):
                raise InputError(f"turbo models take no guidance (scale 1), got {scale}", argument="scale")

    def settings_prompts(self, settings: SampleSettings) -> Prompts:
        """Embed the prompts of settings; the negative prompt comes last."""
        if settings.labels:
            raise InputError("a text-to-image model takes prompts, not class labels", argument="labels")
        if settings.prompts is None:
            raise InputError("a text-to-image model needs a prompt", argument="prompts")
        self._check_turbo({"method": settings.solver, "steps": settings.steps}, settings.scale)
        self.checkpoint.grid(settings.size)
        found = self.embed([*settings.prompts, settings.negative or ""])
        if self.free_text:
            self.free()
        return found

    def check_guide(self, guide: Checkpoint) -> None:
        theirs, ours = getattr(guide.config, "text_width", None), self.checkpoint.config.text_width
        if theirs != ours:
            raise InputError(f"the guide takes prompt embeddings of width {theirs}, but the model of {ours}")

    def class_name(self, label: int) -> str:
        return f"prompt {label + 1}"

    def save_pretrained(self, directory: Any, replace: bool = False) -> None:
        del replace
        raise InputError(f"a model of SeFi-Image is not written to {directory}; copy its directory instead")


def fits(model: TextModel, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the weights fit into the free memory of a GPU, with some to spare; always on a CPU."""
    if device.type != "cuda":
        return True
    needed = sum(dtype.itemsize * torch.Size(one.shape).numel() for one in model.stored.values())
    return needed < SPARE * torch.cuda.mem_get_info(device)[0]


def offload_blocks(network: nn.Module, device: torch.device) -> None:
    """Keep a network's weights in the CPU's memory; accelerate moves those of one layer at a time."""
    from accelerate import cpu_offload

    cpu_offload(network, execution_device=device)
