"""Feature matrices that are checked but not copied: float64 is made a block at a time."""

import torch
from torch import Tensor

from lwd.compute.moments import as_features
from lwd.errors import InputError

BLOCK = 2000
"""Rows in float64 at once: 2048 features take 33 MB."""


def feature_pair(ref: Tensor, sample: Tensor) -> tuple[Tensor, Tensor]:
    """Two finite matrices (n, d) and (m, d) on the CPU, in the precision that they came in."""
    ref, sample = _finite(ref, "reference features"), _finite(sample, "sample features")
    if ref.shape[1] != sample.shape[1]:
        raise InputError(
            f"features have {ref.shape[1]} dimensions in the reference and {sample.shape[1]} in the samples"
        )
    return ref, sample


def _finite(x: Tensor, name: str) -> Tensor:
    x = torch.as_tensor(x).detach().cpu()
    if x.ndim != 2 or not x.numel():
        as_features(x, name)
    for part in torch.split(x, BLOCK):
        as_features(part, name)
    return x
