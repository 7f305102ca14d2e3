"""The sizes of the demo: steps, samples, lambdas."""

import os
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from lwd.errors import InputError
from lwd.io.files import changes, check_writable
from lwd.io.records import FileRecord, Record
from lwd.training.config import Config, load_config

FILE = "demo.json"
SPECS = {"synchronous": "synchronous", "offset 0.3": "offset:0.3", "learned": ""}
"""Schedules to train under; the learned one comes from the surfaces."""
NAMES = tuple(SPECS)
UNTRAINED = {"cascade 0.9": "cascade:0.9"}
"""Schedules that nothing is trained for: see "A cascade that waits" in docs/findings-one-network.md."""
ONE = "one network"
VARIANTS = ("plain", "guided", ONE)
"""Samples of the networks trained for each schedule, without and with guidance, and of the surface probe's network,
which works under every schedule."""


def names_of(variant: str) -> tuple[str, ...]:
    """The schedules that a variant is sampled under."""
    return (*NAMES, *UNTRAINED) if variant == ONE else NAMES


SETS = tuple((name, variant) for name in names_of(ONE) for variant in VARIANTS if name in names_of(variant))
"""All sets of samples."""


class Plan(Record):
    """Settings of a demo; equal plans give equal results on the same kind of processor."""

    scale: str = "full"
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Random seed."""
    depth: int = 4
    width: int = 96
    """Size of the networks; a small one sees more images in five minutes."""
    batch: int = 32
    probe_steps: int = 1200
    points: int = 9
    """Points of the surfaces along each clock."""
    probe_images: int = 128
    lambdas: tuple[float, ...] = (0.0015, 0.003, 0.006, 0.012, 0.024, 0.045, 0.09, 0.18, 0.375)
    tolerance: float = 0.02
    joint_steps: int = 150
    train_steps: int = 400
    count: int = 800
    """Samples per set."""
    steps: int = 10
    """Heun steps, for the samples and for the choice of lambda."""
    guidance: float = 1.5
    marks: int = 21
    """Values of tau in the viewer."""
    threads: int = 2

    def config(self) -> Config:
        """Return the preset fashion-small with the settings of this plan."""
        probe = max(self.probe_steps, self.joint_steps)
        settings = {"network.depth": self.depth, "network.width": self.width, "network.heads": self.width // 32}
        settings |= {"run.batch": self.batch, "run.seed": self.seed, "run.steps": self.train_steps}
        settings |= {"run.save_every": 100, "run.log_every": 5, "run.sample_every": 0, "run.keep_last": 1}
        settings |= {"optimizer.warmup": min(50, self.train_steps // 5 + 1), "probe.steps": probe, "probe.burn_in": 0}
        return load_config("fashion-small", [f"{key}={value}" for key, value in settings.items()])


def train_folder(out: Path, name: str) -> Path:
    """Return the directory of the model of a schedule."""
    return out / "train" / name.replace(" ", "-")


def samples_folder(out: Path, name: str, variant: str) -> Path:
    """Return the directory of the samples of a schedule and variant."""
    return out / "samples" / f"{name}-{variant}".replace(" ", "-")


FULL = Plan()
QUICK = Plan(
    scale="quick",
    batch=32,
    probe_steps=60,
    points=6,
    probe_images=64,
    lambdas=(0.003, 0.024, 0.18),
    joint_steps=40,
    train_steps=40,
    count=60,
    steps=5,
    marks=6,
)


class DemoFile(FileRecord):
    """demo.json: all settings that affect the result; a directory with another plan is rejected."""

    format: Literal["lwd.demo"] = "lwd.demo"
    version: Literal[1] = 1
    plan: dict[str, Any]
    """The plan (`lwd.demo.plan.Plan`)."""

    what: ClassVar[str] = "a demo"


def keep(plan: Plan, out: str | os.PathLike[str]) -> Path:
    """Write the plan; raise an error if the directory was started with another one."""
    path = Path(out) / FILE
    check_writable(out)
    if path.exists():
        try:
            old = DemoFile.read(path).plan
        except InputError as error:
            raise InputError(f"{error}; use another directory", argument="out") from error
        if changed := changes(old, plan.to_dict()):
            raise InputError(
                f"{out} has a demo with different settings ({'; '.join(changed)}); use another directory",
                argument="out",
            )
    DemoFile(plan=plan.to_dict()).write(path)
    return Path(out)
