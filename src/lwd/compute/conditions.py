"""Conditions: what a network is told about each sample. Class labels, or anything else with one row per sample.

A condition that is not a tensor of labels implements `Rows`, as prompt embeddings do (`lwd.Prompts`).
"""

from collections.abc import Sequence
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from lwd.errors import InputError


@runtime_checkable
class Rows(Protocol):
    """One row per sample: as many as `len`, selected by an index tensor, moved by `to`."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Tensor) -> Self: ...

    def to(self, device: torch.device | str) -> Self: ...


def check_condition(condition: Any, count: int) -> Any:
    """Return labels (count,) or another condition with `count` rows; one label or one row is used for all."""
    if isinstance(condition, Tensor) or not isinstance(condition, Rows):
        return check_labels(condition, count)
    if len(condition) not in (1, count):
        raise InputError(f"{count} seeds need one condition or {count}, got {len(condition)}")
    return condition if len(condition) == count else _row(condition, count)


def check_labels(labels: int | Sequence[int] | Tensor, count: int) -> Tensor:
    """Return one label for each of `count` samples, from one for all or one each."""
    label = torch.as_tensor(labels)
    if label.is_floating_point() or label.is_complex():
        raise InputError(f"labels must be integers, got {label.dtype}")
    label = label.to(torch.int64)
    if label.ndim == 0:
        label = label.expand(count)
    if label.shape != (count,):
        raise InputError(f"{count} seeds need one label or {count} labels, got shape {tuple(label.shape)}")
    return label


def repeat_last(condition: Any, extra: int) -> Any:
    """Repeat the last row `extra` times."""
    return condition[torch.arange(len(condition) + extra).clamp(max=len(condition) - 1)] if extra else condition


def without(null: Any, condition: Any) -> Any:
    """Return the condition "nothing in particular" for each row of `condition`.

    null: a class label, or a condition with one row for all or one row each (a negative prompt).
    """
    if isinstance(null, int):
        return torch.full_like(condition, null)
    if len(null) not in (1, len(condition)):
        raise InputError(f"{len(condition)} conditions need one null condition or {len(condition)}, got {len(null)}")
    return null if len(null) == len(condition) else _row(null, len(condition))


def moved(condition: Any, device: torch.device | str) -> Any:
    """Return a condition on a device; labels are copied from pinned memory without waiting."""
    return condition.to(device, non_blocking=True) if isinstance(condition, Tensor) else condition.to(device)


def dropped(condition: Any, rows: Tensor, null: Any) -> Any:
    """Replace the rows of a condition where `rows` (b,) is true by "nothing in particular", as `without` returns it.

    A condition that is not a tensor needs a method `where(keep, other)`, as `lwd.Prompts` has.
    """
    other = without(null, condition)
    return torch.where(rows, other, condition) if isinstance(condition, Tensor) else condition.where(~rows, other)


def _row(condition: Any, count: int) -> Any:
    return condition[torch.zeros(count, dtype=torch.int64)]
