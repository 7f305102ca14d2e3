"""The jobs of one output directory, by model, seed and semantic latent; tables that need the same job share it."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lwd.evaluation.evaluate import RESULT
from lwd.evaluation.settings import EvaluateSettings
from lwd.groups import Group, Layout
from lwd.models.lightningdit import LightningDiTConfig
from lwd.reproduce.jobs import Job, Place, config_of
from lwd.reproduce.latents import EmbeddedLatents, EncodeCifar, FitPCA, FitTexture, GivenLatents
from lwd.reproduce.scales import GuidedPlan, ModelPlan, Scale
from lwd.reproduce.settings import MAIN, ReproduceSettings
from lwd.reproduce.stages import Drawn, Evaluated, Probe, SolvePath, SurfaceProbe, Sweep, Train
from lwd.sampling.settings import SampleSettings
from lwd.training.config import weak_partner, with_changes
from lwd.training.train import network_config

APART = 10_000_000
"""Distance between the sampling seeds of two training seeds: more than the samples of a set."""


@dataclass(frozen=True)
class Workspace:
    """Names every job of an output directory."""

    out: Path
    scale: Scale
    settings: ReproduceSettings

    @cached_property
    def main(self) -> str:
        """The semantic latent of the main experiments."""
        return self.scale.latents[0].name

    @cached_property
    def given(self) -> dict[str, str]:
        """Directories of the user's latents by name."""
        found = {self.main if name == MAIN else name: place for name, place in self.settings.latents.items()}
        for name in found:
            self.scale.latent(name)
        return found

    @property
    def place(self) -> Place:
        return Place(self.scale.cpu, self.scale.threads)

    def available(self) -> list[str]:
        """Semantic latents that are given or can be made; the main one is always asked for."""
        made = self.scale.makes and not self.given
        return [one.name for one in self.scale.latents if made or one.name in self.given or one.name == self.main]

    def latents(self, name: str) -> Job:
        """The shards with a semantic latent."""
        out, plan, place = self.out / "latents" / name, self.scale.latent(name), self.place
        if self.given or not self.scale.makes:
            return GivenLatents(title=f"latents {name}", out=Path(self.given.get(name, "latents")), place=place)
        if self.scale.makes == "embedded":
            return EmbeddedLatents(title=f"encode {name}", out=out, place=place, channels=plan.channels)
        made: dict[str, Any] = {"place": place, "channels": plan.channels, "encoder": plan.encoder}
        pca = FitPCA(title=f"fit {name}", out=self.out / name, **made)
        return EncodeCifar(title=f"encode {name}", out=out, needs=(self.texture, pca), **made)

    @cached_property
    def texture(self) -> Job:
        """The texture autoencoder of CIFAR-10."""
        return FitTexture(
            title="fit the autoencoder", out=self.out / "ae", place=self.place, channels=self.scale.texture
        )

    def network(self, preset: str, changes: tuple[str, ...], latent: str, probe: bool = False) -> LightningDiTConfig:
        """The network of a preset on a semantic latent."""
        config, scale = config_of(preset, changes), self.scale
        channels = {"texture": scale.texture, "semantic": scale.latent(latent).channels}
        layout = Layout(tuple(Group(name, channels[name]) for name in config.groups or channels))
        if probe or not config.objective.align:
            config = with_changes(config, network={"tap": 0}, objective={"align": 0.0})
        return network_config(config, layout, classes=scale.classes, grid=scale.grid)

    def probe(self, latent: str, kinetic: float, seed: int | None = None) -> Probe:
        """The learned schedule of a semantic latent; by default with the preset's own seed."""
        preset = self.scale.latent(latent).preset
        changes = (*self.scale.probe, f"probe.kinetic={kinetic:g}")
        ending, words = "", ""
        if seed not in (None, config_of(preset, changes).run.seed):
            changes, ending, words = (*changes, f"run.seed={seed}"), f"-seed{seed}", f", seed {seed}"
        return Probe(
            title=f"probe {latent}, lambda {kinetic:g}{words}",
            out=self.out / "probe" / f"{latent}-lambda{kinetic:g}{ending}",
            needs=(self.latents(latent),),
            place=self.place,
            preset=preset,
            changes=changes,
            network=self.network(preset, changes, latent, probe=True),
        )

    def lambdas(self) -> Job:
        """The curves by lambda: joint probes, or the path on the surfaces of one probe."""
        s, preset = self.scale, self.scale.latents[0].preset
        common: dict[str, Any] = {"needs": (self.latents(self.main),), "place": self.place}
        run: dict[str, Any] = {
            "preset": preset,
            "changes": s.probe,
            "network": self.network(preset, s.probe, self.main, probe=True),
        }
        if s.sweep == "joint":
            return Sweep(title="sweep lambda", out=self.out / "sweep", lambdas=s.lambdas, **common, **run)
        surface = SurfaceProbe(title="surface probe", out=self.out / "surface", **common, **run)
        return SolvePath(
            title="solve for every lambda",
            out=self.out / "path",
            needs=(surface,),
            place=self.place,
            lambdas=s.lambdas,
        )

    def train(self, model: ModelPlan, seed: int, latent: str = "") -> Train:
        """A model; on another semantic latent it has that latent's preset (if learned) and budget."""
        latent = latent or self.main
        preset, steps, name = model.preset, model.steps, model.name
        if latent != self.main:
            preset = preset if model.schedule else self.scale.latent(latent).preset
            steps, name = (self.scale.robustness_steps,), f"{name}-{latent}"
        changes = (*self.scale.train, f"run.steps={steps[-1]}", f"run.keep_at={_list(steps)}", f"run.seed={seed}")
        return self._train(name, preset, changes, seed, (model.schedule, latent))

    def weak(self, model: ModelPlan, guide: str, seed: int) -> Train:
        """The weak partner of a model, under the same schedule."""
        steps = config_of(guide, (*self.scale.train, *self.scale.weak)).run.steps
        steps = min(steps, max(1, model.steps[-1] // 2))
        changes = (*self.scale.train, *self.scale.weak, f"run.steps={steps}", f"run.keep_at=[{steps}]")
        name = f"{guide}-for-{model.name}"
        return self._train(name, guide, (*changes, f"run.seed={seed}"), seed, (model.schedule, self.main))

    def _train(self, name: str, preset: str, changes: tuple[str, ...], seed: int, under: tuple[str, str]) -> Train:
        schedule, latent = under
        if self.settings.align_images and config_of(preset, changes).objective.align:
            changes = (*changes, f"alignment.images={self.settings.align_images}")
        kinetic = self.scale.kinetic if latent == self.main else self.scale.common_kinetic
        needs: tuple[Job, ...] = (self.latents(latent),)
        if not schedule:
            needs = (*needs, self.probe(latent, kinetic, seed if self.settings.repeat_probe else None))
        return Train(
            title=f"train {name}, seed {seed}",
            out=self.out / "train" / f"{_slug(name)}-seed{seed}",
            needs=needs,
            place=self.place,
            preset=preset,
            changes=changes,
            network=self.network(preset, changes, latent),
            schedule=schedule,
        )

    def unguided(self, model: ModelPlan, steps: int, seed: int, latent: str = "") -> Evaluated:
        """Metrics of a model's samples after this many steps."""
        return self._evaluated(self._drawn(self.train(model, seed, latent), steps, self._settings(seed)))

    def guided(self, row: GuidedPlan, seed: int) -> Evaluated:
        """Metrics of a model's samples with AutoGuidance."""
        return self._evaluated(self.guided_samples(row, seed, self._settings(seed)))

    def guided_samples(self, row: GuidedPlan, seed: int, settings: SampleSettings, name: str = "guided") -> Drawn:
        """Samples with the guide and scale of the model's preset at the row's budget."""
        model = self.scale.model(row.model)
        preset = model.preset + (f"@{row.budget}" if row.budget else "")
        weak = self.weak(model, weak_partner(preset), seed)
        settings = settings.changed(scale=config_of(preset).sampling.scale)
        return self._drawn(self.train(model, seed), row.steps, settings, weak, name)

    def grids(self) -> Drawn:
        """The main model's guided samples of the shown classes, for pictures."""
        d, seed = self.scale.draw, self.settings.seeds[0]
        row = next(row for row in reversed(self.scale.guided) if row.model == self.scale.main)
        settings = self._settings(seed).changed(count=len(d.shown) * d.rows, labels=d.shown)
        return self.guided_samples(row, seed, settings, "grid")

    def _settings(self, seed: int) -> SampleSettings:
        """Settings of samples: equal for all models of a seed, so that they are compared in pairs."""
        d = self.scale.draw
        options = {name: getattr(d, name) for name in ("steps", "atol", "rtol") if getattr(d, name) is not None}
        return SampleSettings(
            count=d.count,
            seed=seed * APART,
            solver=d.solver,
            kinds=("npz",),
            batch=d.batch,
            threads=self.scale.threads,
            **options,
        )

    def _drawn(
        self, train: Train, steps: int, settings: SampleSettings, weak: Train | None = None, kind: str = ""
    ) -> Drawn:
        decoder, needs = self.settings.decoder or self.scale.draw.decoder, (train, *((weak,) if weak else ()))
        made = not decoder and self.scale.makes == "cifar10" and not self.given
        ending = f"-{kind}" if kind else ""
        return Drawn(
            title=f"sample {train.out.name}, {steps} steps{', ' + kind if kind else ''}",
            out=self.out / "samples" / f"{train.out.name}-{steps}{ending}",
            needs=(*needs, self.texture) if made else needs,
            place=self.place,
            settings=settings,
            steps=steps,
            guide_steps=weak.config.run.steps if weak else 0,
            decoder=str(self.texture.out) if made else decoder,
            made=made,
            size=self.scale.draw.size,
        )

    def _evaluated(self, samples: Drawn) -> Evaluated:
        encoder = self.settings.encoder or self.scale.draw.encoder
        settings = EvaluateSettings(
            encoder=encoder, skip_inception=bool(encoder), batch=100, threads=self.scale.threads
        )
        return Evaluated(
            title=f"evaluate {samples.out.name}",
            out=samples.out / RESULT,
            needs=(samples,),
            place=self.place,
            reference=self.settings.reference or self.scale.draw.reference,
            settings=settings,
        )


def _list(steps: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, steps))}]"


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() or c in ".-" else "-" for c in name.replace(", ", "-"))
