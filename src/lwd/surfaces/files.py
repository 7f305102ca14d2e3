"""Loss surfaces on disk: numbers in safetensors, what they are in JSON beside them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from lwd.errors import InputError
from lwd.groups import Group, Layout
from lwd.io.files import read_json, write_json
from lwd.io.tensors import read_safetensors, write_safetensors
from lwd.surfaces.table import SurfaceTable

FORMAT, VERSION = "lwd.surfaces", 1
TENSORS = ("points", "losses", "energies", "loss_errors", "energy_errors")
NAME = "surfaces.safetensors"


def save_surfaces(
    table: SurfaceTable, path: str | os.PathLike[str], provenance: Mapping[str, Any] | None = None
) -> None:
    """Write NAME.safetensors and NAME.json; the JSON last, so that where it is both are whole."""
    path = _tensors(path)
    tensors = {name: getattr(table, name).contiguous() for name in TENSORS}
    tensors |= {name: value.contiguous() for name in ("axis", "bends") if (value := getattr(table, name)) is not None}
    write_safetensors(path, tensors)
    head = {"format": FORMAT, "version": VERSION, "count": table.count}
    head["layout"] = {group.name: group.channels for group in table.layout}
    write_json(path.with_suffix(".json"), head | {"provenance": dict(provenance or {})})


def load_surfaces(path: str | os.PathLike[str]) -> tuple[SurfaceTable, dict[str, Any]]:
    """The table and its provenance; path: either file, or a directory that holds surfaces.safetensors."""
    given, path = path, _tensors(path)
    if not path.with_suffix(".json").exists():
        raise InputError(
            f"{given} holds no surfaces ({path.with_suffix('.json')} does not exist); run: lwd probe --method surface"
        )
    about = read_json(path.with_suffix(".json"))
    if not isinstance(about, Mapping) or about.get("format") != FORMAT or about.get("version") != VERSION:
        where = path.with_suffix(".json")
        raise InputError(f'{where} does not describe surfaces ("format" must be "{FORMAT}", "version" {VERSION})')
    layout, count = about.get("layout"), about.get("count")
    if not isinstance(layout, Mapping) or not all(type(n) is int for n in layout.values()) or type(count) is not int:
        raise InputError(f"{path.with_suffix('.json')} needs 'layout' (channels by group) and 'count' (a whole number)")
    tensors = read_safetensors(path)
    missing = [name for name in TENSORS if name not in tensors]
    if missing:
        raise InputError(f"{path} lacks {', '.join(missing)}; is it another kind of file?")
    kept = {name: tensor.to(torch.float64) for name, tensor in tensors.items() if name in (*TENSORS, "axis", "bends")}
    try:
        groups = tuple(Group(str(name), channels) for name, channels in layout.items())
        table = SurfaceTable(layout=Layout(groups), count=count, **kept)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    provenance = about.get("provenance")
    return table, dict(provenance) if isinstance(provenance, Mapping) else {}


def _tensors(path: str | os.PathLike[str]) -> Path:
    path = Path(path)
    return path / NAME if path.is_dir() else path.with_suffix(".safetensors")
