"""The exponential moving average of the weights."""

from collections.abc import Iterable

import torch
from torch import Tensor

from lwd.training.devices import local


class EMA:
    """shadow <- decay shadow + (1 - decay) weights, after every step, in the dtype of the weights (float32)."""

    def __init__(self, weights: Iterable[Tensor], decay: float, warmup: bool = False) -> None:
        self.weights = list(weights)
        self.shadow = [weight.detach().clone() for weight in self.weights]
        self.decay, self.warmup = decay, warmup

    @torch.no_grad()
    def update(self, step: int, skip: Tensor | None = None) -> None:
        """Update the average with the weights after `step` (the first step is 1).

        skip: 1 on the device leaves the average as it is.
        """
        decay = min(self.decay, max(0.0, 1 - 10 / step)) if self.warmup else self.decay
        shadow, weights = ([local(tensor) for tensor in tensors] for tensors in (self.shadow, self.weights))
        if skip is None:
            torch._foreach_lerp_(shadow, weights, 1 - decay)
            return
        for kind in {tensor.dtype for tensor in shadow}:
            share = ((1 - skip.to(kind)) * (1 - decay)).reshape(())
            pairs = [(a, b) for a, b in zip(shadow, weights, strict=True) if a.dtype == kind]
            torch._foreach_lerp_([a for a, _ in pairs], [b for _, b in pairs], [share] * len(pairs))
