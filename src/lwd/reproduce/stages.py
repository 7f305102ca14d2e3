"""Jobs that probe, train, sample and evaluate."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lwd.compute.devices import choose_device, choose_precision
from lwd.errors import InputError
from lwd.evaluation.evaluate import RESULT, evaluate, networks_for
from lwd.evaluation.formats import EvaluationFile
from lwd.evaluation.settings import EvaluateSettings
from lwd.images.pictures import open_pictures
from lwd.io.files import changes, model_digest
from lwd.models.lightningdit import LightningDiTConfig
from lwd.models.operations import forward_operations
from lwd.objective import FlowObjective
from lwd.probing.joint import SCHEDULE, probe, probe_config
from lwd.probing.surface import surface_probe, surface_settings
from lwd.probing.sweep import SWEEP, sweep
from lwd.report.surfaces import rule_of, write_path
from lwd.representations.texture import TextureAutoencoder
from lwd.reproduce.cost import DOPRI5_NFE, Cost, sampling_cost, training_cost
from lwd.reproduce.jobs import Advance, Job, check_settings, config_of, has_other_data, is_older, setting_words
from lwd.sampling.formats import SamplesFile
from lwd.sampling.generator import open_generator
from lwd.sampling.samples import MANIFEST, generate
from lwd.sampling.settings import SampleSettings
from lwd.schedule.io import load_schedule, parse_schedule
from lwd.schedule.learned import Polynomial
from lwd.solver import FIXED_METHODS
from lwd.surfaces.files import NAME as SURFACES
from lwd.surfaces.files import load_surfaces
from lwd.surfaces.formats import LambdaPathFile
from lwd.surfaces.lambda_path import lambda_path
from lwd.surfaces.settings import PathSettings
from lwd.surfaces.table import smooth
from lwd.training.config import Config, with_changes
from lwd.training.interrupts import Interrupted
from lwd.training.train import train


@dataclass(frozen=True, kw_only=True)
class RunJob(Job):
    """A job that trains a network on latents; needs[0]: the latents."""

    preset: str
    changes: tuple[str, ...]
    network: LightningDiTConfig

    @property
    def config(self) -> Config:
        return config_of(self.preset, self.changes)

    @property
    def data(self) -> Path:
        return self.needs[0].out

    def check_data(self, *runs: Path) -> None:
        """Raise an error if one of the finished runs has other data."""
        for run in runs:
            if (run / "run.json").is_file() and has_other_data(run, self.data, self.config):
                raise InputError(f"{run} was made with different data than {self.data}; use another directory")

    def line(self, command: str, *more: str) -> list[str]:
        words = ["lwd", command, str(self.data), *setting_words(self.preset, self.changes), *more]
        return [*words, *self.place.flags("run"), "--out", str(self.out)]

    def probe_cost(self, steps: int) -> Cost:
        return training_cost(self.network, steps, self.config.run.batch, self.config.run.keep_last, 0)


@dataclass(frozen=True, kw_only=True)
class Probe(RunJob):
    """The paper's Stage I."""

    def is_done(self) -> bool:
        if not (self.out / SCHEDULE).is_file():
            return False
        check_settings(self.out, probe_config(self.config), "joint", self.data)
        return True

    def run(self, advance: Advance) -> None:
        options = self.place.options(advance, self.config.probe.steps)
        _check_finished(probe(self.config, self.data, self.out, options).outcome.finished)

    def words(self) -> list[str]:
        return self.line("probe")

    def cost(self) -> Cost:
        return self.probe_cost(self.config.probe.steps)


@dataclass(frozen=True, kw_only=True)
class Sweep(RunJob):
    """A joint probe for each lambda, as in the paper."""

    lambdas: tuple[float, ...]

    def is_done(self) -> bool:
        if not (self.out / SWEEP).is_file():
            return False
        self.check_data(*(self.out / f"lambda-{kinetic:g}" for kinetic in self.lambdas))
        return True

    def run(self, advance: Advance) -> None:
        share, steps = 1 / len(self.lambdas), self.config.probe.steps
        options = self.place.options(advance, steps)
        each = lambda _: self.place.options(advance, steps, share).on_step  # noqa: E731
        _check_finished(sweep(self.config, self.data, self.out, self.lambdas, options, each)[1])

    def words(self) -> list[str]:
        return self.line("sweep", "--kinetic", ",".join(f"{kinetic:g}" for kinetic in self.lambdas))

    def cost(self) -> Cost:
        return self.probe_cost(len(self.lambdas) * self.config.probe.steps)


