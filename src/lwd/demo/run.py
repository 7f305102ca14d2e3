"""The stages of the demo: each calls a public function of the library and resumes after an interruption."""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lwd.assets import AUTOENCODERS
from lwd.checkpoints.directory import locate
from lwd.compute.devices import threads
from lwd.demo.plan import (
    FULL,
    NAMES,
    ONE,
    SETS,
    SPECS,
    UNTRAINED,
    VARIANTS,
    Plan,
    keep,
    names_of,
    samples_folder,
    train_folder,
)
from lwd.demo.results import Results, findings
from lwd.demo.story import make_story
from lwd.errors import InputError
from lwd.evaluation.evaluate import evaluate
from lwd.evaluation.formats import EvaluationFile
from lwd.evaluation.settings import EvaluateSettings
from lwd.io.clock import Clock
from lwd.io.files import model_digest
from lwd.io.locks import alone
from lwd.latents.embedded import encode_embedded
from lwd.latents.reader import LatentReader
from lwd.objective import FlowObjective
from lwd.probing.joint import probe
from lwd.probing.surface import error_scale, surface_probe, surface_settings
from lwd.report.html import write_report
from lwd.report.surfaces import rule_of, write_path
from lwd.representations.texture import TextureAutoencoder
from lwd.sampling.generator import Generator, open_generator
from lwd.sampling.samples import generate
from lwd.sampling.settings import SampleSettings
from lwd.schedule.base import Schedule
from lwd.schedule.io import load_schedule, parse_schedule
from lwd.schedule.learned import Learnable, Polynomial
from lwd.surfaces.files import NAME as SURFACES
from lwd.surfaces.files import load_surfaces
from lwd.surfaces.formats import LambdaPathFile
from lwd.surfaces.lambda_path import lambda_path
from lwd.surfaces.settings import PathSettings
from lwd.surfaces.table import SurfaceTable, smooth
from lwd.training.config import Config, with_changes
from lwd.training.devices import Devices
from lwd.training.interrupts import Interrupted
from lwd.training.task import RunOptions
from lwd.training.train import train
from lwd.training.trainer import Trainer

AUTOENCODER = AUTOENCODERS["fashion"]
REPORT = "report.html"


def run_demo(out: str | os.PathLike[str], plan: Plan = FULL, show: Callable[[str], object] = print) -> Path:
    """Run all unfinished stages; writes report.html and returns its path."""
    folder = keep(plan, out)
    demo = _Demo(folder, plan, Clock(expected(plan), show))
    with alone(folder), threads(plan.threads):
        data = demo.encode()
        table = demo.probe(data)
        demo.path(table)
        learned = demo.learned()
        joint = demo.joint(data, learned)
        for name in NAMES:
            demo.train(name, data)
        for variant in VARIANTS:
            demo.sample(variant)
        scores = demo.evaluate()
        found = Results(
            folder,
            plan,
            table,
            LambdaPathFile.read(folder / "path" / "path.json").to_dict(),
            demo.schedules(),
            joint,
            scores,
        )
        with demo.clock.stage("report", len(NAMES)) as advance:
            story = make_story(found, demo.generator, advance)
            write_report(story, folder / REPORT)
    for line in findings(found):
        show(line)
    return folder / REPORT


def expected(plan: Plan) -> dict[str, float]:
    """Return the expected seconds per stage on two cores (of 2026); the clock corrects them during the run."""
    step = 0.007 + 0.0018 * plan.batch
    table = 0.0012 * plan.points**2 * plan.probe_images
    seconds = {"encode the images": 6.0, "surface probe": plan.probe_steps * step + table}
    seconds |= {"every lambda": 1.9 * len(plan.lambdas), "joint probe": plan.joint_steps * step}
    seconds |= {f"train {name}": plan.train_steps * step for name in NAMES}
    drawn = 0.003 * plan.count * plan.steps
    return seconds | {
        "sample, plain": drawn,
        "sample, guided": 1.5 * drawn,
        f"sample, {ONE}": drawn * len(names_of(ONE)) / len(NAMES),
        "evaluate": 3.0,
        "report": 0.25 * plan.marks,
    }


