"""A model ready to draw samples: each depends only on its number, not on the batch."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from lwd.checkpoints.formats import Recommendation, SamplingDefaults
from lwd.checkpoints.recommended import find_recommended
from lwd.checkpoints.sefi import TextCheckpoint
from lwd.compute.devices import choose_device, choose_precision, float32_to_the_bit, threads
from lwd.errors import InputError
from lwd.images.pictures import tile
from lwd.io.files import model_digest, read_json
from lwd.models.sefi import Prompts
from lwd.path import Velocity
from lwd.representations.texture import TextureAutoencoder, locate_autoencoder
from lwd.sampling.diffusion import LastStep, coefficients_of
from lwd.sampling.flow import Flow
from lwd.sampling.pipeline import AUTOENCODER, LWDPipeline, Pixels, resolve
from lwd.sampling.placement import place
from lwd.sampling.sde import SDE_METHODS, noise_ends, sampler_of, sde_settings
from lwd.sampling.settings import RECOMMENDED, SEFI, UNIFORM, SampleSettings
from lwd.sampling.text import NO_NEGATIVE, TextPipeline
from lwd.schedule.io import parse_schedule
from lwd.solver import FIXED_METHODS, Solution
from lwd.solver.base import Watch

ROWS = 8
"""Batches are padded to a multiple of this: see `lwd.sample`."""
SOLVING = frozenset({"solver", "steps", "placement", "atol", "rtol"})
"""Settings with which a user chooses a solver."""
DISPLAY = 84
"""Approximate minimum width of an image in a grid, in pixels."""


@dataclass(frozen=True)
class Generator:
    """A model, its guide and the settings; `record` identifies their files in the manifest."""

    pipe: LWDPipeline
    settings: SampleSettings
    guide: Any = None
    record: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    """Directories of model, guide and decoder; they do not affect the result."""
    prompts: Prompts | None = None
    """Conditions of a text-to-image model, which labels number; the last one is the negative prompt."""

    def __post_init__(self) -> None:
        self.choice()
        self.velocity()
        self.noise()

    def check_decoder(self) -> None:
        """Raise an error if the model has no autoencoder; long jobs call this first."""
        if self.pipe.autoencoder is None:
            raise InputError("the model has no autoencoder (vae/) to decode with; pass one", argument="decoder")

    def flow(self) -> Flow:
        """Return the flow, for step placement and solver benchmarks."""
        c, count = self.pipe.checkpoint, self.settings.count
        choice, prompts = self.choice(), self.prompts
        return Flow(self.velocity(), c.schedule, c.layout, self.grid, choice, count, self.device, prompts=prompts)

    def velocity(self) -> Velocity:
        s, null = self.settings, None if self.prompts is None else self.prompts[-1:]
        return self.pipe.guided(self.guide, s.scale, s.interval, choose_precision(s.precision, self.device), null)

    @property
    def grid(self) -> tuple[int, int]:
        """Height and width of the latents."""
        c = self.pipe.checkpoint
        return c.grid(self.settings.size) if isinstance(c, TextCheckpoint) else c.config.grid

    def conditions(self, labels: Sequence[int]) -> Any:
        """Return what the network takes for these labels: themselves, or the prompts with these numbers."""
        return list(labels) if self.prompts is None else self.prompts[torch.tensor(labels)]

    def choice(self) -> list[int]:
        """Return the classes, or numbers of prompts, that images cycle through."""
        if self.prompts is not None:
            return list(range(len(self.prompts) - 1))
        return self.pipe.check_labels(self.settings.labels or range(self.pipe.checkpoint.config.classes))

    def labels(self) -> list[int]:
        """Return one label for each image."""
        return balanced(self.choice(), self.settings.count)

    def solver(self) -> dict[str, Any]:
        """Options for `sample`; where a placement is asked for, the times are found here (on a calibration batch)."""
        s, noise = self.settings, self.noise()
        if s.solver == SEFI:
            given = {"steps": s.steps, "shift": s.shift}
            return {"method": SEFI} | {name: value for name, value in given.items() if value is not None}
        if s.solver not in (*FIXED_METHODS, *SDE_METHODS):
            options = {"atol": s.atol, "rtol": s.rtol}
            return {"method": s.solver, "adaptive": "sample"} | {k: v for k, v in options.items() if v is not None}
        if s.placement == UNIFORM:
            return {"method": s.solver, "steps": s.steps, **noise}
        assert s.steps
        if s.placement == RECOMMENDED:
            return {"method": s.solver, "grid": self.recommended_grid()}
        grid = place(s.placement, s.steps, s.solver, self.flow(), self._noise_ends())
        return {"method": s.solver, "grid": list(grid), **noise}

    def recommended_grid(self) -> list[float]:
        """The times of the steps that are stored with the model for this guidance."""
        s = self.settings
        one = find_recommended(self.pipe.checkpoint.recommended, self.guide, s.scale, s.interval)
        if one is None or one.grid is None or (one.solver, one.steps) != (s.solver, s.steps):
            raise InputError(
                f"the model has no recommended times of {s.steps} steps of {s.solver} with this guidance; "
                "run lwd bench sampler, or use another placement",
                argument="placement",
            )
        return one.grid

    def noise(self) -> dict[str, Any]:
        """What an SDE solver is told about its noise, checked; nothing for the others."""
        s = self.settings
        if s.solver not in SDE_METHODS:
            return {}
        given = {"method": s.solver, "diffusion": s.diffusion, "last_step": s.last_step}
        sde = sde_settings(**{name: value for name, value in given.items() if value is not None})
        coefficients_of(sde.diffusion, self.pipe.checkpoint.layout.names)
        return {"diffusion": sde.diffusion, "last_step": sde.last_step}

    def _noise_ends(self) -> tuple[float, ...]:
        noise, schedule = self.noise(), self.pipe.checkpoint.schedule
        if not noise:
            return ()
        return noise_ends(
            schedule, coefficients_of(noise["diffusion"], schedule.groups), LastStep.parse(noise["last_step"])
        )

    @property
    def device(self) -> torch.device:
        return self.pipe.device

    def draw(
        self, low: int, high: int, solver: Mapping[str, Any], watch: Watch | None = None
    ) -> tuple[Pixels, list[int]]:
        """Draw images low to high - 1; returns pixels, and the number of evaluations of each image.

        watch: see `solve`.
        """
        solution = self.solve(low, high, solver, watch)
        # Convolutions are rounded by the batch's size: the decoder always sees the same number of rows.
        rows = ROWS if self.prompts is None else self.settings.batch
        z = torch.cat([solution.z, solution.z[-1:].expand(-(high - low) % rows, -1, -1, -1)])
        with float32_to_the_bit(self._exact):
            pixels = np.concatenate([self.pipe.decode(part) for part in torch.split(z, rows)])
        return pixels[: high - low], solution.nfe_per_sample.tolist()

    def solve(self, low: int, high: int, solver: Mapping[str, Any], watch: Watch | None = None) -> Solution:
        """Compute the latents of images low to high - 1.

        watch: called with tau and the states after each step (not by sefi); the batch may have more rows.
        """
        c, batch = self.pipe.checkpoint, self.settings.batch
        seeds = range(self.settings.seed + low, self.settings.seed + high)
        labels = self.conditions(self.labels()[low:high])
        # Other devices may choose kernels by batch size: the batch starts full and, if asked for fp32, stays full.
        # Pictures of text-to-image models are large: no more of them than asked for.
        rows = ROWS if self.device.type == "cpu" and self.prompts is None else max(batch, 1)
        place: dict[str, Any] = {"size": self.grid, "device": self.device, "rows": rows}
        if solver["method"] == "dopri5":
            place["drop"] = rows if self._exact else ROWS
        if watch is not None:
            place["watch"] = watch
        draw = sampler_of(solver["method"])
        with float32_to_the_bit(self._exact):
            return draw(self.velocity(), c.schedule, c.layout, seeds=seeds, labels=labels, **place, **solver)

    @property
    def _exact(self) -> bool:
        return choose_precision(self.settings.precision, self.device) == "fp32"


def balanced(classes: Sequence[int], count: int) -> list[int]:
    """Cycle through the classes: as many images of each, up to one."""
    return [classes[i % len(classes)] for i in range(count)]


def draw_grid(generator: Generator) -> Image.Image:
    """Draw the first images (up to 64) as one picture, without writing any file."""
    generator.check_decoder()
    with threads(generator.settings.threads):
        solver, count, size = generator.solver(), min(64, generator.settings.count), generator.settings.batch
        parts = [generator.draw(low, min(low + size, count), solver)[0] for low in range(0, count, size)]
        sheet = Image.fromarray(tile(np.concatenate(parts), generator.labels()))
        # Enlarge small images, so that they can be seen.
        factor = max(1, DISPLAY // parts[0].shape[2])
        return sheet.resize((factor * sheet.width, factor * sheet.height), Image.Resampling.NEAREST)


def open_generator(
    model: str | os.PathLike[str],
    settings: SampleSettings,
    guide: str | None = None,
    decoder: str | None = None,
    device: str | None = None,
    schedule: str | None = None,
    other_schedule: bool = False,
    **text: Any,
) -> Generator:
    """Load a model, a guide (a directory or `null`), a decoder and a schedule by their command-line names.

    other_schedule: allow a schedule that the model was not trained for. text: options of `TextPipeline.load`.
    """
    if other_schedule and schedule is None:
        raise InputError("other_schedule has no effect without a schedule", argument="other_schedule")
    where = choose_device(device)
    pipe, record, own = _open(model, where, schedule, other_schedule, **text)
    about, names = {"model": record}, {"model": str(model)}
    if decoder is not None:
        pipe, own = pipe.with_decoder(TextureAutoencoder.load(decoder).to(where).eval()), locate_autoencoder(decoder)
    if own.is_dir():
        about["decoder"], names["decoder"] = {"digest": model_digest(own)}, str(decoder or f"{model}/{AUTOENCODER}")
    weak: Any = guide
    if guide is not None:
        names["guide"] = guide
        about["guide"] = {}
        if guide != "null":
            weak, about["guide"], _ = _open(guide, where, schedule, other_schedule)
    asked = settings.model_fields_set
    if isinstance(pipe, TextPipeline):
        weak = pipe.default_guide(settings.scale) if weak is None else weak
        settings = _text_settings(settings, pipe, weak, where)
        prompts = pipe.settings_prompts(settings)
        return Generator(pipe, settings, weak, about if weak is None else {"guide": {}} | about, names, prompts)
    for name in ("prompts", "negative", "size"):
        if getattr(settings, name) is not None:
            raise InputError(f"{name} has no effect on a class-conditional model; use labels", argument=name)
    settings = with_defaults(settings, pipe.checkpoint.sampling, guide is not None)
    if not asked & SOLVING:
        settings = with_recommended(settings, pipe.checkpoint.recommended, guide)
    precision = choose_precision(settings.precision, where)
    settings = settings.changed(labels=tuple(pipe.check_labels(settings.labels)), precision=precision)
    return Generator(pipe, settings, weak, about, names)


def _text_settings(settings: SampleSettings, pipe: TextPipeline, weak: Any, device: torch.device) -> SampleSettings:
    """Settings of a text-to-image model, with its own defaults; one picture at a time, unless a batch is given."""
    if settings.negative is not None and weak != "null":
        raise InputError(NO_NEGATIVE, argument="negative")
    batch = settings.batch if "batch" in settings.model_fields_set else 1
    precision = choose_precision(settings.precision, device)
    filled = with_defaults(settings, pipe.checkpoint.sampling, weak is not None)
    filled = filled if weak is not None else filled.changed(scale=None)
    return filled.changed(batch=batch, precision=precision)


def with_defaults(settings: SampleSettings, defaults: SamplingDefaults | None, guided: bool) -> SampleSettings:
    """Settings that were not given come from the model's own defaults; a solver that was given keeps its own."""
    if defaults is None:
        return settings
    given, found = settings.model_fields_set, defaults.model_fields_set
    names = {"count"} | ({"scale", "interval"} if guided else set())
    if not given & SOLVING:
        names |= {"solver", "steps", "atol", "rtol", "shift"}
    elif settings.solver == defaults.solver == SEFI:
        names |= {"steps", "shift"}
    changes = {name: getattr(defaults, name) for name in (names & found) - given}
    return settings.changed(**{name: value for name, value in changes.items() if value is not None})


