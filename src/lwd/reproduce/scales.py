"""The sizes at which the paper's experiments can be run: models, budgets, probes, samples and metrics of each."""

from typing import Literal

from lwd.errors import InputError, nearest
from lwd.io.records import Record

K, M = 1000, 1_000_000


METRICS = ("fid", "sfid", "inception_score", "precision", "recall")
"""Metrics of the paper's system-level table."""


class ModelPlan(Record):
    """A model: its preset, its schedule, and the steps at which it is evaluated."""

    name: str
    preset: str
    steps: tuple[int, ...]
    """Steps of its rows, increasing; the last is the length of the training."""
    schedule: str = ""
    """A schedule's name; empty: the learned one."""
    paper: str = ""
    """Its name in the paper's unguided table."""
    unguided: bool = True
    """Whether it is part of the unguided table."""


class GuidedPlan(Record):
    """A row of the AutoGuidance table: a model at a budget of its preset, which also names guide and scale."""

    model: str
    budget: str = ""
    steps: int
    paper: str = ""
    """Its name in the paper's table."""
    epochs: int = 0
    """Epochs in the paper's table; 0 = no row there."""


class LatentPlan(Record):
    """A semantic latent of the robustness table."""

    name: str
    channels: int
    preset: str
    """Preset of the learned schedule and the model trained under it."""
    encoder: str = ""
    """Encoder of its features, where the latents are made here."""
    paper: tuple[str, str] = ("", "")
    """Features and latent in the paper's table."""


class DrawPlan(Record):
    """Samples and metrics."""

    count: int
    batch: int = 100
    solver: str = "dopri5"
    steps: int | None = None
    atol: float | None = None
    rtol: float | None = None
    size: int
    """Height and width of an image, for the size of the samples on disk."""
    reference: str = ""
    """Reference of the metrics; empty: the user names it."""
    paper_reference: str = ""
    """Name of the paper's reference file; a table says if another one was used."""
    metrics: tuple[str, ...] = METRICS
    """Metrics that a table explains if they are missing."""
    encoder: str = ""
    """Encoder of the metrics; empty: Inception."""
    decoder: str = ""
    """Texture autoencoder; empty: made here, or the user names it."""
    shown: tuple[int, ...]
    """Classes in the grids."""
    rows: int = 6
    """Images of each class in the grids."""


class Scale(Record):
    """Everything that the plans need to know about a size."""

    name: str
    grid: tuple[int, int]
    texture: int
    classes: int
    models: tuple[ModelPlan, ...]
    guided: tuple[GuidedPlan, ...]
    latents: tuple[LatentPlan, ...]
    """The first is that of the main experiments."""
    robustness_steps: int
    baseline: str = "offset 0.3"
    """The model that the learned schedule is compared with."""
    main: str = "learned"
    """The model of the trajectory and the grids."""
    train: tuple[str, ...] = ()
    """Changes of the presets, as section.key=value."""
    weak: tuple[str, ...] = ()
    """Further changes of the weak models' presets."""
    probe: tuple[str, ...] = ()
    """Changes of the presets for probes."""
    kinetic: float
    """lambda of the main schedule."""
    common_kinetic: float
    """lambda at which semantic latents are compared."""
    lambdas: tuple[float, ...]
    sweep: Literal["joint", "surface"]
    """How lambdas are compared: a joint probe each (the paper), or one surface probe for all."""
    draw: DrawPlan
    makes: Literal["", "embedded", "cifar10"] = ""
    """Which latents can be made here if none are given."""
    cpu: bool = False
    threads: int = 2

    def model(self, name: str) -> ModelPlan:
        """A model by name."""
        return next(model for model in self.models if model.name == name)

    def latent(self, name: str) -> LatentPlan:
        """A semantic latent by name."""
        found = next((latent for latent in self.latents if latent.name == name), None)
        if found is None:
            known = [latent.name for latent in self.latents]
            raise InputError(f"{self.name} has no semantic latent {name!r}; {nearest(name, known)}", argument="latents")
        return found


def _trio(preset: str, steps: tuple[int, ...]) -> tuple[ModelPlan, ...]:
    names = {"synchronous": "synchronous", "offset 0.3": "offset:0.3", "learned": ""}
    return tuple(ModelPlan(name=name, preset=preset, steps=steps, schedule=spec) for name, spec in names.items())


def _guided(steps: int) -> tuple[GuidedPlan, ...]:
    return tuple(GuidedPlan(model=name, steps=steps) for name in ("synchronous", "offset 0.3", "learned"))


CONSTANT = ("optimizer.decay=constant", "run.sample_every=0", "run.keep_last=1")
"""A constant learning rate, as in the paper: the model of each row is a checkpoint of one training."""

