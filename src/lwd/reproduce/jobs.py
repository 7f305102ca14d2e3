"""What a job is: one output directory, which is made by a function of the library or by the same command by hand."""

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lwd.errors import InputError
from lwd.io.files import read_json
from lwd.latents.reader import fingerprint_of
from lwd.reproduce.cost import Cost
from lwd.training.config import Config, load_config
from lwd.training.devices import Devices
from lwd.training.formats import RunFile
from lwd.training.snapshot import differences
from lwd.training.task import RunOptions

Advance = Callable[[float], object]
"""Called with the share of a job that was just done; the shares add up to 1."""


@dataclass(frozen=True)
class Place:
    """Where jobs compute."""

    cpu: bool
    threads: int

    @property
    def device(self) -> str | None:
        return "cpu" if self.cpu else None

    def flags(self, name: str) -> list[str]:
        """The option of a command that chooses the device: --cpu of runs, --device of the others."""
        if not self.cpu:
            return []
        return ["--cpu"] if name == "run" else ["--device", "cpu"]

    def options(self, advance: Advance, steps: int, share: float = 1.0) -> RunOptions:
        """Options of a training whose steps are `share` of a job."""
        config: dict[str, Any] = {"cpu": True} if self.cpu else {}
        return RunOptions(Devices(**config), on_step=_Steps(advance, share / steps))


class _Steps:
    """Report the steps of a trainer; those of an earlier process count at once."""

    def __init__(self, advance: Advance, share: float) -> None:
        self.advance, self.share, self.last = advance, share, 0

    def __call__(self, trainer: Any) -> None:
        self.advance(self.share * max(0, trainer.step - self.last))
        self.last = max(self.last, trainer.step)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One output; jobs with equal outputs are the same job."""

    title: str
    out: Path
    needs: tuple["Job", ...] = ()
    place: Place

    @property
    def kind(self) -> str:
        """Jobs of one kind need the same things: only the first is checked."""
        return type(self).__name__

    def is_done(self) -> bool:
        """Whether the output is complete; an error if it was made with other settings."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise an error, before any job starts, if something is missing that the job will need."""

    def run(self, advance: Advance) -> None:
        """Make the output, from where an earlier run stopped."""
        raise NotImplementedError

    def words(self) -> list[str]:
        """The command that makes the same output; empty if there is nothing to do."""
        raise NotImplementedError

    def cost(self) -> Cost:
        return Cost()

    @property
    def command(self) -> str:
        """The command as a line for a shell."""
        return shlex.join(self.words())


def ordered(jobs: Iterable[Job]) -> list[Job]:
    """The jobs and all that they need, each once, needs first."""
    found: dict[Path, Job] = {}

    def visit(job: Job) -> None:
        for one in job.needs:
            visit(one)
        found.setdefault(job.out, job)

    for job in jobs:
        visit(job)
    return list(found.values())


@cache
def config_of(preset: str, changes: tuple[str, ...] = ()) -> Config:
    """A preset with changes; a plan asks for the same ones many times."""
    return load_config(preset, changes)


def setting_words(preset: str, changes: Iterable[str]) -> list[str]:
    """`--preset P --set A=1 --set B=2`."""
    return ["--preset", preset, *(word for change in changes for word in ("--set", change))]


def check_settings(folder: Path, config: Config, probe: str, data: Path) -> None:
    """Raise an error if a finished run has other settings than these, or other data, if the data are here.

    probe: see `differences`.
    """
    path = folder / "run.json"
    about = RunFile.parse(read_json(path), str(path))
    changed = differences(about.config, config, probe)
    changed += ["the data"] if has_other_data(folder, data, config) else []
    if changed:
        raise InputError(
            f"{folder} was made with different settings: {', '.join(changed)}; use another directory", argument="out"
        )


def has_other_data(folder: Path, data: Path, config: Config) -> bool:
    """Whether a run was trained on other latents than those in `data`; unknown data are not others."""
    path = folder / "run.json"
    about = RunFile.parse(read_json(path), str(path))
    if about.data == "unknown" or not data.is_dir():
        return False
    return fingerprint_of(data, config.groups) not in (about.data, about.latents)


def is_older(path: Path, folder: Path) -> bool:
    """Whether some file of a folder was written after `path`."""
    files = [file for file in folder.iterdir() if file.is_file()] if folder.is_dir() else []
    return any(file.stat().st_mtime_ns > path.stat().st_mtime_ns for file in files)
