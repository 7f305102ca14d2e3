"""Typed configuration of a run: defaults live here, presets hold only what deviates, `--set section.key=value` wins."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import yaml

from lwd.errors import InputError, nearest

MAX_YAML_BYTES = 2**20


@dataclass(frozen=True)
class NetworkSettings:
    """A LightningDiT: a named size (`XL/1`), or depth, width, heads and patch."""

    size: str = ""
    depth: int = 5
    width: int = 128
    heads: int = 4
    patch: int = 1
    tap: int = 0
    """Block whose features are aligned with the encoder's (REPA); 0 = none. Needed when objective.align > 0."""
    projector_width: int = 2048
    recompute: bool = False
    """Recompute blocks in the backward pass: less memory, a third more time."""
    compile: bool = False


@dataclass(frozen=True)
class ObjectiveSettings:
    """Weights of the loss terms. `cosine` and `align` are for the final training; the probe has them off."""

    weights: dict[str, float] = field(default_factory=dict)
    """By group; a group that is not named weighs 1."""
    reduction: Literal["channels", "groups"] = "channels"
    weight_gradient: Literal["exact", "stop", "none"] = "exact"
    """How the rate correction teaches the schedule; "none" switches the correction off (SFD's own loss)."""
    cosine: float = 1.0
    align: float = 0.0


@dataclass(frozen=True)
class OptimizerSettings:
    """AdamW as in the paper's table."""

    lr: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.999
    weight_decay: float = 0.0
    warmup: int = 0
    """Steps over which the rate rises linearly to lr."""
    decay: Literal["constant", "cosine"] = "constant"
    clip: float = 0.0
    """Largest norm of the gradient; 0 = no clipping."""
    ema: float = 0.9999
    ema_warmup: bool = False
    """Average over at most a tenth of the steps so far: for short runs, where 0.9999 would keep the start."""


@dataclass(frozen=True)
class RunSettings:
    """How long, how much at once, and what is kept."""

    steps: int = 1_000_000
    batch: int = 256
    """Images per step, over all processes and accumulated parts together."""
    accumulate: int = 1
    seed: int = 0
    label_drop: float = 0.1
    tau: Literal["uniform", "logit-normal"] = "uniform"
    flip: bool = True
    """Mirror half of the images, where the shards hold mirrored latents."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto: bf16 autocast on a GPU, fp32 on a CPU."""
    parallel: Literal["ddp", "fsdp2"] = "ddp"
    log_every: int = 50
    save_every: int = 2000
    keep_last: int = 3
    keep_every: int = 0
    """Also keep the checkpoint of every so many steps for good; 0 = none."""
    sample_every: int = 0
    """Draw a grid of samples every so many steps; 0 = never."""
    max_bad: int = 10
    """Non-finite steps in a row after which the run goes back to its last checkpoint."""
    max_rollbacks: int = 3


@dataclass(frozen=True)
class ProbeSettings:
    """Stage I: the schedule learns together with a temporary denoiser."""

    steps: int = 10_000
    """The probe's own length; run.steps is the final training's."""
    kinetic: float = 0.04
    """lambda, the weight of the kinetic energy."""
    rho_lr: float = 0.01
    burn_in: int = 5000
    degree: int = 4
    start: float = 0.0
    """Where rho starts: 0 = the identity, towards 1 = the collapsed curve."""
    points: int = 11
    """Surface probe: grid points along each clock."""
    samples: int = 384
    """Surface probe: images at each point."""


@dataclass(frozen=True)
class Config:
    """A whole run, resolved; written with it as run.json."""

    name: str = ""
    about: str = ""
    expected: dict[str, Any] = field(default_factory=dict)
    """The FID that the run should reach, by steps, and where the number comes from."""
    schedule: str = ""
    """A schedule word or file; the probe needs none."""
    network: NetworkSettings = field(default_factory=NetworkSettings)
    objective: ObjectiveSettings = field(default_factory=ObjectiveSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    run: RunSettings = field(default_factory=RunSettings)
    probe: ProbeSettings = field(default_factory=ProbeSettings)

    def __post_init__(self) -> None:
        for section, names in POSITIVE.items():
            for name in names:
                _check(getattr(getattr(self, section), name) > 0, section, name, self, "> 0")
        for section, names in NOT_NEGATIVE.items():
            for name in names:
                _check(getattr(getattr(self, section), name) >= 0, section, name, self, ">= 0")
        _check(0 <= self.run.label_drop < 1, "run", "label_drop", self, "in [0, 1)")
        _check(0 <= self.optimizer.ema < 1, "optimizer", "ema", self, "in [0, 1)")
        _check(0 <= self.probe.start < 1, "probe", "start", self, "in [0, 1)")
        _check(self.run.seed < 2**63, "run", "seed", self, "below 2^63")
        for beta in ("beta1", "beta2"):
            _check(0 <= getattr(self.optimizer, beta) < 1, "optimizer", beta, self, "in [0, 1)")
        if self.run.batch % self.run.accumulate:
            raise InputError(f"run.batch {self.run.batch} is not a multiple of run.accumulate {self.run.accumulate}")
        if self.objective.align and not self.network.tap:
            raise InputError("objective.align needs features of the network; set network.tap=2 (the paper's block)")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


POSITIVE = {
    "network": ("depth", "width", "heads", "patch", "projector_width"),
    "optimizer": ("lr",),
    "run": ("steps", "batch", "accumulate", "log_every", "save_every", "keep_last", "max_bad"),
    "probe": ("steps", "rho_lr", "degree"),
}
NOT_NEGATIVE = {
    "objective": ("cosine", "align"),
    "network": ("tap",),
    "optimizer": ("weight_decay", "warmup", "clip"),
    "run": ("seed", "keep_every", "sample_every", "max_rollbacks"),
    "probe": ("kinetic", "burn_in"),
}


def _check(good: bool, section: str, name: str, config: Config, allowed: str) -> None:
    if not good:
        raise InputError(f"{section}.{name} must be {allowed}, got {getattr(getattr(config, section), name)}")


def preset_names() -> tuple[str, ...]:
    """The presets that come with lwd."""
    folder = resources.files("lwd.training") / "presets"
    return tuple(sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".yaml")))


