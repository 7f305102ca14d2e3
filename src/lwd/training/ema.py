"""The exponential moving average of the weights."""

from collections.abc import Iterable

import torch
from torch import Tensor


class EMA:
    """shadow <- decay shadow + (1 - decay) weights, after every step, in the dtype of the weights (float32)."""

    def __init__(self, weights: Iterable[Tensor], decay: float, warmup: bool = False) -> None:
        self.weights = list(weights)
        self.shadow = [weight.detach().clone() for weight in self.weights]
        self.decay, self.warmup = decay, warmup

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Update the average with the weights after `step` (the first step is 1)."""
        decay = min(self.decay, max(0.0, 1 - 10 / step)) if self.warmup else self.decay
        torch._foreach_lerp_(self.shadow, self.weights, 1 - decay)
