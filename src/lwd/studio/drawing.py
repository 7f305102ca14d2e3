"""Sampling for the studio: images and the states on the way, as pictures that a page can show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from lwd.compute.devices import threads
from lwd.images.fashion import CLASSES, fashion_semantic
from lwd.images.pictures import data_uri, png
from lwd.path import Velocity
from lwd.report.sheets import colours
from lwd.report.trajectory import states_along
from lwd.sampler import seeded_noise
from lwd.sampling.generator import Generator
from lwd.sampling.pipeline import Pixels
from lwd.sampling.settings import UNIFORM
from lwd.schedule.base import Schedule
from lwd.solver import FIXED_METHODS
from lwd.studio.jobs import Job
from lwd.studio.models import Catalog, Model
from lwd.studio.state import Side, StudioFile, read_schedule, sample_settings

FRAMES = 41
"""Most states along tau."""
CELL = 96
"""Largest width of a state, in pixels."""
MARKS = tuple(k / 20 for k in range(21))
"""States of dopri5, whose own steps differ between samples."""


class Reported:
    """A velocity that reports the mean local time to a job, which may stop it."""

    def __init__(self, velocity: Velocity, job: Job) -> None:
        self.velocity, self.job = velocity, job

    @property
    def edges(self) -> Mapping[str, tuple[float, ...]]:
        found: Mapping[str, tuple[float, ...]] = getattr(self.velocity, "edges", {})
        return found

    def __call__(self, z: Tensor, times: Tensor, label: Any) -> Tensor:
        self.job.report(float(times.mean()))
        return self.velocity(z, times, label)


@dataclass(frozen=True)
class Watched(Generator):
    """The generator of `lwd sample`, under the eyes of a job."""

    job: Job | None = None

    def velocity(self) -> Velocity:
        velocity = super().velocity()
        return velocity if self.job is None else Reported(velocity, self.job)


@dataclass(frozen=True)
class Drawn:
    """Images of one setting, and the states on the way to them."""

    pixels: Pixels | None
    evaluations: float
    tau: list[float]
    states: list[Tensor]


def open_side(catalog: Catalog, model: Model, state: StudioFile, side: Side, job: Job | None = None) -> Watched:
    """A generator for one of the settings, equal to that of `lwd sample`."""
    schedule = read_schedule(side.schedule, model.groups)
    guide: Any = side.guide or None
    if side.guide and side.guide != "null":
        guide = catalog.open(side.guide).pipe.under(schedule, anyway=True)
    settings = sample_settings(state, side, catalog.settings.threads)
    pipe = model.pipe.under(schedule, anyway=True)
    settings = settings.changed(labels=tuple(pipe.check_labels(settings.labels)), precision="fp32")
    return Watched(pipe, settings, guide, job=job)


def draw(generator: Watched, job: Job, part: tuple[float, float], name: str) -> Drawn:
    """Draw all images of a setting with their states; part: the share of the job that this is."""
    low, high = part
    s = generator.settings
    seeds = range(s.seed, s.seed + s.count)
    with threads(s.threads):
        if s.placement not in (UNIFORM, *generator.pipe.checkpoint.layout.names):
            job.stage(low, low, f"{name}: placing the steps")
        solver = generator.solver()
        size = (generator.pipe.checkpoint.layout.channels, *generator.grid)
        seen: list[tuple[float, Tensor]] = [(0.0, seeded_noise(seeds, size, generator.device))]
        job.stage(low, high, f"{name}: drawing {s.count} images")
        decoded = generator.pipe.autoencoder is not None
        watch = (lambda tau, z: seen.append((tau, z[: s.count].clone()))) if s.solver in FIXED_METHODS else None
        pixels, evaluations = _draw(generator, solver, watch, decoded)
        if watch is None:
            job.stage(high, high, f"{name}: states along \u03c4")
            labels = generator.conditions(generator.labels())
            seen = list(states_along(generator.pipe, generator.velocity(), seeds, labels, MARKS).items())
    kept = seen if len(seen) <= FRAMES else [seen[i] for i in np.linspace(0, len(seen) - 1, FRAMES).round().astype(int)]
    return Drawn(pixels, sum(evaluations) / len(evaluations), [tau for tau, _ in kept], [z for _, z in kept])


def _draw(generator: Watched, solver: Mapping[str, Any], watch: Any, decoded: bool) -> tuple[Pixels | None, list[int]]:
    count = generator.settings.count
    if decoded:
        return generator.draw(0, count, solver, watch)
    return None, generator.solve(0, count, solver, watch).nfe_per_sample.tolist()


def show(model: Model, drawn: Mapping[str, Drawn], schedules: Mapping[str, Schedule], job: Job) -> dict[str, Any]:
    """Pictures of all settings for the page; the colours of a group mean the same in all of them."""
    layout, pipe = model.pipe.checkpoint.layout, model.pipe
    last = {
        g: torch.cat([model.pipe.checkpoint.latents(d.states[-1])[g] for d in drawn.values()]) for g in layout.names
    }
    out: dict[str, Any] = {}
    for name, one in drawn.items():
        sheets = {}
        for group in layout.names:
            if group == pipe.decoded and pipe.autoencoder is not None:
                frames: list[Pixels] = []
                for z in one.states:
                    job.report((len(out) + len(frames) / len(one.states)) / len(drawn))
                    frames.append(pipe.decode(z))
            else:
                parts = [pipe.checkpoint.latents(z)[group] for z in one.states]
                like = _reference(model, group, last[group])
                frames = list(np.split(colours(torch.cat(parts), like), len(parts)))
            sheets[group] = sheet(frames)
        final = one.pixels if one.pixels is not None else None
        times = schedules[name].times(torch.tensor(one.tau, dtype=torch.float64)).detach()
        out[name] = {
            "tau": [round(tau, 5) for tau in one.tau],
            "times": {g: [round(t, 5) for t in times[:, i].tolist()] for i, g in enumerate(layout.names)},
            "sheets": sheets,
            "images": None if final is None else [data_uri(png(picture)) for picture in final],
            "evaluations": one.evaluations,
        }
    return out


def _reference(model: Model, group: str, last: Tensor) -> Tensor:
    """Latents that define the colours: real ones where they are at hand, else the drawn ones."""
    if group == "semantic" and model.pipe.checkpoint.class_names == CLASSES:
        real = fashion_semantic("test")[:500]
        if real.shape[1:] == last.shape[1:]:
            return real
    return last


def sheet(frames: Sequence[np.ndarray[Any, Any]]) -> str:
    """One picture of all states: a row for each sample, a column for each frame."""
    width = frames[0].shape[2]
    if width > CELL:
        frames = [np.stack([_smaller(picture) for picture in frame]) for frame in frames]
    rows = [np.concatenate([frame[i] for frame in frames], axis=1) for i in range(len(frames[0]))]
    return data_uri(png(np.concatenate(rows)))


def _smaller(picture: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(Image.fromarray(picture).resize((CELL, CELL), Image.Resampling.BOX))


def sample(catalog: Catalog, state: StudioFile, names: Sequence[str], job: Job) -> dict[str, Any]:
    """Draw the named settings ("A", "B") on the same noise."""
    model = catalog.open(state.model)
    sides = {name: state.sides()[name] for name in names}
    generators = {name: open_side(catalog, model, state, side, job) for name, side in sides.items()}
    drawn = {}
    for i, (name, generator) in enumerate(generators.items()):
        drawn[name] = draw(generator, job, (0.9 * i / len(sides), 0.9 * (i + 1) / len(sides)), name)
    job.stage(0.9, 1.0, "decoding the states")
    first = next(iter(generators.values()))
    schedules = {name: generator.pipe.checkpoint.schedule for name, generator in generators.items()}
    labels = [model.pipe.class_name(label) for label in first.labels()]
    return {"labels": labels, "seed": state.seed, "sides": show(model, drawn, schedules, job)}
