"""How much of everything the demo does."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path

from lwd.errors import InputError
from lwd.io.files import changes, check_writable, read_json, write_json
from lwd.training.config import Config, load_config

FORMAT, VERSION, FILE = "lwd.demo", 1, "demo.json"
SPECS = {"synchronous": "synchronous", "offset 0.3": "offset:0.3", "learned": ""}
"""The schedules that are trained; the learned one comes from the surfaces."""
NAMES = tuple(SPECS)
VARIANTS = ("plain", "guided")


@dataclass(frozen=True)
class Plan:
    """The same plan gives the same table, on one kind of processor."""

    scale: str = "full"
    seed: int = 0
    batch: int = 48
    probe_steps: int = 900
    points: int = 9
    """Of the surfaces, along each clock."""
    probe_images: int = 128
    lambdas: tuple[float, ...] = (0.001, 0.002, 0.004, 0.008, 0.016, 0.03, 0.06, 0.12, 0.25)
    tolerance: float = 0.02
    joint_steps: int = 200
    train_steps: int = 250
    count: int = 400
    """Samples of each set."""
    steps: int = 10
    """Of Heun's method, for the samples and for the choice of lambda."""
    guidance: float = 1.5
    marks: int = 21
    """Of tau, in the viewer."""
    threads: int = 2

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**31:
            raise InputError(f"the seed is a whole number from 0 to 2^31 - 1, got {self.seed}")

    def config(self) -> Config:
        """The preset fashion-small with this plan's numbers."""
        probe = max(self.probe_steps, self.joint_steps)
        settings = {"run.batch": self.batch, "run.seed": self.seed, "run.steps": self.train_steps}
        settings |= {"run.save_every": 100, "run.log_every": 5, "run.sample_every": 0, "run.keep_last": 1}
        settings |= {"optimizer.warmup": min(50, self.train_steps // 5 + 1), "probe.steps": probe, "probe.burn_in": 0}
        return load_config("fashion-small", [f"{key}={value}" for key, value in settings.items()])


def train_folder(out: Path, name: str) -> Path:
    """Where a schedule's model is trained."""
    return out / "train" / name.replace(" ", "-")


def samples_folder(out: Path, name: str, variant: str) -> Path:
    """Where a schedule's samples lie, plain or guided."""
    return out / "samples" / f"{name.replace(' ', '-')}-{variant}"


FULL = Plan()
QUICK = Plan(
    scale="quick",
    batch=32,
    probe_steps=60,
    points=6,
    probe_images=64,
    lambdas=(0.002, 0.016, 0.12),
    joint_steps=40,
    train_steps=40,
    count=60,
    steps=5,
    marks=6,
)


def keep(plan: Plan, out: str | os.PathLike[str]) -> Path:
    """Write the plan down; refuse a directory that was begun with another one."""
    path = Path(out) / FILE
    check_writable(out)
    if path.exists():
        try:
            old = read_json(path)
        except InputError as error:
            raise InputError(f"{error}; choose another --out, or remove the file if {out} holds this demo") from error
        given = old.get("plan") if isinstance(old, dict) else None
        if not isinstance(given, dict) or old.get("format") != FORMAT or old.get("version") != VERSION:
            raise InputError(f"{path} is not a demo of this version; choose another --out")
        if changed := changes(given, asdict(plan) | {"lambdas": list(plan.lambdas)}):
            raise InputError(f"{out} holds a demo of other settings ({'; '.join(changed)}); choose another --out")
    write_json(path, {"format": FORMAT, "version": VERSION, "plan": asdict(plan)})
    return Path(out)
