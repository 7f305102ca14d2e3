"""Settings of a reproduction; importing them does not load torch."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from lwd.errors import InputError
from lwd.io.records import Record

TABLES = ("unguided", "autoguidance", "robustness", "lambda", "schedules", "trajectory", "grids")
"""The paper's tables and figures, in the order in which they are run."""
ALL = "all"
MAIN = "main"
"""The semantic latent of the main experiments, whatever its name at a scale."""


class ReproduceSettings(Record):
    """What to reproduce, and with which data."""

    scale: Literal["tiny", "cifar10", "imagenet256"] = "tiny"
    """Size of the experiments."""
    seeds: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(min_length=1)] = (0,)
    """Training seeds; the tables give mean and standard error over them."""
    repeat_probe: bool = False
    """Learn the schedule again for each seed (default: once)."""
    latents: dict[str, str] = Field(default_factory=dict)
    """Directories of shards by semantic latent; `main` is that of the main experiments."""
    align_images: str = ""
    """Images that the latents were encoded from, for alignment features (default: read them from the shards)."""
    decoder: str = ""
    """Texture autoencoder that decodes the samples (default: the scale's own, if it has one)."""
    reference: str = ""
    """Images or moments to evaluate against (default: the scale's own)."""
    encoder: str = ""
    """Evaluate with this encoder instead of Inception."""

    @model_validator(mode="after")
    def _distinct(self) -> "ReproduceSettings":
        if len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"the seeds must differ, got {', '.join(map(str, self.seeds))}", argument="seeds")
        return self


def parse_latents(text: str) -> dict[str, str]:
    """`DIR` -> the main latents; `semvae=DIR,dino-pca=DIR2` -> several."""
    if "=" not in text:
        return {MAIN: text}
    pairs = [part.partition("=") for part in text.split(",")]
    if any(not (name.strip() and place.strip()) for name, _, place in pairs):
        raise InputError(f"expected DIR, or NAME=DIR,NAME=DIR, got {text!r}", argument="latents")
    return {name.strip(): place.strip() for name, _, place in pairs}


def parse_seeds(text: str) -> tuple[int, ...]:
    """`0,1,2` -> (0, 1, 2)."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise InputError(f"expected seeds such as 0,1,2, got {text!r}", argument="seeds")
    return tuple(map(int, parts))
