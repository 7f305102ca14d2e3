"""`lwd evaluate` as a function: open both sides, look once, score, write down."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lwd.data.pictures import Pictures, open_pictures
from lwd.errors import InputError
from lwd.evaluation.features import EncoderNetwork, InceptionNetwork, Network, forget, given_moments, look
from lwd.evaluation.score import NO_INCEPTION, SKIPPED, Reference, Scores, as_json, score
from lwd.files import cache_dir, read_json, write_json
from lwd.jobs import threads
from lwd.representations.encoders import choose_device
from lwd.version import __version__

FORMAT, VERSION = "lwd.evaluation", 1
RESULT = "evaluation.json"


@dataclass(frozen=True)
class EvaluateSettings:
    """How to look at the images."""

    size: int = 0
    """Crop and scale the reference to so many pixels (a folder of photographs)."""
    encoder: str = ""
    """Also a Fréchet distance on this encoder (see `lwd encode --semantic`)."""
    skip_inception: bool = False
    shuffle: bool = False
    batch: int = 25
    threads: int = 2


DEFAULTS = EvaluateSettings()


def evaluate(
    samples: str | os.PathLike[str],
    reference: str | os.PathLike[str],
    settings: EvaluateSettings = DEFAULTS,
    out: str | os.PathLike[str] | None = None,
    device: str | None = None,
    progress: Callable[[str, int], Callable[[int], object]] | None = None,
    cache: Path | None = None,
) -> tuple[Scores, Path | None]:
    """Score one set of images against another; the result is also written as JSON to `out`.

    out: by default evaluation.json beside the samples, where these are a directory of `lwd sample`.
    progress(title, total) is asked for a function that takes how many images were looked at.
    """
    where = choose_device(device)
    pictures, other = open_pictures(samples), open_pictures(reference, settings.size)
    about = about_samples(Path(samples))
    path = Path(out) if out is not None else Path(samples) / RESULT if about else None
    networks, reason = networks_for(settings, where, cache)
    with threads(settings.threads):
        given = given_moments(other)
        seen = None
        if len(other):
            seen = look(other, networks, where, settings.batch, _bar(progress, "reference", other), cache)
        if not len(pictures):
            raise InputError(f"{samples} holds moments but no images; samples must be images")
        found = look(pictures, networks, where, settings.batch, _bar(progress, "samples", pictures), cache)
        scores = score(found, Reference.of(seen, given, other.name), reason, settings.shuffle)
    if path is not None:
        head = {"format": FORMAT, "version": VERSION}
        sides = {
            "samples": {"name": str(samples), "count": len(pictures), "digest": pictures.digest, **about},
            "reference": {"name": str(reference), "count": len(other), "digest": other.digest},
        }
        looked = {"networks": [network.identity for network in networks], "size": settings.size}
        versions = {"versions": {"lwd": __version__, "torch": torch.__version__}}
        write_json(path, head | as_json(scores) | sides | looked | versions)
    forget(pictures, networks, cache)
    return scores, path


def networks_for(
    settings: EvaluateSettings, device: torch.device, cache: Path | None = None
) -> tuple[Sequence[Network], str]:
    """The networks that are asked for and there; and why Inception is not, where it is not."""
    networks: list[Network] = []
    reason = SKIPPED
    if not settings.skip_inception:
        reason = NO_INCEPTION
        if ((cache or cache_dir()) / "inception").is_dir() or not settings.encoder:
            networks.append(InceptionNetwork(device, cache))
    if settings.encoder:
        networks.append(EncoderNetwork(settings.encoder, device, cache))
    if not networks:
        raise InputError("--skip-inception leaves nothing to compute; add --encoder NAME")
    return networks, reason


def _bar(progress: Any, title: str, pictures: Pictures) -> Callable[[int], object] | None:
    bar: Callable[[int], object] | None = progress(title, len(pictures)) if progress is not None else None
    return bar


def about_samples(path: Path) -> dict[str, Any]:
    """What `lwd sample` wrote down about a set: its model's step, its solver and cost; empty for other images."""
    if not (path / "manifest.json").is_file():
        return {}
    manifest = read_json(path / "manifest.json")
    if not isinstance(manifest, Mapping) or manifest.get("format") != "lwd.samples":
        return {}
    model = manifest.get("model") or {}
    settings = manifest.get("settings") or {}
    kept = {key: settings.get(key) for key in ("solver", "steps", "placement", "rtol", "scale", "interval")}
    return {
        "model": {key: model.get(key) for key in ("name", "digest", "step")},
        "guide": (manifest.get("guide") or {}).get("name"),
        "nfe": (manifest.get("nfe") or {}).get("mean"),
        "settings": {key: value for key, value in kept.items() if value is not None},
    }
