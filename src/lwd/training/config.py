"""Typed configuration of a run: defaults, presets that change some of them, and `section.key=value` changes."""

import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, model_validator

from lwd.checkpoints.formats import SamplingDefaults
from lwd.errors import InputError, nearest
from lwd.io.files import check_file
from lwd.io.records import Record

MAX_YAML_BYTES = 2**16


def _number(value: Any) -> Any:
    """Convert strings to numbers: YAML reads 1e-4 as a string."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


Number = Annotated[float, BeforeValidator(_number)]
Positive = Annotated[Number, Field(gt=0)]
NotNegative = Annotated[Number, Field(ge=0)]
Share = Annotated[Number, Field(ge=0, lt=1)]
Count = Annotated[int, Field(gt=0)]
CountOrNone = Annotated[int, Field(ge=0)]


class NetworkSettings(Record):
    """A LightningDiT: a named size (`XL/1`), or depth, width, heads and patch."""

    size: str = ""
    """A published size, such as XL/1; if empty, depth, width, heads and patch apply."""
    depth: Count = 5
    """Number of blocks."""
    width: Count = 128
    """Width of the tokens."""
    heads: Count = 4
    """Attention heads."""
    patch: Count = 1
    """Latent positions per token along each side."""
    tap: CountOrNone = 0
    """Block whose features are aligned with the encoder's (REPA); 0 = none. Required if objective.align > 0."""
    projector_width: Count = 2048
    """Width of the alignment projector."""
    recompute: bool = False
    """Recompute blocks in the backward pass: less memory, a third more time."""
    compile: bool = False
    """Compile the blocks of the network with torch.compile."""


class ObjectiveSettings(Record):
    """Weights of the loss terms. `cosine` and `align` are for the final training; a probe does not use them."""

    weights: dict[str, NotNegative] = Field(default_factory=dict)
    """Weights by group; the default is 1."""
    reduction: Literal["channels", "groups"] = "channels"
    """Average over all channels (the paper), or first over the channels of each group."""
    weight_gradient: Literal["exact", "stop", "none"] = "exact"
    """How the rate correction teaches the schedule; "none" switches the correction off (SFD's own loss)."""
    kinetic_average: Literal["reduction", "groups"] = "reduction"
    """Average energies as the reduction does, or over each group's channels (lambda's scale before version 0.2)."""
    cosine: NotNegative = 1.0
    """Weight of the cosine-direction loss."""
    align: NotNegative = 0.0
    """Weight of the feature alignment (REPA)."""


class AlignmentSettings(Record):
    """Where alignment features (REPA) come from: from the shards, or from images while training."""

    encoder: str = ""
    """Encoder of the features; with features in the shards, the one that `lwd encode --align` should have had."""
    images: str = ""
    """Compute the features while training, from the images that were encoded; empty: read them from the shards."""
    size: CountOrNone | None = None
    """Crop and scale images to this many pixels (default: as in encoding)."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Precision of the encoder."""
    loaders: Count = 8
    """Threads that read images, in each process."""


class TextSettings(Record):
    """Text-to-image: train a network that takes prompts on the captions of the latents, instead of class labels."""

    model: str = ""
    """A model of SeFi-Image or of lwd, for its architecture, text encoder and autoencoder; empty: class labels."""
    live: bool = False
    """Embed captions while training; otherwise once before, on disk: 6 MB each for 512 tokens of the 2B encoder."""


class OptimizerSettings(Record):
    """AdamW as in the paper's table."""

    lr: Positive = 1e-4
    """Learning rate."""
    beta1: Share = 0.9
    """Decay of the first moment."""
    beta2: Share = 0.999
    """Decay of the second moment."""
    weight_decay: NotNegative = 0.0
    """Decoupled weight decay."""
    warmup: CountOrNone = 0
    """Steps of linear warm-up to lr."""
    decay: Literal["constant", "cosine"] = "constant"
    """Learning rate after the warm-up."""
    clip: NotNegative = 0.0
    """Maximum norm of the gradient; 0 = no clipping."""
    ema: Share = 0.9999
    """Decay of the averaged weights."""
    ema_warmup: bool = False
    """Average over at most a tenth of the steps so far: for short runs, where 0.9999 would keep the initial weights."""


