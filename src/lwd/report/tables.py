"""Schedules as text: a table to read, and CSV for other programs."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from lwd.errors import InputError
from lwd.io.files import write_bytes
from lwd.schedule.base import Schedule
from lwd.schedule.io import save_schedule


def schedule_table(schedule: Schedule, points: int) -> tuple[list[str], list[list[float]]]:
    """Return column names and rows: tau, the time of each group, the rate of each group."""
    if not 2 <= points <= 100_000:
        raise InputError(f"points must be 2 to 100000, got {points}", argument="points")
    tau = torch.linspace(0, 1, points, dtype=torch.float64)
    columns = [tau[:, None], schedule.times(tau).detach(), schedule.rates(tau).detach()]
    names = ["tau", *(f"t_{name}" for name in schedule.groups), *(f"rate_{name}" for name in schedule.groups)]
    return names, torch.cat(columns, 1).tolist()


def describe_schedule(schedule: Schedule, points: int = 11, provenance: Mapping[str, Any] | None = None) -> str:
    """Describe a schedule: repr, breakpoints, provenance and a table of its clocks."""
    names, rows = schedule_table(schedule, points)
    widths = [max(len(name), 7) for name in names]
    kinks = ", ".join(f"{point:.4f}" for point in schedule.breakpoints) or "none"
    return "\n".join([
        repr(schedule),
        f"breakpoints: {kinks}",
        *(f"{key}: {value}" for key, value in (provenance or {}).items()),
        "",
        "  ".join(name.rjust(width) for name, width in zip(names, widths, strict=True)),
        *("  ".join(f"{x:{width}.4f}" for x, width in zip(row, widths, strict=True)) for row in rows),
    ])  # fmt: skip


def export_schedule(
    schedule: Schedule,
    path: str | os.PathLike[str],
    points: int | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> None:
    """Write a schedule file (.json, with its provenance) or a table of its curves (.csv)."""
    kind = Path(path).suffix.lower()
    if kind == ".json":
        if points is not None:
            raise InputError(
                "points has no effect on a .json schedule, which stores the curve exactly", argument="points"
            )
        save_schedule(schedule, path, provenance)
    elif kind == ".csv":
        names, rows = schedule_table(schedule, 101 if points is None else points)
        lines = [",".join(names), *(",".join(repr(value) for value in row) for row in rows)]
        write_bytes(path, ("\n".join(lines) + "\n").encode())
    else:
        raise InputError(f"the name of an export must end in .json or .csv, got {str(path)!r}", argument="out")