@dataclass(frozen=True, kw_only=True)
class SurfaceProbe(RunJob):
    """One training for every lambda."""

    def is_done(self) -> bool:
        if not ((self.out / SURFACES).is_file() and (self.out / "surfaces.json").is_file()):
            return False
        self.check_data(self.out)
        return True

    def run(self, advance: Advance) -> None:
        options = self.place.options(advance, self.config.probe.steps)
        _, table = surface_probe(self.config, self.data, self.out, options)
        _check_finished(table is not None)

    def words(self) -> list[str]:
        return self.line("probe", "--method", "surface")

    def cost(self) -> Cost:
        return self.probe_cost(self.config.probe.steps)


@dataclass(frozen=True, kw_only=True)
class SolvePath(Job):
    """The best curve for each lambda; needs[0]: the surface probe."""

    lambdas: tuple[float, ...]

    def is_done(self) -> bool:
        path = self.out / "path.json"
        return path.is_file() and bool(LambdaPathFile.read(path).points)

    def run(self, advance: Advance) -> None:
        table, provenance = load_surfaces(self.needs[0].out / SURFACES)
        objective = FlowObjective(table.layout, *surface_settings(provenance))
        settings = PathSettings(lambdas=self.lambdas)
        family = Polynomial(groups=table.layout.names)
        path = lambda_path(family, smooth(table), objective, settings, lambda count: advance(count / len(self.lambdas)))
        about: dict[str, Any] = {"by": "lwd reproduce", "surfaces": provenance, "family": "polynomial"}
        about |= {"weights": objective.weights, "reduction": objective.reduction, "weight_gradient": "exact"}
        about["kinetic_average"] = objective.kinetic_average
        write_path(path, self.out, about | rule_of(settings))

    def words(self) -> list[str]:
        words = ["lwd", "schedule", "path", str(self.needs[0].out)]
        return [*words, "--lambdas", ",".join(f"{kinetic:g}" for kinetic in self.lambdas), "--out", str(self.out)]


@dataclass(frozen=True, kw_only=True)
class Train(RunJob):
    """Stage II under a fixed schedule: a word, or the file of a probe (needs[1]). run.keep_at names the rows."""

    schedule: str = ""

    @property
    def spec(self) -> str:
        return self.schedule or str(self.needs[1].out / SCHEDULE)

    def model(self, steps: int) -> Path:
        """The model after this many steps."""
        return self.out / "kept" / f"{steps:08}"

    def is_done(self) -> bool:
        if not all((self.model(steps) / "config.json").is_file() for steps in self.config.run.keep_at):
            return False
        config = self.config if self.config.objective.align else with_changes(self.config, network={"tap": 0})
        check_settings(self.out, config, "", self.data)
        for steps in self.config.run.keep_at if self.schedule or Path(self.spec).is_file() else ():
            found = load_schedule(self.model(steps) / "schedule.json")
            if found.to_dict() != parse_schedule(self.spec, found.groups).to_dict():
                raise InputError(
                    f"{self.model(steps)} was trained under another schedule than {self.spec}; use another directory",
                    argument="out",
                )
        return True

    def run(self, advance: Advance) -> None:
        options = self.place.options(advance, self.config.run.steps)
        config = self.config.changed(schedule=self.spec)
        _check_finished(train(config, self.data, self.out, options).finished)

    def words(self) -> list[str]:
        return self.line("train", "--schedule", self.spec)

    def cost(self) -> Cost:
        run = self.config.run
        return training_cost(self.network, run.steps, run.batch, run.keep_last, len(run.keep_at))


