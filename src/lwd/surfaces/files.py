"""Loss surfaces on disk: values in safetensors, a description in JSON."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from lwd.errors import InputError
from lwd.groups import Group, Layout
from lwd.io.tensors import read_safetensors, write_safetensors
from lwd.surfaces.band import Band
from lwd.surfaces.formats import SurfacesFile
from lwd.surfaces.table import SurfaceTable

TENSORS = ("points", "losses", "energies", "loss_errors", "energy_errors")
NAME = "surfaces.safetensors"


def save_surfaces(
    table: SurfaceTable, path: str | os.PathLike[str], provenance: Mapping[str, Any] | None = None
) -> None:
    """Write NAME.safetensors and NAME.json; the JSON last, so that both are complete if it exists."""
    path = _tensors(path)
    tensors = {name: getattr(table, name).contiguous() for name in TENSORS}
    tensors |= {name: value.contiguous() for name in ("axis", "bends") if (value := getattr(table, name)) is not None}
    write_safetensors(path, tensors)
    layout = {group.name: group.channels for group in table.layout}
    band = None if table.band is None else (table.band.low, table.band.high, table.band.lead)
    record = SurfacesFile(layout=layout, count=table.count, band=band, provenance=dict(provenance or {}))
    record.write(path.with_suffix(".json"))


def load_surfaces(path: str | os.PathLike[str]) -> tuple[SurfaceTable, dict[str, Any]]:
    """Read a table and its provenance; path: either file, or a directory that contains surfaces.safetensors."""
    given, path = path, _tensors(path)
    about = path.with_suffix(".json")
    if not about.exists():
        raise InputError(f"{given} has no surfaces ({about} does not exist); run a surface probe")
    record = SurfacesFile.read(about)
    tensors = read_safetensors(path)
    missing = [name for name in TENSORS if name not in tensors]
    if missing:
        raise InputError(f"{path} lacks {', '.join(missing)}; is it another kind of file?")
    kept = {name: tensor.to(torch.float64) for name, tensor in tensors.items() if name in (*TENSORS, "axis", "bends")}
    try:
        layout = Layout(tuple(Group(name, channels) for name, channels in record.layout.items()))
        band = None if record.band is None else Band(*record.band)
        table = SurfaceTable(layout=layout, count=record.count, band=band, **kept)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return table, dict(record.provenance)


def _tensors(path: str | os.PathLike[str]) -> Path:
    path = Path(path)
    return path / NAME if path.is_dir() else path.with_suffix(".safetensors")
