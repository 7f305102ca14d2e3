"""Two settings compared on the same seeds and classes, by the judge that ships with lwd."""

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lwd.compute.devices import threads
from lwd.errors import InputError
from lwd.evaluation.features import CLASSES, ENCODER, PARTS, EncoderNetwork, FeatureSet, features_of
from lwd.evaluation.score import Metric, frechet, paired, resampled
from lwd.images.fashion import load_fashion
from lwd.studio.drawing import Watched, open_side
from lwd.studio.jobs import Job
from lwd.studio.models import Catalog
from lwd.studio.settings import COMPARED
from lwd.studio.state import StudioFile

BATCH = 64


class Judge:
    """The judge and the moments of the embedded test images, computed once."""

    def __init__(self) -> None:
        self.network = EncoderNetwork("fashion", torch.device("cpu"))
        images = load_fashion("test").images
        features = features_of("fashion/test", np.split(images, len(images) // 500), [self.network])
        moments = features.moments(ENCODER)
        self.reference = moments.mean, moments.covariance

    def features(self, generator: Watched, job: Job, part: tuple[float, float], name: str) -> FeatureSet:
        """Draw all images of a setting, and look at them."""
        return features_of(name, self._batches(generator, job, part, name), [self.network])

    def _batches(
        self, generator: Watched, job: Job, part: tuple[float, float], name: str
    ) -> Iterator[np.ndarray[Any, Any]]:
        low, high = part
        count, solver = generator.settings.count, generator.solver()
        for start in range(0, count, BATCH):
            end = min(start + BATCH, count)
            job.stage(
                low + (high - low) * start / count, low + (high - low) * end / count, f"{name}: {start} of {count}"
            )
            yield generator.draw(start, end, solver)[0]


def check_compared(count: Any) -> int:
    """The number of images of each setting."""
    if type(count) is not int or not 2 * PARTS <= count <= COMPARED:
        raise InputError(f"a comparison takes {2 * PARTS} to {COMPARED} images of each setting, got {str(count)[:40]}")
    return count


def compare(catalog: Catalog, state: StudioFile, count: int, judge: Judge, job: Job) -> dict[str, Any]:
    """Class accuracy and Fr\u00e9chet distance of A and B with standard errors, and their paired differences."""
    model = catalog.open(state.model)
    if not model.judged:
        raise InputError("the shipped judge knows the classes of Fashion-MNIST only; use lwd evaluate for this model")
    sides, state = state.sides(), state.changed(label="")  # the reference has all classes
    found: dict[str, FeatureSet] = {}
    right: dict[str, Tensor] = {}
    with threads(catalog.settings.threads):
        for i, (name, side) in enumerate(sides.items()):
            generator = open_side(catalog, model, state, side, job)
            generator = _more(generator, count)
            found[name] = judge.features(generator, job, (i / 2, (i + 1) / 2), name)
            labels = torch.tensor(generator.labels())
            right[name] = (found[name].rows[CLASSES].argmax(1) == labels).double()
        job.stage(1.0, 1.0, "scoring")
        rows = {
            name: {"accuracy": resampled(right[name]), "frechet": frechet(found[name], ENCODER, *judge.reference)}
            for name in sides
        }
        rows["B - A"] = {
            "accuracy": resampled(right["B"] - right["A"]),
            "frechet": paired(rows["B"]["frechet"], rows["A"]["frechet"], operator.sub),
        }
    return {"count": count, "rows": {name: _plain(row) for name, row in rows.items()}}


def _plain(row: dict[str, Metric]) -> dict[str, dict[str, float]]:
    return {key: {"value": metric.value, "error": metric.error} for key, metric in row.items()}


def _more(generator: Watched, count: int) -> Watched:
    settings = generator.settings.changed(count=count)
    return Watched(generator.pipe, settings, generator.guide, job=generator.job)
