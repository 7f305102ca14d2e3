"""How good samples are: functions of feature matrices, reference first. Importing this loads no network."""

from lwd.metrics.frechet import frechet_distance, frechet_from_moments
from lwd.metrics.kernel import kid
from lwd.metrics.manifold import density_coverage, precision_recall
from lwd.metrics.scores import inception_score
from lwd.moments import Moments

__all__ = [
    "Moments",
    "density_coverage",
    "frechet_distance",
    "frechet_from_moments",
    "inception_score",
    "kid",
    "precision_recall",
]