def with_recommended(
    settings: SampleSettings, recommended: Sequence[Recommendation], guide: str | None
) -> SampleSettings:
    """Use the solver that is recommended for this guidance, if there is one."""
    one = find_recommended(recommended, guide, settings.scale, settings.interval)
    if one is None:
        return settings
    placement = UNIFORM if one.grid is None else RECOMMENDED
    return settings.changed(solver=one.solver, steps=one.steps, placement=placement, rtol=one.rtol, atol=None)


def _open(
    name: str | os.PathLike[str], device: torch.device, schedule: str | None, anyway: bool, **text: Any
) -> tuple[LWDPipeline, dict[str, Any], Path]:
    """Load a model; returns it, its record, and the path of its decoder."""
    directory = resolve(name)  # once, because a run that is still training writes newer checkpoints
    pipe = LWDPipeline.from_pretrained(directory, device, **text)
    if schedule is not None:
        curve = parse_schedule(schedule, pipe.checkpoint.layout.names)
        pipe = pipe.under(curve, anyway)
    weights, decoder = directory, directory / AUTOENCODER
    if isinstance(pipe.checkpoint, TextCheckpoint):
        weights = weights if (weights / "config.json").is_file() else weights / "transformer"
        decoder = pipe.checkpoint.autoencoder or decoder
    record: dict[str, Any] = {"schedule": pipe.checkpoint.schedule.to_dict(), "digest": model_digest(weights)}
    if (directory / "state.json").is_file():
        state = read_json(directory / "state.json")
        step = state.get("step") if isinstance(state, Mapping) else None
        record["step"] = step if type(step) is int else None
    return pipe, record, decoder
