"""The seeds and labels of a batch of samples."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lwd.errors import InputError


def padded(seeds: Sequence[int], labels: int | Sequence[int] | Tensor, rows: int = 1) -> tuple[tuple[int, ...], Tensor]:
    """Seeds and one label for each, filled up to a multiple of `rows` by repeating the last sample."""
    if not len(seeds):
        raise InputError("sampling needs at least one seed, for example seeds=range(8)")
    label, extra = check_labels(labels, len(seeds)), -len(seeds) % rows
    return (*seeds, *(seeds[-1],) * extra), torch.cat([label, label[-1:].expand(extra)])


def check_labels(labels: int | Sequence[int] | Tensor, count: int) -> Tensor:
    label = torch.as_tensor(labels)
    if label.is_floating_point() or label.is_complex():
        raise InputError(f"labels must be integers, got {label.dtype}")
    label = label.to(torch.int64)
    if label.ndim == 0:
        label = label.expand(count)
    if label.shape != (count,):
        raise InputError(f"{count} seeds need one label or {count} labels, got shape {tuple(label.shape)}")
    return label
