"""The quality of a solver setting: the Fréchet distance of its samples, without writing them to disk."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lwd.compute.devices import threads
from lwd.errors import InputError
from lwd.evaluation.evaluate import networks_for
from lwd.evaluation.features import ENCODER, PARTS, POOL, discard, extract, given_moments
from lwd.evaluation.score import Metric, Reference, frechet
from lwd.evaluation.settings import EvaluateSettings
from lwd.images.pictures import open_pictures
from lwd.images.sources import Pixels
from lwd.sampling.benchmark import Trial
from lwd.sampling.generator import Generator
from lwd.sampling.settings import UNIFORM


class Quality:
    """Draw `count` samples with the setting of a trial and compare them with a reference, whose features are cached."""

    def __init__(self, generator: Generator, reference: str, count: int, encoder: str = "") -> None:
        if count < PARTS:
            raise InputError(f"a Fréchet distance needs at least {PARTS} samples, got {count}", argument="samples")
        generator.check_decoder()
        self.generator, self.count = generator, count
        wanted = EvaluateSettings(encoder=encoder, skip_inception=bool(encoder))
        self.networks, _ = networks_for(wanted, generator.device)
        self.feature = ENCODER if encoder else POOL
        pictures = open_pictures(reference)
        given = given_moments(pictures, self.networks)
        if not len(pictures) and self.feature not in given:
            raise InputError(f"{reference} has no images and no moments of the {self.feature!r} features; pass images")
        features = extract(pictures, self.networks, generator.device) if len(pictures) else None
        self.reference = Reference.of(features, given, pictures.name)

    def __call__(self, trial: Trial) -> tuple[float, float]:
        chosen = {"solver": trial.solver, "steps": trial.steps, "placement": trial.placement or UNIFORM}
        s = self.generator.settings.changed(count=self.count, rtol=trial.rtol, **chosen)
        generator = replace(self.generator, settings=s)
        # The times of the trial's steps are known; placing them again would cost as much as finding them.
        placed = {"method": trial.solver, "grid": list(trial.grid)} if trial.grid is not None else generator.solver()
        drawn = _Drawn(generator, placed)
        with threads(s.threads):
            features = extract(drawn, self.networks, self.generator.device)
        discard(drawn, self.networks)
        metric: Metric = frechet(features, self.feature, *self.reference.moments[self.feature])
        return metric.value, metric.error


class _Drawn:
    """Samples as a set of pictures."""

    def __init__(self, generator: Generator, solver: Mapping[str, Any]) -> None:
        self.generator, self.name, self.solver = generator, "samples", solver
        self.digest = f"drawn-{generator.settings}-{self.solver}-{generator.record}"

    def __len__(self) -> int:
        return self.generator.settings.count

    def batches(self, size: int, start: int = 0) -> Iterator[Pixels]:
        for low in range(start, len(self), size):
            yield np.asarray(self.generator.draw(low, min(low + size, len(self)), self.solver)[0])
