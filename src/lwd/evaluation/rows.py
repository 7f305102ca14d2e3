"""Check feature matrices without a float64 copy: conversion is block by block."""

import torch
from torch import Tensor

from lwd.compute.moments import as_features
from lwd.errors import InputError

BLOCK = 2000
"""Rows per float64 block: 33 MB for 2048 features."""


def feature_pair(ref: Tensor, sample: Tensor) -> tuple[Tensor, Tensor]:
    """Return two finite matrices (n, d) and (m, d) on the CPU, in their original precision."""
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
