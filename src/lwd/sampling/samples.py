"""A set of samples on disk: blocks drawn by any number of processes, then PNGs, ADM's .npz, a grid and a manifest."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from lwd.compute.devices import choose_precision, threads
from lwd.compute.order import order
from lwd.errors import InputError
from lwd.images.pictures import png, tile, write_arrays
from lwd.io.files import atomic_file, changes, read_json, sha256, write_bytes, write_json
from lwd.io.jobs import check_plan, keep_plan, write_once
from lwd.io.locks import BusyError, alone
from lwd.sampling.formats import Evaluations, SamplesFile
from lwd.sampling.generator import Generator
from lwd.version import __version__

MANIFEST, ARRAYS, IMAGES, GRID, PARTS = "manifest.json", "samples.npz", "images", "grid.png", "parts"
EARLIER = {"precision": "fp32"}
"""Settings that manifests of earlier versions do not have, and what they were."""


def generate(
    generator: Generator,
    out: str | os.PathLike[str],
    rank: int = 0,
    world: int = 1,
    progress: Callable[[int], object] | None = None,
) -> str:
    """Draw the missing blocks of this process; the process that completes the set assembles it."""
    generator.check_decoder()
    job = _Job(generator, Path(out))
    with threads(generator.settings.threads):
        if not job.is_complete():
            solver = job.plan()
            for number in range(rank, job.blocks, world):
                if not job.part(number).exists():
                    job.draw(number, solver)
                if progress is not None:
                    progress(len(job.rows(number)))
    if not job.is_complete() and not job.assemble():
        return f"rank {rank} of {world}: done; the set is assembled when all processes are done"
    job.remove_leftovers()
    nfe = SamplesFile.read(job.out / MANIFEST).nfe
    span = "" if nfe.min == nfe.max else f" ({nfe.min} to {nfe.max})"
    return f"{job.out}: {generator.settings.count} samples, {nfe.mean:.4g} evaluations each{span}"


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
        """Path of a file that is written after the pixels of a block: if it exists, the block is done."""
        return self.out / PARTS / f"{number:05}.json"

    def pixels(self, number: int) -> Path:
        return self.out / PARTS / f"{number:05}.npy"

    def about(self) -> dict[str, Any]:
        """Return everything that affects the result."""
        g = self.generator
        settings = g.settings.to_dict() | {"precision": choose_precision(g.settings.precision, g.device)}
        return {"settings": settings, "device": g.device.type, **g.record}

    def named(self) -> dict[str, Any]:
        """Return the same with the names of directories, which do not affect the result."""
        about = self.about()
        for key, name in self.generator.names.items():
            about[key] = {"name": name, **about.get(key, {})}
        return about

    def is_complete(self) -> bool:
        """Whether the manifest and all its files exist; an error if it has other settings."""
        if not (self.out / MANIFEST).exists():
            return False
        found = SamplesFile.read(self.out / MANIFEST)
        written = found.to_dict()
        written["settings"] = EARLIER | written["settings"]
        old = {key: _nameless(written.get(key)) for key in self.about()}
        if changed := changes(old, self.about()):
            raise InputError(
                f"{self.out} has samples with different settings ({'; '.join(changed)}); use another directory",
                argument="out",
            )
        return all((self.out / name).exists() for name in found.files)

    def assemble(self) -> bool:
        """Finish the set if all blocks exist and no other process is doing it; returns whether it is finished."""
        if not all(self.part(number).exists() for number in range(self.blocks)):
            return False
        try:
            with alone(self.out):
                if not self.is_complete():
                    self.finish()
        except BusyError:
            return False
        return True

    @property
    def plan_file(self) -> Path:
        return self.out / PARTS / "plan.json"

    def plan(self) -> dict[str, Any]:
        """Return the options of the solver; computed once, so that all processes and later runs use the same."""
        started = any((self.out / PARTS).glob("[0-9]*.json"))
        if not started and not self.plan_file.exists():
            for name in (GRID, ARRAYS, IMAGES):
                if (self.out / name).exists():
                    raise InputError(
                        f"{self.out / name} is not part of this set; use another directory", argument="out"
                    )
        keep_plan(self.plan_file, self.about(), started)
        # The name contains a hash of the plan, so that times placed for other settings are not used.
        key = hashlib.sha256(json.dumps(self.about(), sort_keys=True).encode()).hexdigest()[:8]
        solved = self.out / PARTS / f"solver-{key}.json"
        if not solved.exists():
            write_once(solved, self.generator.solver())
        return dict(read_json(solved))

    def draw(self, number: int, solver: Mapping[str, Any]) -> None:
        rows = self.rows(number)
        pixels, nfe = self.generator.draw(rows.start, rows.stop, solver)
        check_plan(self.plan_file, self.about())
        if "png" in self.generator.settings.kinds:
            for i, picture in zip(rows, pixels, strict=True):
                write_bytes(self.out / IMAGES / f"{i:06}.png", png(picture))
        with atomic_file(self.pixels(number)) as file:
            np.save(file, pixels)
        write_json(self.part(number), {"nfe": nfe})

    def finish(self) -> None:
        """Write the files that need all blocks, then the manifest."""
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
        sums = {name: sha256(self.out / name) for name in files}
        if "png" in g.settings.kinds:
            sums[IMAGES] = _folder_digest(self.out / IMAGES, g.settings.count)
        record = SamplesFile(
            **self.named(),
            encoders={str(k): str(v) for k, v in g.pipe.checkpoint.provenance.get("encoders", {}).items()},
            solver=self.plan(),
            size=tuple(parts[0].shape[1:3]),
            labels=g.labels(),
            order=shuffled.tolist(),
            nfe=Evaluations(mean=float(np.mean(nfe)), min=min(nfe), max=max(nfe)),
            files=sums,
            versions={"lwd": __version__, "torch": torch.__version__},
        )
        record.write(self.out / MANIFEST)

    def remove_leftovers(self) -> None:
        """Remove the blocks, and temporary files that killed processes left behind."""
        shutil.rmtree(self.out / PARTS, ignore_errors=True)
        token = "[0-9a-f]" * 12
        patterns = [f".{name}.{token}" for name in (MANIFEST, ARRAYS, GRID, "probe")]
        patterns += [f"{IMAGES}/.[0-9]*.png.{token}", ".lock"]
        for leftover in (path for pattern in patterns for path in self.out.glob(pattern)):
            leftover.unlink(missing_ok=True)


def _nameless(value: Any) -> Any:
    """Leave out the name, and what is empty: the record of classifier-free guidance has no digest."""
    return {k: v for k, v in value.items() if k != "name" and v != ""} if isinstance(value, Mapping) else value


def _folder_digest(folder: Path, count: int) -> str:
    digest = hashlib.sha256()
    for i in range(count):
        digest.update(f"{i} {sha256(folder / f'{i:06}.png')}\n".encode())
    return digest.hexdigest()