def weak_partner(preset: str) -> str:
    """The preset of the weak model that guides this one."""
    known = {"lwd-xl": "lwd-b-weak", "lwd-xxl": "lwd-b-weak", "sfd-xl": "sfd-b-weak", "sync-xl": "sync-b-weak"}
    known |= {name: f"{name.removesuffix('-small')}-weak" for name in ("cifar-small", "fashion-small")}
    if preset not in known:
        raise InputError(f"--weak needs a preset that has a weak partner; {nearest(preset, known)}")
    return known[preset]


def load_config(preset: str = "", changes: Sequence[str] = ()) -> Config:
    """A preset by name (`lwd-xl`) or path of a YAML file, with `section.key=value` changes on top."""
    value = {"name": Path(preset).stem} | _preset(preset, ()) if preset else {}
    for change in changes:
        key, separator, text = change.partition("=")
        if not separator:
            raise InputError(f"settings are written as section.key=value, for example run.batch=64; got {change!r}")
        *path, last = key.strip().split(".")
        inner = value
        for part in path:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise InputError(f"{change!r}: {part} is not a section")
        inner[last] = _yaml(text, f"the value of {key}")
    return config_from_dict(value)


def config_from_dict(value: Any) -> Config:
    """The inverse of `Config.to_dict`; unknown keys and wrong types are named."""
    config: Config = _build(Config, value, "")
    return config


def with_changes(config: Config, **sections: Mapping[str, Any]) -> Config:
    """`with_changes(config, run={"steps": 10})`: a copy with some settings changed."""
    return replace(config, **{name: replace(getattr(config, name), **changes) for name, changes in sections.items()})


def _preset(name: str, seen: tuple[str, ...]) -> dict[str, Any]:
    if name in seen:
        raise InputError(f"presets name each other as base in a circle: {' -> '.join((*seen, name))}")
    known = preset_names()
    if name in known:
        text = (resources.files("lwd.training") / "presets" / f"{name}.yaml").read_text()
    elif Path(name).is_file():
        if Path(name).stat().st_size > MAX_YAML_BYTES:
            raise InputError(f"{name} is too large for a preset")
        text = Path(name).read_text(errors="replace")
    else:
        raise InputError(f"there is no preset or YAML file {name!r}; {nearest(name, known)}")
    value = _yaml(text, name)
    if not isinstance(value, dict):
        raise InputError(f"{name} must hold sections such as 'run:', got {str(value)[:40]!r}")
    base = value.pop("base", None)
    if base is None:
        return value
    return _merge(_preset(str(base), (*seen, name)), value)


def _merge(base: dict[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        both = isinstance(value, Mapping) and isinstance(base.get(key), Mapping) and key != "expected"
        merged[key] = _merge(base[key], value) if both else value
    return merged


def _yaml(text: str, what: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"{what} is not YAML ({str(error).splitlines()[0]})") from error


def _build(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise InputError(f"{where or 'a configuration'} is a section with keys, got {str(value)[:40]!r}")
    hints, known = get_type_hints(kind), [f.name for f in fields(kind)]
    found = {}
    for key, item in value.items():
        if key not in known:
            raise InputError(f"there is no setting {where}{key}; {nearest(str(key), known)}")
        found[key] = _typed(hints[key], item, f"{where}{key}")
    return kind(**found)


def _typed(hint: Any, value: Any, where: str) -> Any:
    if hasattr(hint, "__dataclass_fields__"):
        return _build(hint, value, f"{where}.")
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise InputError(f"{where} is one of {', '.join(get_args(hint))}, got {value!r}")
        return value
    if get_origin(hint) is dict:
        numbers = get_args(hint)[1] is float
        if not isinstance(value, Mapping) or (numbers and not all(_is_number(v) for v in value.values())):
            raise InputError(f"{where} is a table such as {{semantic: 2}}, got {value!r}")
        return {str(key): float(item) if numbers else item for key, item in value.items()}
    if hint is float and isinstance(value, str):  # YAML reads 1e-4 as text
        try:
            value = float(value)
        except ValueError:
            raise InputError(f"{where} is a number, got {value!r}") from None
    good = {float: _is_number(value), int: isinstance(value, int) and not isinstance(value, bool)}
    if not good.get(hint, isinstance(value, hint)):
        raise InputError(f"{where} is a {NAMES[hint]}, got {value!r}")
    return float(value) if hint is float else value


NAMES = {float: "number", int: "whole number", bool: "true or false", str: "text"}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value and abs(value) < 1e308
