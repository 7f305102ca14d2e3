"""The seeds and conditions of a batch of samples."""

from collections.abc import Sequence
from typing import Any

from lwd.compute.conditions import check_condition, repeat_last
from lwd.errors import InputError


def padded(seeds: Sequence[int], labels: Any, rows: int = 1) -> tuple[tuple[int, ...], Any]:
    """Seeds and one condition for each, filled up to a multiple of `rows` by repeating the last sample."""
    if not len(seeds):
        raise InputError("sampling needs at least one seed, for example seeds=range(8)")
    label, extra = check_condition(labels, len(seeds)), -len(seeds) % rows
    return (*seeds, *(seeds[-1],) * extra), repeat_last(label, extra)