TINY = Scale(
    name="tiny",
    grid=(4, 4),
    texture=16,
    classes=10,
    models=_trio("fashion-small", (30, 60)),
    guided=_guided(60),
    latents=tuple(
        LatentPlan(name=name, channels=channels, preset="fashion-small")
        for name, channels in (("pca8", 8), ("pca4", 4), ("pca2", 2))
    ),
    robustness_steps=60,
    train=("run.batch=32", "run.save_every=20", "run.log_every=10", "optimizer.warmup=10", *CONSTANT),
    weak=("optimizer.warmup=5",),
    probe=(
        *("run.batch=32", "run.save_every=20", "run.log_every=10", "optimizer.warmup=10", *CONSTANT),
        *("probe.steps=60", "probe.burn_in=40", "probe.start=0.3", "probe.rho_lr=0.05"),
        *("probe.points=6", "probe.samples=64"),
    ),
    kinetic=0.02,
    common_kinetic=0.02,
    lambdas=(0.003, 0.024, 0.18),
    sweep="surface",
    draw=DrawPlan(
        count=200,
        solver="heun",
        steps=5,
        size=28,
        reference="fashion/test",
        encoder="fashion",
        decoder="fashion",
        shown=tuple(range(10)),
    ),
    makes="embedded",
    cpu=True,
    threads=1,
)
CIFAR10 = Scale(
    name="cifar10",
    grid=(8, 8),
    texture=16,
    classes=10,
    models=_trio("cifar-small", (1000, 2000, 4000)),
    guided=_guided(4000),
    latents=tuple(
        LatentPlan(name=name, channels=channels, preset="cifar-small", encoder=encoder)
        for name, channels, encoder in (
            ("resnet-pca", 16, "resnet50:3@64"),
            ("efficientnet-pca", 16, "efficientnet-lite0:3@64"),
            ("resnet-pca4", 4, "resnet50:3@64"),
        )
    ),
    robustness_steps=4000,
    train=CONSTANT,
    probe=(*CONSTANT, "probe.start=0.3"),
    kinetic=0.02,
    common_kinetic=0.02,
    lambdas=(0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.1),
    sweep="surface",
    draw=DrawPlan(
        count=10_000,
        solver="heun",
        steps=25,
        size=32,
        reference="cifar10/test",
        shown=tuple(range(10)),
    ),
    makes="cifar10",
)
PAPER_STEPS = (400 * K, M, 2 * M, 4 * M)
IMAGENET256 = Scale(
    name="imagenet256",
    grid=(16, 16),
    texture=32,
    classes=1000,
    models=(
        ModelPlan(
            name="LightningDiT",
            preset="lightningdit-xl",
            steps=PAPER_STEPS,
            schedule="synchronous",
            paper="LightningDiT",
        ),
        ModelPlan(
            name="LightningDiT + REPA",
            preset="lightningdit-xl-repa",
            steps=PAPER_STEPS,
            schedule="synchronous",
            paper="LightningDiT + REPA",
        ),
        ModelPlan(name="synchronous", preset="sync-xl", steps=(70 * K, 120 * K, 400 * K, M), schedule="synchronous"),
        ModelPlan(
            name="offset 0.3",
            preset="sfd-xl",
            steps=(70 * K, 120 * K, *PAPER_STEPS),
            schedule="offset:0.3",
            paper="SFD",
        ),
        ModelPlan(
            name="learned",
            preset="lwd-xl",
            steps=(70 * K, 120 * K, 400 * K, 800 * K, M, 2 * M, 3 * M),
            paper="Ours",
        ),
        ModelPlan(
            name="offset 0.3, 1.0B", preset="sfd-xxl", steps=(400 * K, 4 * M), schedule="offset:0.3", unguided=False
        ),
    ),
    guided=(
        GuidedPlan(model="synchronous", budget="400k", steps=400 * K),
        GuidedPlan(model="offset 0.3", budget="400k", steps=400 * K, paper="SFD-XL", epochs=80),
        GuidedPlan(model="offset 0.3", budget="4m", steps=4 * M, paper="SFD-XL", epochs=800),
        GuidedPlan(model="offset 0.3, 1.0B", budget="400k", steps=400 * K, paper="SFD-XXL", epochs=80),
        GuidedPlan(model="offset 0.3, 1.0B", budget="4m", steps=4 * M, paper="SFD-XXL", epochs=800),
        GuidedPlan(model="learned", budget="400k", steps=400 * K, paper="Ours-XL", epochs=80),
        GuidedPlan(model="learned", budget="1m", steps=M, paper="Ours-XL", epochs=200),
        GuidedPlan(model="learned", budget="3m", steps=3 * M, paper="Ours-XL", epochs=600),
    ),
    latents=(
        LatentPlan(name="semvae", channels=16, preset="lwd-xl", paper=("DINOv2-B", "SemVAE")),
        LatentPlan(name="dino-pca", channels=16, preset="lwd-xl-dino-pca", paper=("DINOv2-B", "PCA")),
        LatentPlan(name="clip-pca", channels=16, preset="lwd-xl-clip-pca", paper=("CLIP", "VAE (SFD) or PCA (ours)")),
    ),
    robustness_steps=400 * K,
    kinetic=0.04,
    common_kinetic=0.02,
    lambdas=(0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.1),
    sweep="joint",
    draw=DrawPlan(
        count=50_000,
        batch=250,
        atol=1e-6,
        rtol=1e-3,
        size=256,
        paper_reference="VIRTUAL_imagenet256_labeled.npz",
        shown=(89, 250, 291, 417, 973, 980),
    ),
)
SCALES = {scale.name: scale for scale in (TINY, CIFAR10, IMAGENET256)}