class RunSettings(Record):
    """Length, batch, precision, logging and checkpoints of a run."""

    steps: Count = 1_000_000
    """Training steps."""
    batch: Count = 256
    """Images per step, over all processes and accumulated parts."""
    accumulate: Count = 1
    """Number of parts into which the batch of a step is divided, to save memory."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Random seed of initialisation, data order, noise and times."""
    labels: bool = True
    """Train with class labels or captions; false = an unconditional model."""
    label_drop: Share = 0.1
    """Share of labels replaced by "any class", or captions by the empty prompt, for classifier-free guidance."""
    tau: Literal["uniform", "logit-normal"] = "uniform"
    """Distribution of the global time."""
    tau_mean: Number = 0.0
    """Mean of its logit (logit-normal only); below 0 there is more noise."""
    flip: bool = True
    """Mirror half of the images, if the shards have mirrored latents."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto: bf16 autocast on a GPU, fp32 on a CPU."""
    parallel: Literal["ddp", "fsdp2", "hsdp"] = "ddp"
    """Data parallelism with several processes; hsdp shards within a node and copies between nodes."""
    timeout: Positive = 10.0
    """Minutes after which a step fails in which another process hangs or died."""
    log_every: Count = 50
    """Steps between lines of metrics."""
    save_every: Count = 2000
    """Steps between checkpoints."""
    save_minutes: NotNegative = 30.0
    """Minutes between checkpoints, in addition to save_every; 0 = by steps only."""
    keep_last: Count = 3
    """Number of latest checkpoints to keep."""
    keep_every: CountOrNone = 0
    """Also keep the averaged weights of every so many steps for good, in kept/; 0 = none."""
    keep_at: tuple[Count, ...] = ()
    """Also keep the averaged weights of these steps for good, in kept/."""
    sample_every: CountOrNone = 0
    """Steps between grids of samples; 0 = never."""
    max_bad: Count = 10
    """Consecutive non-finite steps after which the run returns to its last checkpoint."""
    max_rollbacks: CountOrNone = 3
    """Number of returns to a checkpoint before the run fails."""


class ProbeSettings(Record):
    """Stage I: the schedule is learned together with a temporary denoiser."""

    steps: Count = 10_000
    """Steps of the probe (run.steps is for the final training)."""
    kinetic: NotNegative = 0.04
    """lambda, the weight of the kinetic energy."""
    rho_lr: Positive = 0.01
    """Learning rate of rho."""
    burn_in: CountOrNone = 5000
    """Steps before averaging of rho starts."""
    degree: Count = 4
    """Highest power of the polynomial rate."""
    start: Share = 0.0
    """Where rho starts: 0 = the identity, towards 1 = the collapsed curve."""
    starts: tuple[Share, ...] = ()
    """Several starts: a joint probe from each, of which the one with the lowest objective is kept."""
    times: Literal["uniform", "logit-normal"] = "uniform"
    """Surface probe: distribution of the independent local times."""
    times_mean: Number = 0.0
    """Surface probe: mean of their logit (logit-normal only); below 0 there is more noise."""
    focus: tuple[str, ...] = ()
    """Surface probe: schedules (words or files) whose times are drawn more often than independent ones."""
    focus_share: Share = 0.5
    """Surface probe: share of the draws at their times."""
    points: Count = 11
    """Surface probe: grid points along each clock."""
    samples: Count = 384
    """Surface probe: images at each point."""
    held_out: str = ""
    """Surface probe: latents of other images to tabulate on (by default, training images)."""


class SamplingSettings(SamplingDefaults):
    """How the trained model is sampled, kept in its checkpoints; `lwd sample` uses it unless told otherwise."""


class Config(Record):
    """The complete settings of a run; written to run.json."""

    name: str = ""
    """Name of the preset."""
    about: str = ""
    """Description of the preset."""
    expected: dict[str, Any] = Field(default_factory=dict)
    """The FID that the run should reach, by steps, and its source."""
    schedule: str = ""
    """A schedule's name or file; a probe needs none."""
    groups: tuple[str, ...] = ()
    """Groups to read, in channel order; empty: all that the data have."""
    budgets: dict[str, Any] = Field(default_factory=dict)
    """Settings by training budget, chosen as PRESET@BUDGET."""
    network: NetworkSettings = NetworkSettings()
    objective: ObjectiveSettings = ObjectiveSettings()
    alignment: AlignmentSettings = AlignmentSettings()
    text: TextSettings = TextSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    run: RunSettings = RunSettings()
    probe: ProbeSettings = ProbeSettings()
    sampling: SamplingSettings = SamplingSettings()

    @model_validator(mode="after")
    def _fits_together(self) -> "Config":
        if self.run.batch % self.run.accumulate:
            raise InputError(f"run.batch {self.run.batch} is not a multiple of run.accumulate {self.run.accumulate}")
        if self.objective.align and not self.network.tap:
            raise InputError("objective.align needs a feature tap; set network.tap=2 (the paper's block)")
        return self