@dataclass(frozen=True)
class _Demo:
    out: Path
    plan: Plan
    clock: Clock

    @property
    def config(self) -> Config:
        return self.plan.config()

    def encode(self) -> LatentReader:
        with self.clock.stage("encode the images") as advance:
            autoencoder = TextureAutoencoder.load(AUTOENCODER)
            where = self.out / "latents"
            made = f"shipped (files {model_digest(AUTOENCODER)})"
            encode_embedded("train", autoencoder, where, made)
            encode_embedded("test", autoencoder, self.held_out, made)
            advance(1)
        return LatentReader(where)

    @property
    def held_out(self) -> Path:
        """Latents of images that no network is trained on."""
        return self.out / "held-out"

    def probe(self, data: LatentReader) -> SurfaceTable:
        plan, where = self.plan, self.out / "surface"
        settings: dict[str, Any] = {"steps": plan.probe_steps, "burn_in": 0, "points": plan.points}
        settings |= {"samples": plan.probe_images, "held_out": str(self.held_out)}
        with self.clock.stage("surface probe", 1) as advance:
            options = RunOptions(
                Devices(cpu=True),
                on_step=_Steps(lambda n: advance(0.8 * n / plan.probe_steps)),
                on_table=lambda n: advance(0.2 * n / (plan.points**2 * plan.probe_images)),
            )
            _, table = surface_probe(with_changes(self.config, probe=settings), data, where, options)
            _check_finished(table is not None)
        assert table is not None
        return table

    def path(self, table: SurfaceTable) -> None:
        with self.clock.stage("every lambda", len(self.plan.lambdas)) as advance:
            surfaces = self.out / "surface" / SURFACES
            digest = hashlib.sha256(surfaces.read_bytes()).hexdigest()[:16]
            if self._solved(digest):
                return
            provenance = load_surfaces(surfaces)[1]
            weights, reduction = surface_settings(provenance)
            objective = FlowObjective(table.layout, weights, reduction)
            rule = PathSettings(
                lambdas=self.plan.lambdas,
                steps=self.plan.steps,
                tolerance=self.plan.tolerance,
                scale=error_scale(provenance, 2),
            )
            family = Polynomial(groups=table.layout.names)
            path = lambda_path(family, smooth(table), objective, rule, advance)
            if path.chosen is None:  # every lambda collapsed: use the strongest
                path = replace(path, chosen=path.points[-1])
            about = {"by": "lwd demo", "family": "polynomial", "weights": objective.weights, "reduction": reduction}
            about["kinetic_average"] = objective.kinetic_average
            write_path(path, self.out / "path", about | rule_of(rule) | {"surfaces": digest})

    def _solved(self, digest: str) -> bool:
        """Whether an intact path for these surfaces exists."""
        try:
            found = LambdaPathFile.read(self.out / "path" / "path.json")
            load_schedule(self.learned_file)
        except InputError:
            return False
        return found.surfaces == digest and bool(found.points)

    @property
    def learned_file(self) -> Path:
        """The schedule chosen for the number of steps in the plan."""
        return self.out / "path" / "chosen.json"

    def learned(self) -> Learnable:
        schedule = load_schedule(self.learned_file)
        assert isinstance(schedule, Learnable)
        return schedule

    def joint(self, data: LatentReader, start: Learnable) -> Schedule:
        """Run the paper's probe at the chosen lambda, starting halfway between the identity and the learned curve."""
        kinetic = LambdaPathFile.read(self.out / "path" / "path.json").chosen
        steps = self.plan.joint_steps
        settings = {"steps": steps, "burn_in": steps * 2 // 3, "kinetic": kinetic, "rho_lr": 0.05}
        with self.clock.stage("joint probe", steps) as advance:
            shares = (start.shares() + Polynomial(groups=start.groups).shares()).detach() / 2
            initial = Polynomial.from_shares(shares.tolist(), start.groups)
            config = with_changes(self.config, probe=settings)
            if not (self.out / "joint" / "schedule.json").exists():
                options = RunOptions(Devices(cpu=True), on_step=_Steps(advance))
                found = probe(config, data, self.out / "joint", options, initial)
                _check_finished(found.outcome.finished)
        return load_schedule(self.out / "joint" / "schedule.json")

    def spec(self, name: str) -> str:
        return (SPECS | UNTRAINED)[name] or str(self.learned_file)

    def schedules(self) -> dict[str, Schedule]:
        return {name: parse_schedule(self.spec(name), ("texture", "semantic")) for name in names_of(ONE)}

    def train(self, name: str, data: LatentReader) -> None:
        """Train under one schedule, starting from the network of the surface probe."""
        with self.clock.stage(f"train {name}", self.plan.train_steps) as advance:
            if _finished(train_folder(self.out, name), self.plan.train_steps):
                return
            config = self.config.changed(schedule=self.spec(name))
            options = RunOptions(Devices(cpu=True), on_step=_Steps(advance))
            outcome = train(config, data, train_folder(self.out, name), options, init_from=self.out / "surface")
            _check_finished(outcome.finished)

    def generator(self, name: str, variant: str) -> Generator:
        """Open a model; "guided" uses AutoGuidance with the network of the surface probe as the weak model."""
        plan, guided = self.plan, variant == "guided"
        settings = SampleSettings(
            count=plan.count,
            seed=plan.seed,
            solver="heun",
            steps=plan.steps,
            scale=plan.guidance if guided else None,
            kinds=("npz",),
            batch=100,
            threads=plan.threads,
        )
        guide = str(self.out / "surface") if guided else None
        options: dict[str, Any] = {"decoder": str(AUTOENCODER), "device": "cpu", "schedule": self.spec(name)}
        model = self.out / "surface" if variant == ONE else train_folder(self.out, name)
        return open_generator(model, settings, guide, **options)

    def sample(self, variant: str) -> None:
        names = names_of(variant)
        with self.clock.stage(f"sample, {variant}", len(names) * self.plan.count) as advance:
            for name in names:
                generate(self.generator(name, variant), samples_folder(self.out, name, variant), progress=advance)

    def evaluate(self) -> Mapping[tuple[str, str], Mapping[str, Any]]:
        """Evaluate against the embedded test images, with the judge that ships with lwd."""
        settings = EvaluateSettings(encoder="fashion", skip_inception=True, threads=self.plan.threads, batch=100)
        found = {}
        with self.clock.stage("evaluate", len(SETS)) as advance:
            for name, variant in SETS:
                where = samples_folder(self.out, name, variant)
                evaluate(where, "fashion/test", settings, device="cpu", cache=self.out / "cache")
                found[name, variant] = EvaluationFile.read(where / "evaluation.json").to_dict()["metrics"]
                advance(1)
        return found


class _Steps:
    """Report the steps of a trainer to the clock, without those of an earlier process."""

    def __init__(self, advance: Callable[[int], object]) -> None:
        self.advance, self.last = advance, -1

    def __call__(self, trainer: Trainer) -> None:
        self.advance(1 if self.last < 0 else trainer.step - self.last)
        self.last = trainer.step


def _finished(run: Path, steps: int) -> bool:
    """Whether the newest checkpoint of a run, which is used for sampling, is the last one."""
    return run.is_dir() and locate(run).name == f"{steps:08}"


def _check_finished(finished: bool) -> None:
    if not finished:
        raise Interrupted
