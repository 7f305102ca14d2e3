"""What a training needs on given GPUs: memory, accumulation, time, disk. Computed, not measured."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lwd.errors import InputError
from lwd.groups import Group, Layout
from lwd.models.lightningdit import LightningDiTConfig
from lwd.models.memory import activation_bytes
from lwd.models.operations import forward_operations, parameters
from lwd.training.config import Config, with_changes
from lwd.training.plan_settings import PlanSettings
from lwd.training.train import network_config

GB = 1e9
STATE, CAST = 20, 2
"""Bytes per parameter: weights, gradients, two moments and average in float32; autocast's bf16 copy."""
RESERVE = 3 * GB
"""Assumed for the CUDA context, libraries and fragments of the allocator."""
CHECKPOINT, KEPT = 16, 4
"""Bytes per parameter on disk: weights, two moments and average; a kept model."""


@dataclass(frozen=True)
class Way:
    """One way to fit a training on the GPUs."""

    parallel: str
    recompute: bool
    accumulate: int | None
    """Smallest run.accumulate that fits; None if none does."""
    images: int
    """Images of a process at a time."""
    state: float
    """Bytes of weights, gradients, moments and averages, with copies in use."""
    activations: float
    """Bytes of activations of these images."""
    hours: float

    @property
    def total(self) -> float:
        return self.state + self.activations + RESERVE


@dataclass(frozen=True)
class Plan:
    """A training on given GPUs."""

    config: Config
    settings: PlanSettings
    network: LightningDiTConfig
    parameters: int
    activations: dict[bool, float]
    """Bytes of activations per image, by run with and without network.recompute."""
    operations: float
    """Of one step, forward and backward."""
    ways: tuple[Way, ...]
    checkpoint: float
    """Bytes of a checkpoint."""
    disk: float
    """Bytes of all checkpoints of a run."""
    latents: float
    """Bytes of the latents in float16 with mirrored copies, with alignment features if the objective needs them."""

    @property
    def steps_per_second(self) -> float:
        s = self.settings
        return s.gpus * s.peak * 1e12 * s.utilisation / self.operations

    @property
    def best(self) -> Way | None:
        """The way to take: no recomputation before any, then DDP before FSDP2, then few parts."""
        fitting = [way for way in self.ways if way.accumulate is not None]
        return min(fitting, key=lambda way: (way.hours, way.parallel != "ddp", way.accumulate), default=None)


def plan(config: Config, settings: PlanSettings | None = None) -> Plan:
    """Compute what training under this configuration needs; nothing is trained and no GPU is needed."""
    s = settings or PlanSettings()
    if config.text.model:
        raise InputError("a plan is for class-conditional networks; text.model is not supported", argument="text.model")
    if config.run.batch % s.gpus:
        raise InputError(f"run.batch {config.run.batch} is not a multiple of {s.gpus} GPUs", argument="gpus")
    layout = Layout.parse(s.layout)
    if config.groups:
        layout = Layout(tuple(Group(name, layout.sizes[layout.index(name)]) for name in config.groups))
    if not config.objective.align:
        config = with_changes(config, network={"tap": 0})
    network = network_config(config, layout, classes=s.classes, grid=(s.side, s.side))
    count, run = parameters(network), config.run
    activations = {again: activation_bytes(network, again) for again in (False, True)}
    operations = 3 * forward_operations(network) * run.batch
    seconds = operations * run.steps / (s.gpus * s.peak * 1e12 * s.utilisation)
    ways = tuple(
        _way(parallel, again, _state(network, count, parallel, s.gpus), activations[again], config, s, seconds)
        for parallel in (("ddp", "fsdp2") if s.gpus > 1 else ("ddp",))
        for again in (False, True)
    )
    kept = len(run.keep_at) + (run.steps // run.keep_every if run.keep_every else 0)
    features = network.features if config.objective.align else 0
    numbers = (layout.channels + features) * s.side**2
    return Plan(
        config, s, network, count, activations, operations, ways,
        checkpoint=float(CHECKPOINT * count),
        disk=float(count * (CHECKPOINT * (run.keep_last + 1) + KEPT * kept)),
        latents=float(s.images * (2 * 2 * numbers + 8)),
    )  # fmt: skip


def _state(network: LightningDiTConfig, count: int, parallel: str, gpus: int) -> float:
    """Bytes of a GPU that do not depend on the batch."""
    if parallel == "ddp":
        return float((STATE + CAST) * count)
    block = parameters(replace(network, depth=network.depth + 1)) - count
    root = count - network.depth * block
    # Two blocks gathered in bf16, the gradient of one before it is reduced (float32), and the ends in both.
    return STATE * count / gpus + 2 * CAST * block + 2 * 4 * block + (4 + CAST + 4) * root


def _way(parallel: str, again: bool, state: float, each: float, config: Config, s: PlanSettings, seconds: float) -> Way:
    share = config.run.batch // s.gpus
    hours = seconds * (4 / 3 if again else 1) / 3600
    for accumulate in _divisors(share):
        images = share // accumulate
        way = Way(parallel, again, accumulate, images, state, each * images, hours)
        if way.total <= s.memory * GB:
            return way
    return Way(parallel, again, None, 1, state, each, hours)


def _divisors(number: int) -> Sequence[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def describe(p: Plan) -> str:
    """The plan as text."""
    s, run = p.settings, p.config.run
    lines = [
        f"network:     {p.parameters:,} parameters, {p.network.depth} blocks of {p.network.width}",
        f"activations: {p.activations[False] / 2**20:.0f} MiB per image, {p.activations[True] / 2**20:.0f} with "
        "network.recompute",
        f"step:        {p.operations / 1e12:.0f} TFLOP for {run.batch} images; at {s.utilisation:g} of {s.gpus} x "
        f"{s.peak:g} TFLOP/s {p.steps_per_second:.2f} steps per second",
        f"disk:        {p.checkpoint / GB:.1f} GB per checkpoint, {p.disk / GB:.0f} GB for a run; latents "
        f"{p.latents / GB:.0f} GB",
        "",
        f"{'parallel':<9}{'recompute':<11}{'accumulate':<12}{'images':<8}{'state':>9}{'activations':>13}{'total':>9}"
        f"{'hours':>8}",
    ]
    lines += [_row(way) for way in p.ways]
    best = p.best
    if best is None:
        return "\n".join([*lines, "", f"does not fit {s.gpus} GPUs of {s.memory:g} GB; use more GPUs"])
    changes = [f"run.parallel={best.parallel}"] * (best.parallel != "ddp")
    changes += [f"run.accumulate={best.accumulate}"] * (best.accumulate != 1)
    changes += ["network.recompute=true"] * best.recompute
    text = " ".join(f"--set {change}" for change in changes) or "the defaults"
    return "\n".join([*lines, "", f"recommended: {text}"])


def _row(way: Way) -> str:
    fits = str(way.accumulate) if way.accumulate else "does not fit"
    again = "yes" if way.recompute else "no"
    gigabytes = f"{way.state / GB:>6.1f} GB{way.activations / GB:>10.1f} GB{way.total / GB:>6.1f} GB"
    return f"{way.parallel:<9}{again:<11}{fits:<12} {way.images:<7}{gigabytes}{way.hours:>8.1f}"
