"""Score a set of images against a reference (`lwd evaluate`)."""

import os
import re
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
    extract_share,
    given_moments,
)
from lwd.evaluation.formats import EvaluationFile, ScoredModel, ScoredReference, ScoredSamples
from lwd.evaluation.score import NO_INCEPTION, SKIPPED, Reference, Scores, as_fields, score
from lwd.evaluation.settings import EvaluateSettings
from lwd.images.pictures import Pictures, open_pictures
from lwd.io.files import cache_dir, check_writable, read_json
from lwd.sampling.formats import SamplesFile
from lwd.version import __version__

RESULT = "evaluation.json"
SCORING = "scoring"
Progress = Callable[[str, int], Callable[[float], object]]
"""progress(title, total) returns a function to call with how much was done: images, or shares of the scoring."""
WEIGHTS = re.compile(r"(?:weights|files) ([0-9a-f]{8,})")
"""The checksum in an encoder's identity."""
DEPENDENT = (
    "the encoder {} also made what the model was trained on ({}), so its metrics are not independent of the model; "
    "use Inception or another encoder"
)


DEFAULTS = EvaluateSettings()


def evaluate(
    samples: str | os.PathLike[str],
    reference: str | os.PathLike[str],
    settings: EvaluateSettings = DEFAULTS,
    out: str | os.PathLike[str] | None = None,
    device: str | None = None,
    progress: Progress | None = None,
    cache: Path | None = None,
) -> tuple[Scores, Path | None]:
    """Score one set of images against another, and write the result as JSON to `out`.

    out: by default evaluation.json beside the samples, where these are a directory of `lwd sample`.
    progress: see `Progress`.

    Example:
        >>> import numpy as np
        >>> noise = np.random.default_rng(0).integers(0, 256, (100, 28, 28, 3), np.uint8)
        >>> np.savez("noise.npz", arr_0=noise)
        >>> settings = lwd.EvaluateSettings(encoder="fashion", skip_inception=True)
        >>> scores, path = lwd.evaluate("noise.npz", "fashion/test", settings, out="noise.json")
        >>> sorted(scores.metrics)
        ['classifier_score', 'coverage', 'density', 'frechet', 'kid', 'precision', 'recall']
    """
    where = choose_device(device)
    pictures, other = open_pictures(samples), open_pictures(reference, settings.size)
    about = about_samples(Path(samples))
    path = Path(out) if out is not None else Path(samples) / RESULT if about else None
    _check(pictures, other, path)
    networks, reason = networks_for(settings, where, cache)
    with threads(settings.threads):
        given = given_moments(other, networks)
        theirs = None
        if len(other):
            theirs = extract(other, networks, where, settings.batch, _bar(progress, "reference", other), cache)
        ours = extract(pictures, networks, where, settings.batch, _bar(progress, "samples", pictures), cache)
        bar, found = progress and progress(SCORING, 1), Reference.of(theirs, given, other.name)
        scores = score(ours, found, reason, settings.shuffle, where, bar)
    shared = made_by(networks[-1].identity if settings.encoder else "", about.get("encoders", {}))
    warned = [DEPENDENT.format(settings.encoder, ", ".join(shared))] if shared else []
    scores = replace(scores, warnings=[*scores.warnings, *warned], encoder=settings.encoder)
    if path is not None:
        record = EvaluationFile(
            **as_fields(scores),
            samples=ScoredSamples(name=str(samples), count=len(pictures), digest=pictures.digest, **about),
            reference=ScoredReference(name=str(reference), count=len(other), digest=other.digest),
            networks=[network.identity for network in networks],
            encoder=settings.encoder,
            dependent=shared,
            size=settings.size,
            versions={"lwd": __version__, "torch": torch.__version__},
        )
        try:
            record.write(path)
        except InputError as error:  # for example, the disk is full; the scores are still printed
            return replace(scores, warnings=[*scores.warnings, f"the scores were not saved: {error}"]), None
    discard(pictures, networks, cache)
    return scores, path


def share_features(
    samples: str | os.PathLike[str],
    reference: str | os.PathLike[str],
    settings: EvaluateSettings,
    share: tuple[int, int],
    device: str | None = None,
    progress: Progress | None = None,
    cache: Path | None = None,
) -> None:
    """Compute this process's part of the features of both sets, for the process that calls `evaluate` afterwards.

    share: this process's rank and the number of processes; the first one returns when all are done.
    """
    where = choose_device(device)
    pictures, other = open_pictures(samples), open_pictures(reference, settings.size)
    _check(pictures, other, None)
    networks, _ = networks_for(settings, where, cache)
    with threads(settings.threads):
        for title, images in (("reference", other), ("samples", pictures)):
            if len(images):
                count = progress(title, -(-len(images) // share[1])) if progress is not None else None
                extract_share(images, networks, share, settings.batch, count, cache)


def _check(samples: Pictures, reference: Pictures, path: Path | None) -> None:
    """Raise an error, before reading any image, if a set is too small or the result cannot be written."""
    if not len(samples):
        raise InputError(f"{samples.name} has moments but no images; samples must be images")
    check_count(samples)
    if len(reference):
        check_count(reference)
    if path is not None:
        if path.is_dir():
            raise InputError(
                f"cannot write {path}: it is a directory; use a file such as {path / RESULT}", argument="out"
            )
        check_writable(path.parent)


def networks_for(
    settings: EvaluateSettings, device: torch.device, cache: Path | None = None
) -> tuple[Sequence[Network], str]:
    """Load the requested networks; returns them, and the reason if Inception is missing."""
    networks: list[Network] = []
    reason = SKIPPED
    if not settings.skip_inception:
        reason = NO_INCEPTION
        if ((cache or cache_dir()) / "inception").is_dir() or not settings.encoder:
            networks.append(InceptionNetwork(device, cache))
    if settings.encoder:
        networks.append(EncoderNetwork(settings.encoder, device, cache))
    if not networks:
        raise InputError("without Inception there is nothing to compute; choose an encoder", argument="encoder")
    return networks, reason


def _bar(progress: Any, title: str, pictures: Pictures) -> Callable[[int], object] | None:
    bar: Callable[[int], object] | None = progress(title, len(pictures)) if progress is not None else None
    return bar


def about_samples(path: Path) -> dict[str, Any]:
    """Return what `lwd sample` recorded about a set: model, solver and cost; empty for other images."""
    manifest = path / "manifest.json"
    value = read_json(manifest) if manifest.is_file() else None
    if not isinstance(value, Mapping) or value.get("format") != SamplesFile.format_name():
        return {}
    record = SamplesFile.check(value, str(manifest))
    names = ("solver", "steps", "placement", "diffusion", "last_step", "rtol", "scale", "interval")
    kept = {key: record.settings.get(key) for key in names}
    model = record.model
    return {
        "model": ScoredModel(name=model.name, digest=model.digest, step=model.step),
        "guide": record.guide.name if record.guide else None,
        "nfe": record.nfe.mean,
        "settings": {key: value for key, value in kept.items() if value is not None},
        "encoders": record.encoders,
    }


def made_by(network: str, encoders: Mapping[str, str]) -> list[str]:
    """Names of the latents and alignment features that a network with the same weights made, at any layer or size."""
    checksum = WEIGHTS.search(network)
    names = [name for name in encoders if name != "texture" and not name.endswith("compressor")]
    found = {name: WEIGHTS.search(encoders[name]) for name in names}
    same = {name for name, one in found.items() if one and checksum and one[1] == checksum[1]}
    return [name for name in names if network and (name in same or encoders[name] == network)]
