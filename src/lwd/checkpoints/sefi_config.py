"""sefi_config.yaml of SeFi-Image: the keys that lwd reads; all others are ignored, and nothing in it is executed."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import ConfigDict, Field

from lwd.errors import InputError, nearest
from lwd.io.files import check_file
from lwd.io.records import Record
from lwd.models.sefi import SCALES

NAMES = ("sefi_config.yaml", "config.yaml")
CUSTOM = "custom"
MAX_BYTES, MAX_ALIASES, MAX_VALUES, MAX_TEXT = 2**17, 16, 100_000, 4096
"""What a configuration may hold: references can stand for more than memory holds."""
REFERENCE = re.compile(r"\$\{([\w.-]+)\}")
Family = Literal["base", "rl", "turbo"]
FAMILIES: dict[str, Family] = {
    **dict.fromkeys(("base", "sft"), "base"),
    **dict.fromkeys(("rl", "reward", "posttrain", "post-training"), "rl"),
    **dict.fromkeys(("turbo", "distill", "distilled", "dmd", "dmd2"), "turbo"),
}
Unit = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class Foreign(Record):
    """A section of somebody else's file: unknown keys are ignored, numbers may be strings."""

    model_config = ConfigDict(extra="ignore", strict=False, coerce_numbers_to_str=True)


class TextureSection(Foreign):
    name: str = "flux2"
    base_path: str = "."


class TextSection(Foreign):
    model_name: str = ""
    weights_root: str = "text_encoder"
    max_length: Count = 512
    hidden_layers: Annotated[tuple[int, ...], Field(min_length=1)] = (9, 18, 27)


class AssetsSection(Foreign):
    transformer_config_path: str = "."
    scheduler_path: str = "."


class OverridesSection(Foreign):
    """Sizes of a custom network: all that the reference reads; others come from transformer/config.json."""

    attention_head_dim: Count | None = None
    num_attention_heads: Count | None = None
    num_layers: Count | None = None
    num_single_layers: Count | None = None
    joint_attention_dim: Count | None = None
    mlp_ratio: Annotated[float, Field(gt=0)] | None = None


class ModelSection(Foreign):
    model_name: str = ""
    family: str = ""
    variant: str = ""
    transformer_scale: str = ""
    transformer_overrides: OverridesSection = OverridesSection()
    semantic_channels: Count
    texture_vae: TextureSection = TextureSection()
    text_encoder: TextSection = TextSection()
    assets: AssetsSection = AssetsSection()


class OffsetSection(Foreign):
    delta_t_min: Unit = 0.1
    delta_t_max: Unit = 0.1


class TrainingSection(Foreign):
    sefi: OffsetSection = OffsetSection()


class InferenceSection(Foreign):
    family: str = ""
    variant: str = ""
    steps: Count | None = None
    default_steps: Count | None = None
    guidance_scale: float | None = None
    default_guidance_scale: float | None = None
    delta_t: Unit | None = None
    timestep_shift_alpha: Annotated[float, Field(gt=0)] | None = None
    height: Count | None = None
    width: Count | None = None


class DataSection(Foreign):
    resolution: Count = 1024
    height: Count | None = None
    width: Count | None = None


