"""Inception Score."""

import torch
from torch import Tensor

from lwd.compute.moments import as_features
from lwd.errors import InputError

SPLIT = 5000
"""Rows of a split."""


def inception_score(probabilities: Tensor, split: int = SPLIT) -> float:
    """exp of the mean KL between p(y | x) and p(y), averaged over splits of CONSECUTIVE rows (the last may be shorter).

    If rows are sorted by class, each split has few classes and the score is too low: shuffle first.
    """
    p = as_features(probabilities, "probabilities")
    if (p < 0).any() or ((p.sum(1) - 1).abs() > 1e-3).any():
        raise InputError("probabilities must be rows of numbers >= 0 that sum to 1")
    if split < 1:
        raise InputError(f"a split needs at least one row, got {split}")
    scores = []
    for part in torch.split(p, split):
        mean = part.mean(0, keepdim=True)
        # xlogy: a probability of 0 contributes 0.
        divergence = torch.special.xlogy(part, part).sum(1) - torch.special.xlogy(part, mean).sum(1)
        scores.append(divergence.mean().exp())
    return float(torch.stack(scores).mean())
