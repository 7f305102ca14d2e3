"""Metrics as functions of feature matrices, reference first. Importing this module loads no network."""

from lwd.compute.moments import Moments
from lwd.evaluation.frechet import frechet_distance, frechet_from_moments
from lwd.evaluation.kernel import kid
from lwd.evaluation.manifold import density_coverage, precision_recall
from lwd.evaluation.scores import inception_score

__all__ = [
    "Moments",
    "density_coverage",
    "frechet_distance",
    "frechet_from_moments",
    "inception_score",
    "kid",
    "precision_recall",
]