class SeFiFile(Foreign):
    """The settings of a SeFi-Image model; those that are missing have the reference's defaults."""

    model: ModelSection
    training: TrainingSection = TrainingSection()
    inference: InferenceSection = InferenceSection()
    data: DataSection = DataSection()

    @property
    def offset(self) -> float:
        """How far the semantic group runs ahead in sampling."""
        chosen = self.inference.delta_t
        return self.training.sefi.delta_t_max if chosen is None else chosen

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the pictures."""
        i, d = self.inference, self.data
        return i.height or d.height or d.resolution, i.width or d.width or d.resolution

    def steps(self, family: Family) -> int:
        return self.inference.steps or self.inference.default_steps or (4 if family == "turbo" else 50)

    def guidance(self, family: Family) -> float:
        """The scale; the reference takes 1 and less as no guidance."""
        chosen = self.inference.guidance_scale or self.inference.default_guidance_scale
        return max(1.0, chosen or (1.0 if family == "turbo" else 4.0))

    def shift(self, family: Family) -> float:
        return self.inference.timestep_shift_alpha or (1.0 if family == "turbo" else 0.3)

    def family(self, place: str) -> Family:
        """As configured, or as the name of the model says, or base; place: its hub id or path."""
        i, m = self.inference, self.model
        configured = (i.family or i.variant or m.family or m.variant).strip().lower().replace("_", "-")
        if configured:
            if configured not in FAMILIES:
                raise InputError(f"family must be base, rl or turbo, got {configured!r}")
            return FAMILIES[configured]
        lower = place.lower()
        if any(word in lower for word in ("turbo", "distill", "dmd")):
            return "turbo"
        return "rl" if "rl" in re.split(r"[^a-z0-9]+", lower) or "scalar" in lower else "base"

    def scale(self) -> str:
        """One of `SCALES`, custom, or empty if transformer/config.json alone decides."""
        given = self.model.transformer_scale.strip().lower()
        named = re.search(r"(\d+(?:p\d+)?b)", self.model.model_name.lower())
        found = given or (named[1] if named else "")
        if found and found not in (*SCALES, CUSTOM):
            key = "model.transformer_scale" if given else "model.model_name"
            raise InputError(f"{key} names an unknown scale {found!r}; {nearest(found, (*SCALES, CUSTOM))}")
        return found


def find_config(root: Path) -> Path | None:
    """The configuration of a SeFi-Image model in a directory; None if it is another kind of directory."""
    return next((root / name for name in NAMES if (root / name).is_file()), None)


class _Loader(yaml.SafeLoader):
    """With few aliases: a page of them can stand for more values than memory holds."""

    aliases = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            self.aliases += 1
            if self.aliases > MAX_ALIASES:
                raise yaml.YAMLError(f"it has more than {MAX_ALIASES} aliases (*name)")
        return super().compose_node(parent, index)


def read_config(path: Path) -> SeFiFile:
    """Read and check the file; errors name it."""
    if check_file(path) > MAX_BYTES:
        raise InputError(f"{path} is too large for a configuration (more than {MAX_BYTES} bytes)")
    try:
        value = yaml.load(path.read_text("utf-8"), _Loader)
        plain = _References(value).plain(value)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        # Impossible dates and numbers raise errors of Python's own.
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path} is not valid YAML ({reason})") from error
    if not isinstance(value, Mapping):
        raise InputError(f"{path} is not a SeFi-Image configuration: it has no sections")
    config = SeFiFile.parse(plain, str(path))
    low, high = config.training.sefi.delta_t_min, config.training.sefi.delta_t_max
    if low > high:
        raise InputError(f"{path}: training.sefi.delta_t_min ({low}) must not exceed delta_t_max ({high})")
    try:
        config.scale()
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return config


class _References:
    """Replaces OmegaConf's references to other keys, ${section.key}, by their values; nothing is evaluated."""

    def __init__(self, root: Any) -> None:
        self.root, self.count = root, 0

    def plain(self, value: Any, depth: int = 0) -> Any:
        """Return a value without references and empty values."""
        self.count += 1
        if self.count > MAX_VALUES:
            raise ValueError(f"it has more than {MAX_VALUES} values, with its references")
        if isinstance(value, Mapping):
            return {str(k): self.plain(v, depth) for k, v in value.items() if v is not None}
        if isinstance(value, list):
            return [self.plain(one, depth) for one in value]
        if not isinstance(value, str) or "${" not in value or depth > 16:
            return value
        single = REFERENCE.fullmatch(value)
        if single:
            found = self._lookup(single[1])
            return value if found is None else self.plain(found, depth + 1)
        text = REFERENCE.sub(lambda match: self._text(match, depth + 1), value)
        if len(text) > MAX_TEXT:
            raise ValueError(f"a text with its references is longer than {MAX_TEXT}")
        return text

    def _text(self, match: re.Match[str], depth: int) -> str:
        found = self._lookup(match[1])
        # Sections stay as they are in texts.
        return match[0] if found is None or isinstance(found, Mapping | list) else str(self.plain(found, depth))

    def _lookup(self, key: str) -> Any:
        found = self.root
        for part in key.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found
