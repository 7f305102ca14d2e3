"""`lwd evaluate` as a function: open both sides, look once, score, write down."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lwd.compute.devices import choose_device, threads
from lwd.errors import InputError
from lwd.evaluation.features import (
    EncoderNetwork,
    InceptionNetwork,
    Network,
    check_count,
    discard,
    extract,
    given_moments,
)
from lwd.evaluation.score import NO_INCEPTION, SKIPPED, Reference, Scores, as_json, score
from lwd.evaluation.settings import EvaluateSettings
from lwd.images.pictures import Pictures, open_pictures
from lwd.io.files import cache_dir, check_writable, read_json, write_json
from lwd.version import __version__

FORMAT, VERSION = "lwd.evaluation", 1
RESULT = "evaluation.json"


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
    _check(pictures, other, path)
    networks, reason = networks_for(settings, where, cache)
    with threads(settings.threads):
        given = given_moments(other, networks)
        seen = None
        if len(other):
            seen = extract(other, networks, where, settings.batch, _bar(progress, "reference", other), cache)
        found = extract(pictures, networks, where, settings.batch, _bar(progress, "samples", pictures), cache)
        scores = score(found, Reference.of(seen, given, other.name), reason, settings.shuffle)
    if path is not None:
        sides = {
            "samples": {"name": str(samples), "count": len(pictures), "digest": pictures.digest, **about},
            "reference": {"name": str(reference), "count": len(other), "digest": other.digest},
        }
        looked = {"networks": [network.identity for network in networks], "size": settings.size}
        try:
            write_json(path, _head() | as_json(scores) | sides | looked)
        except InputError as error:  # the disk is full, say: the numbers are not lost
            return replace(scores, warnings=[*scores.warnings, f"the numbers are in no file: {error}"]), None
    discard(pictures, networks, cache)
    return scores, path


def _check(samples: Pictures, reference: Pictures, path: Path | None) -> None:
    """Find out before any image is looked at that a set is too small or the result cannot be written."""
    if not len(samples):
        raise InputError(f"{samples.name} holds moments but no images; samples must be images")
    check_count(samples)
    if len(reference):
        check_count(reference)
    if path is not None:
        if path.is_dir():
            raise InputError(f"cannot write {path}: it is a directory; --out is a file, such as {path / RESULT}")
        check_writable(path.parent)


def _head() -> dict[str, Any]:
    return {"format": FORMAT, "version": VERSION, "versions": {"lwd": __version__, "torch": torch.__version__}}


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
    model, settings, guide, nfe = (_mapping(manifest.get(key)) for key in ("model", "settings", "guide", "nfe"))
    kept = {key: settings.get(key) for key in ("solver", "steps", "placement", "rtol", "scale", "interval")}
    about = {
        "model": {**{key: model.get(key) for key in ("name", "digest")}, "step": _number(model.get("step"))},
        "guide": guide.get("name"),
        "nfe": _number(nfe.get("mean")),
        "settings": {key: value for key, value in kept.items() if value is not None},
    }
    try:
        json.dumps(about, allow_nan=False)
    except ValueError as error:
        raise InputError(f"{path / 'manifest.json'} holds NaN or infinity; run lwd sample again") from error
    return about


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> int | float | None:
    return value if is_number(value) else None


def is_number(value: Any) -> bool:
    """Whether a JSON value is a finite number that fits a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