def preset_names() -> tuple[str, ...]:
    """Return the names of the presets that ship with lwd."""
    folder = resources.files("lwd.training") / "presets"
    return tuple(sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".yaml")))


def weak_partner(preset: str) -> str:
    """The preset of the weak model that guides this one."""
    partner = load_config(preset).sampling.guide if preset else ""
    if not partner:
        known = [name for name in preset_names() if load_config(name).sampling.guide]
        raise InputError(f"the preset {preset!r} has no weak partner; {nearest(preset, known)}", argument="weak")
    try:
        load_config(partner)
    except InputError as error:
        raise InputError(
            f"the preset {preset!r} names the guide {partner!r}, but {error}", argument="preset"
        ) from error
    return partner


def load_config(preset: str = "", changes: Sequence[str] = ()) -> Config:
    """A preset by name (`lwd-xl`) or path of a YAML file, with `section.key=value` changes on top.

    `lwd-xl@3m` is the preset at one of its budgets.
    """
    preset, _, budget = preset.partition("@") if not os.path.isfile(preset) else (preset, "", "")
    value = {"name": Path(preset).stem} | _preset(preset, ()) if preset else {}
    if budget:
        budgets = value.get("budgets", {})
        if budget not in budgets:
            raise InputError(f"{preset} has no budget {budget!r}; {nearest(budget, budgets)}", argument="preset")
        value = _merge(value, budgets[budget]) | {"name": f"{value['name']}@{budget}"}
    for change in changes:
        key, separator, text = change.partition("=")
        if not separator:
            raise InputError(f"settings must be written as section.key=value, such as run.batch=64; got {change!r}")
        *path, last = key.strip().split(".")
        inner = value
        for part in path:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise InputError(f"{change!r}: {part} is not a section")
        inner[last] = _yaml(text, f"the value of {key}")
    return config_from_dict(value)


def config_from_dict(value: Any) -> Config:
    """Build a configuration from `Config.to_dict`; errors name unknown keys and wrong types."""
    return Config.parse(value)


def with_changes(config: Config, **sections: Mapping[str, Any]) -> Config:
    """Return a copy with some settings changed: `with_changes(config, run={"steps": 10})`."""
    return config.changed(**{name: getattr(config, name).changed(**changes) for name, changes in sections.items()})


def _preset(name: str, seen: tuple[str, ...]) -> dict[str, Any]:
    if name in seen:
        raise InputError(f"the bases of these presets form a circle: {' -> '.join((*seen, name))}")
    known = preset_names()
    if name in known:
        text = (resources.files("lwd.training") / "presets" / f"{name}.yaml").read_text()
    elif os.path.isfile(name):
        if check_file(name) > MAX_YAML_BYTES:
            raise InputError(f"{name} is too large for a preset (more than {MAX_YAML_BYTES} bytes)")
        try:
            text = Path(name).read_text("utf-8", errors="replace")
        except OSError as error:
            raise InputError(f"cannot read {name}: {error.strerror or error}") from error
    else:
        raise InputError(f"there is no preset or YAML file {name!r}; {nearest(name, known)}")
    value = _yaml(text, name)
    if not isinstance(value, dict):
        raise InputError(f"{name} must contain sections such as 'run:', got {str(value)[:40]!r}")
    base = value.pop("base", None)
    if base is None:
        return value
    return _merge(_preset(str(base), (*seen, name)), value)


def _merge(base: dict[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        both = isinstance(value, Mapping) and isinstance(base.get(key), Mapping) and key not in ("expected", "budgets")
        merged[key] = _merge(base[key], value) if both else value
    return merged


class _Loader(yaml.SafeLoader):
    """Without aliases: a few lines of them can stand for more values than memory holds."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias (*name), which lwd does not read; write the value again")
        return super().compose_node(parent, index)


def _yaml(text: str, what: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, TypeError, AttributeError) as error:
        # Impossible dates and numbers raise errors of Python's own.
        raise InputError(f"{what} is not YAML ({str(error).splitlines()[0]})") from error
