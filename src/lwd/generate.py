"""Many samples from one model: blocks by any number of processes, then PNGs, ADM's .npz, a grid and a manifest."""

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from lwd.checkpoint import locate
from lwd.data.order import order
from lwd.data.pictures import png, tile, write_arrays
from lwd.errors import InputError, nearest
from lwd.files import BusyError, alone, atomic_file, changes, model_digest, read_json, write_bytes, write_json
from lwd.guidance import Interval, Scale
from lwd.jobs import keep_plan, shared, threads
from lwd.path import Velocity
from lwd.pipeline import LWDPipeline, Pixels
from lwd.placement import UNIFORM, place
from lwd.representations.encoders import choose_device
from lwd.representations.texture import TextureAutoencoder
from lwd.sampler import sample
from lwd.solver import METHODS
from lwd.solver.fixed import METHODS as FIXED_METHODS
from lwd.version import __version__

FORMAT, VERSION = "lwd.samples", 1
MANIFEST, ARRAYS, IMAGES, GRID, PARTS = "manifest.json", "samples.npz", "images", "grid.png", "parts"
ROWS = 8
"""The network always sees a multiple of so many samples: see `lwd.sample`."""
KINDS = ("png", "npz")


@dataclass(frozen=True)
class SampleSettings:
    """What to draw and how; with one kind of processor the same settings give the same bytes."""

    count: int = 64
    seed: int = 0
    """Image i has the seed `seed + i` and the i-th of the labels, which go round."""
    labels: tuple[int, ...] = ()
    """Empty: every class in turn."""
    solver: str = "dopri5"
    steps: int | None = None
    placement: str = UNIFORM
    atol: float | None = None
    rtol: float | None = None
    scale: Scale | None = None
    interval: Interval | None = None
    kinds: tuple[str, ...] = KINDS
    batch: int = 64
    threads: int = 2

    def __post_init__(self) -> None:
        for name in ("count", "batch", "threads"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.seed < 2**62:
            raise InputError(f"the seed is a whole number from 0 to 2^62 - 1, got {self.seed}")
        if not self.kinds or not set(self.kinds) <= set(KINDS):
            raise InputError(
                f"samples are written as {', '.join(KINDS)} or both, got {', '.join(self.kinds) or 'none'}"
            )
        if self.solver not in METHODS:
            raise InputError(f"there is no solver {self.solver!r}; {nearest(self.solver, METHODS)}")
        if self.solver not in FIXED_METHODS and (self.steps or self.placement != UNIFORM):
            given = "steps" if self.steps else "placement"
            raise InputError(f"{given} has no effect on {self.solver}; choose a solver of {', '.join(FIXED_METHODS)}")
        for name in ("rtol", "atol"):
            if self.solver in FIXED_METHODS and getattr(self, name) is not None:
                raise InputError(f"{name} has no effect on {self.solver}, which takes steps; use --solver dopri5")
        if self.solver in FIXED_METHODS and not self.steps:
            raise InputError(f"{self.solver} needs --steps, for example --steps 20")


@dataclass(frozen=True)
class Generator:
    """A model, its guide and the settings; `record` says for the manifest which files they were."""

    pipe: LWDPipeline
    settings: SampleSettings
    guide: Any = None
    record: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pipe.check_labels(self.settings.labels)
        if self.pipe.autoencoder is None:
            raise InputError("the model has no autoencoder (vae/) to make pixels with; pass one with --decoder DIR")
        self.velocity()

    def velocity(self) -> Velocity:
        return self.pipe.guided(self.guide, self.settings.scale, self.settings.interval)

    def labels(self) -> list[int]:
        """One label for each image."""
        choice = self.settings.labels or range(self.pipe.checkpoint.config.classes)
        return [choice[i % len(choice)] for i in range(self.settings.count)]

    def solver(self) -> dict[str, Any]:
        """Options for `sample`; where a placement is asked for, the times are found here (on a calibration batch)."""
        s, c = self.settings, self.pipe.checkpoint
        if s.solver not in FIXED_METHODS:
            options = {"atol": s.atol, "rtol": s.rtol}
            return {"method": s.solver, "adaptive": "sample"} | {k: v for k, v in options.items() if v is not None}
        if s.placement == UNIFORM:
            return {"method": s.solver, "steps": s.steps}
        assert s.steps
        labels = s.labels or tuple(range(c.config.classes))
        where: dict[str, Any] = {"size": c.config.grid, "labels": labels, "device": self.device}
        times = place(s.placement, s.steps, s.solver, self.velocity(), c.schedule, c.layout, **where)
        return {"method": s.solver, "grid": list(times)}

    @property
    def device(self) -> torch.device:
        return next(self.pipe.checkpoint.velocity.parameters()).device

    def draw(self, low: int, high: int, solver: Mapping[str, Any]) -> tuple[Pixels, list[int]]:
        """Images low to high - 1, and the evaluations that each of them took."""
        c = self.pipe.checkpoint
        seeds, labels = range(self.settings.seed + low, self.settings.seed + high), self.labels()[low:high]
        place: dict[str, Any] = {"size": c.config.grid, "device": self.device, "rows": ROWS}
        solution = sample(self.velocity(), c.schedule, c.layout, seeds=seeds, labels=labels, **place, **solver)
        # The decoder too must not see the batch's size.
        extra = -len(seeds) % ROWS
        z = torch.cat([solution.z, solution.z[-1:].expand(extra, -1, -1, -1)])
        return self.pipe.decode(z)[: len(seeds)], solution.nfe_per_sample.tolist()


def generate(
    generator: Generator,
    out: str | os.PathLike[str],
    rank: int = 0,
    world: int = 1,
    progress: Callable[[int], object] | None = None,
) -> str:
    """Draw this process's blocks that are not there yet; whoever completes the set puts it together."""
    job = _Job(generator, Path(out))
    with threads(generator.settings.threads):
        if not job.is_complete():
            solver = job.plan()
            for number in range(rank, job.blocks, world):
                if not job.part(number).exists():
                    job.draw(number, solver)
                if progress is not None:
                    progress(len(job.rows(number)))
    if not job.is_complete() and not job.put_together():
        return f"rank {rank} of {world}: done; the set is put together when the other processes are"
    job.sweep()
    nfe = read_json(job.out / MANIFEST)["nfe"]
    span = "" if nfe["min"] == nfe["max"] else f" ({nfe['min']} to {nfe['max']})"
    return f"{job.out}: {generator.settings.count} samples, {nfe['mean']:.4g} evaluations each{span}"


def draw_grid(generator: Generator) -> Image.Image:
    """The first images (up to 64) as one picture, without any other file."""
    with threads(generator.settings.threads):
        solver, count = generator.solver(), min(64, generator.settings.count)
        return Image.fromarray(tile(generator.draw(0, count, solver)[0], generator.labels()))


def open_generator(
    model: str | os.PathLike[str],
    settings: SampleSettings,
    guide: str | None = None,
    decoder: str | None = None,
    device: str | None = None,
) -> Generator:
    """From names on the command line: a model, a guide's directory or `null`, a decoder's directory."""
    where = choose_device(device)
    pipe, record = _open(model, where)
    about: dict[str, Any] = {"model": record}
    if decoder is not None:
        pipe = LWDPipeline(pipe.checkpoint, TextureAutoencoder.load(decoder).to(where).eval())
        about["decoder"] = {"name": Path(decoder).resolve().name, "digest": model_digest(decoder)}
    weak: Any = guide
    if guide not in (None, "null"):
        weak, about["guide"] = _open(str(guide), where)
    elif guide:
        about["guide"] = {"name": "null"}
    return Generator(pipe, settings, weak, about)


def _open(name: str | os.PathLike[str], device: torch.device) -> tuple[LWDPipeline, dict[str, Any]]:
    pipe = LWDPipeline.from_pretrained(name, device)
    record: dict[str, Any] = {"name": str(name), "schedule": pipe.checkpoint.schedule.to_dict()}
    if Path(name).is_dir():
        directory = locate(name)
        record |= {"digest": model_digest(directory)}
        if (directory / "state.json").is_file():
            record["step"] = read_json(directory / "state.json").get("step")
    return pipe, record


@dataclass(frozen=True)
class _Job:
    generator: Generator
    out: Path

    @property
    def blocks(self) -> int:
        s = self.generator.settings
        return -(-s.count // s.batch)

    def rows(self, number: int) -> range:
        s = self.generator.settings
        return range(number * s.batch, min((number + 1) * s.batch, s.count))

    def part(self, number: int) -> Path:
        """Written after a block's pixels; where it is, the block is done."""
        return self.out / PARTS / f"{number:05}.json"

    def pixels(self, number: int) -> Path:
        return self.out / PARTS / f"{number:05}.npy"

    def about(self) -> dict[str, Any]:
        """What decides the result, as it is written down."""
        g = self.generator
        settings = asdict(g.settings) | {"labels": list(g.settings.labels), "kinds": list(g.settings.kinds)}
        if isinstance(g.settings.interval, Mapping):
            settings["interval"] = {name: list(pair) for name, pair in g.settings.interval.items()}
        elif g.settings.interval is not None:
            settings["interval"] = list(g.settings.interval)
        return {"settings": settings, "device": g.device.type, **g.record}

    def is_complete(self) -> bool:
        """Whether the manifest and what it names are there; one of other settings is refused."""
        if not (self.out / MANIFEST).exists():
            return False
        found = read_json(self.out / MANIFEST)
        if not isinstance(found, Mapping) or found.get("format") != FORMAT:
            raise InputError(f"{self.out / MANIFEST} is not a manifest of samples; choose another --out")
        if changed := changes({key: found.get(key) for key in self.about()}, self.about()):
            raise InputError(f"{self.out} holds other samples ({'; '.join(changed)}); choose another --out")
        return all((self.out / name).exists() for name in found["files"])

    def put_together(self) -> bool:
        """Finish the set if all its blocks are there and no other process is at it."""
        if not all(self.part(number).exists() for number in range(self.blocks)):
            return False
        try:
            with alone(self.out):
                if not self.is_complete():
                    self.finish()
        except BusyError:
            return False
        return True

    def plan(self) -> dict[str, Any]:
        """The solver's options; decided once, so that every process and every continuation steps alike."""
        path = self.out / PARTS / "plan.json"
        begun = any((self.out / PARTS).glob("[0-9]*.json"))
        solved = self.out / PARTS / "solver.json"
        keep_plan(path, self.about(), begun)
        if not begun or not solved.exists():
            with shared(solved):
                write_json(solved, self.generator.solver())
        return dict(read_json(solved))

    def draw(self, number: int, solver: Mapping[str, Any]) -> None:
        rows = self.rows(number)
        pixels, nfe = self.generator.draw(rows.start, rows.stop, solver)
        if "png" in self.generator.settings.kinds:
            for i, picture in zip(rows, pixels, strict=True):
                write_bytes(self.out / IMAGES / f"{i:06}.png", png(picture))
        with atomic_file(self.pixels(number)) as file:
            np.save(file, pixels)
        write_json(self.part(number), {"nfe": nfe})

    def finish(self) -> None:
        """The files that need all blocks, and then the manifest."""
        g = self.generator
        parts = [np.load(self.pixels(number), mmap_mode="r") for number in range(self.blocks)]
        files = [GRID]
        shuffled = order(g.settings.count, g.settings.seed, np.arange(g.settings.count))
        with atomic_file(self.out / GRID) as file:
            first = np.concatenate([part[:64] for part in parts[: -(-64 // g.settings.batch)]])[:64]
            Image.fromarray(tile(first, g.labels())).save(file, "PNG")
        if "npz" in g.settings.kinds:
            write_arrays(self.out / ARRAYS, parts, g.settings.batch, shuffled.tolist())
            files.append(ARRAYS)
        nfe = [n for number in range(self.blocks) for n in read_json(self.part(number))["nfe"]]
        about = {"format": FORMAT, "version": VERSION, **self.about(), "solver": self.plan()}
        about |= {"size": list(parts[0].shape[1:3]), "labels": g.labels(), "order": shuffled.tolist()}
        about["nfe"] = {"mean": float(np.mean(nfe)), "min": min(nfe), "max": max(nfe)}
        about["files"] = {name: _sha256(self.out / name) for name in files}
        if "png" in g.settings.kinds:
            about["files"][IMAGES] = _folder_sha256(self.out / IMAGES, g.settings.count)
        about["versions"] = {"lwd": __version__, "torch": torch.__version__}
        write_json(self.out / MANIFEST, about)

    def sweep(self) -> None:
        """Remove the blocks and what killed processes left under temporary names."""
        shutil.rmtree(self.out / PARTS, ignore_errors=True)
        for leftover in [*self.out.glob(".*"), *self.out.glob(f"{IMAGES}/.*")]:
            leftover.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _folder_sha256(folder: Path, count: int) -> str:
    whole = hashlib.sha256()
    for i in range(count):
        whole.update(f"{i} {_sha256(folder / f'{i:06}.png')}\n".encode())
    return whole.hexdigest()
