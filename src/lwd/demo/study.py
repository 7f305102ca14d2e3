"""The study that ships with lwd: what schedules are worth on the embedded images, over several training seeds."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from lwd.assets import FASHION
from lwd.io.records import FileRecord, Record

FILE = FASHION / "study.json"


class ArmRatio(Record):
    """A schedule's Fréchet distance over that of the base, with its 95% interval over seeds."""

    ratio: Annotated[float, Field(gt=0)]
    low: float
    high: float
    seeds: int

    def __str__(self) -> str:
        return f"{self.ratio:.2f} [{self.low:.2f}, {self.high:.2f}]"


class StudyFile(FileRecord):
    """study.json: a summary of studies in results/, made by tools/make_study.py."""

    format: Literal["lwd.study"] = "lwd.study"
    version: Literal[1] = 1
    source: str
    """The files with every run."""
    base: str
    """The schedule that the others are compared with."""
    steps: int
    """Training steps of each run."""
    count: int
    """Samples of each run."""
    arms: dict[str, ArmRatio]
    """Ratios by schedule."""

    what: ClassVar[str] = "a study"


def study_line() -> str:
    """What the shipped study found, in one sentence."""
    study = StudyFile.read(FILE)
    shown = ", ".join(f"{arm} {value}" for arm, value in study.arms.items())
    seeds = max(value.seeds for value in study.arms.values())
    return (
        f"Precomputed study ({study.source}: {seeds} trainings of {study.steps} steps under each schedule, "
        f"{study.count} samples each), Fréchet distance relative to one clock with 95% intervals: {shown}."
    )