@dataclass(frozen=True, kw_only=True)
class Drawn(Job):
    """A set of samples; needs[0]: the training of the model, needs[1]: that of its guide, if any, then a decoder."""

    settings: SampleSettings
    steps: int
    """Training steps of the model."""
    guide_steps: int = 0
    decoder: str
    made: bool = False
    """Whether the decoder is made by a job."""
    size: int

    @property
    def model(self) -> Path:
        return _train(self.needs[0]).model(self.steps)

    @property
    def guide(self) -> str | None:
        return str(_train(self.needs[1]).model(self.guide_steps)) if self.guide_steps else None

    def is_done(self) -> bool:
        path = self.out / MANIFEST
        if not path.is_file():
            return False
        found = SamplesFile.read(path)
        mine = {key: value for key, value in self.settings.to_dict().items() if key != "labels"}
        precision = choose_precision(self.settings.precision, choose_device(self.place.device))
        mine["precision"] = precision if "precision" in found.settings else None  # a set of an earlier version
        if changed := changes({key: found.settings.get(key) for key in mine}, mine):
            raise InputError(
                f"{self.out} has samples with different settings ({'; '.join(changed)}); use another directory",
                argument="out",
            )
        for name, place, record in (("model", self.model, found.model), ("guide", self.guide, found.guide)):
            # A checksum takes a second per gigabyte: only if the files are newer than the samples.
            if place and record and is_older(path, Path(place)) and model_digest(place) != record.digest:
                raise InputError(f"{self.out} has samples of another {name} than {place}; use another directory")
        return all((self.out / name).exists() for name in found.files)

    def check(self) -> None:
        if not self.decoder:
            raise InputError("the samples need a texture autoencoder to decode them", argument="decoder")
        try:  # now: after the training it would be late
            _ = self.made or TextureAutoencoder.load(self.decoder)
        except InputError as error:
            raise InputError(f"{self.decoder} is not a texture autoencoder: {error}", argument="decoder") from error

    def run(self, advance: Advance) -> None:
        generator = open_generator(self.model, self.settings, self.guide, self.decoder, self.place.device)
        generate(generator, self.out, progress=lambda count: advance(count / self.settings.count))

    def words(self) -> list[str]:
        s = self.settings
        words = ["lwd", "sample", "--model", str(self.model)]
        words += ["--guide", self.guide, "--scale", f"{s.scale:g}"] if self.guide else []
        words += ["--decoder", self.decoder or "ae", "--count", str(s.count), "--seed", str(s.seed)]
        words += ["--label", ",".join(map(str, s.labels))] if s.labels else []
        words += ["--solver", s.solver]
        for name in ("steps", "atol", "rtol"):
            value = getattr(s, name)
            words += [f"--{name}", f"{value:g}"] if value is not None else []
        words += ["--format", ",".join(s.kinds), "--batch", str(s.batch), "--threads", str(s.threads)]
        return [*words, *self.place.flags("sample"), "--out", str(self.out)]

    def cost(self) -> Cost:
        networks = [_train(job).network for job in self.needs[: 2 if self.guide_steps else 1]]
        stages = {"euler": 1, "midpoint": 2, "heun": 2, "rk4": 4}
        s = self.settings
        fixed = s.solver in FIXED_METHODS and s.steps
        nfe = stages.get(s.solver, 1) * (s.steps or 0) if fixed else DOPRI5_NFE
        return sampling_cost(sum(map(forward_operations, networks)), s.count, nfe, self.size)


@dataclass(frozen=True, kw_only=True)
class Evaluated(Job):
    """Metrics of a set of samples (needs[0])."""

    reference: str
    settings: EvaluateSettings = field(default_factory=EvaluateSettings)

    @property
    def drawn(self) -> Drawn:
        """The set of samples."""
        job = self.needs[0]
        assert isinstance(job, Drawn)
        return job

    @property
    def samples(self) -> Path:
        return self.drawn.out

    @property
    def result(self) -> EvaluationFile:
        return EvaluationFile.read(self.samples / RESULT)

    def is_done(self) -> bool:
        if not (self.samples / RESULT).is_file():
            return False
        found = self.result
        pairs = {"reference": (found.reference.name, self.reference)}
        pairs |= {"encoder": (found.encoder, self.settings.encoder)} if found.encoder else {}
        for name, (theirs, mine) in pairs.items():
            if theirs != mine:
                raise InputError(
                    f"{self.samples / RESULT} has the {name} {theirs}, not {mine}; use another directory", argument=name
                )
        manifest = self.samples / MANIFEST
        drawn = SamplesFile.read(manifest).model.digest if manifest.is_file() else ""
        if drawn and found.samples.model and found.samples.model.digest != drawn:
            raise InputError(f"{self.samples / RESULT} is of other samples than those beside it; remove it")
        return True

    def check(self) -> None:
        if not self.reference:
            raise InputError("the metrics need a reference: ADM's .npz, or a folder of images", argument="reference")
        try:
            open_pictures(self.reference, self.settings.size)
        except InputError as error:
            raise InputError(str(error), argument="reference") from error
        networks_for(self.settings, choose_device(self.place.device))

    def run(self, advance: Advance) -> None:
        evaluate(self.samples, self.reference, self.settings, device=self.place.device)
        advance(1.0)

    def words(self) -> list[str]:
        s = self.settings
        words = ["lwd", "evaluate", str(self.samples), "--reference", self.reference or "REFERENCE"]
        words += ["--encoder", s.encoder] if s.encoder else []
        words += ["--skip-inception"] if s.skip_inception else []
        words += ["--batch", str(s.batch), "--threads", str(s.threads)]
        return [*words, *self.place.flags("evaluate")]


def _train(job: Job) -> Train:
    assert isinstance(job, Train)
    return job


def _check_finished(finished: bool) -> None:
    if not finished:
        raise Interrupted
