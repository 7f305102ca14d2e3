"""Tensors in files: safe reading of untrusted pickles, and safetensors written one tensor at a time."""

import argparse
import json
import os
import pickle
import re
import struct
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lwd.errors import InputError
from lwd.io.files import atomic_file, check_file, read_json

DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
UNREADABLE: tuple[type[Exception], ...] = (
    *(RuntimeError, EOFError, ValueError, LookupError, TypeError, AttributeError, AssertionError, ArithmeticError),
    *(MemoryError, ImportError, SystemError, struct.error, zipfile.BadZipFile),
)
"""Errors of torch.load on a damaged or hostile file."""
DAMAGED: tuple[type[Exception], ...] = (SafetensorError, OSError, *UNREADABLE)
"""The same of safetensors."""
MAX_GROWTH = 2**30
"""Bytes that a file may need in memory beyond its size."""
PREFIXES = ("module.", "_orig_mod.")


def read_pickle(path: str | os.PathLike[str]) -> Any:
    """Read a `.pt` or `.ckpt` file with PyTorch's restricted unpickler; nothing in the file is ever executed.

    Tensors stay on disk (memory-mapped) until they are used, if the file format allows it.
    """
    path = Path(path)
    check_file(path)
    # DiT-style training scripts store their arguments in a Namespace: attributes only, no code.
    with torch.serialization.safe_globals([argparse.Namespace]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about pickle protocols; unreadable files raise an error below
        try:
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=_can_map(path))
        except pickle.UnpicklingError as error:
            raise InputError(_refusal(path, str(error))) from error
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}") from error
        except UNREADABLE as error:
            reason = str(error).split("\n")[0]
            raise InputError(f"{path} is not a PyTorch checkpoint, or is truncated ({reason})") from error
    _check_tensors(path, content)
    return content


def _can_map(path: Path) -> bool:
    """Whether the file can be memory-mapped: not the old format, and not a compressed archive."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    unpacked, size = sum(entry.file_size for entry in entries), path.stat().st_size
    if unpacked > size + MAX_GROWTH:
        raise InputError(f"{path} has {size} bytes, but would need {unpacked} in memory; it is refused")
    return all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)


def _check_tensors(path: Path, content: Any) -> None:
    """Raise an error if a tensor is not a plain one, or is larger than what the file stores of it (by its strides)."""
    waiting: list[tuple[Any, Any]] = [("the content", content)]
    seen = set[int]()
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, Tensor):
            if value.layout != torch.strided or value.device.type != "cpu" or value.is_nested or value.is_quantized:
                raise InputError(
                    f"{path}: {name} is not a plain tensor ({value.layout}, {value.dtype}, {value.device})"
                )
            if value.numel() * value.element_size() > value.untyped_storage().nbytes() + 2**20:
                raise InputError(f"{path}: {name} claims the shape {tuple(value.shape)}, but has fewer numbers")
        elif isinstance(value, Mapping | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            waiting += value.items() if isinstance(value, Mapping) else enumerate(value)


def _refusal(path: Path, reason: str) -> str:
    with path.open("rb") as file:
        is_pickle = file.read(1) == b"\x80"
    if "GLOBAL" not in reason and not is_pickle:
        return f"{path} is not a PyTorch checkpoint, or is truncated"
    asked = re.search(r"GLOBAL ([\w.]+)", reason)
    what = f" ({asked[1].rstrip('.')})" if asked else ""
    return (
        f"{path} is refused: its pickle contains more than tensors{what}, and loading it would run code from the file; "
        "if you trust it, save only its weights again, on an isolated machine: "
        "torch.save({'ema': torch.load(FILE, weights_only=False)['ema']}, NEW_FILE)"
    )


def read_state(path: str | os.PathLike[str], which: str = "auto") -> dict[str, Tensor]:
    """Read the state dict in a `.pt`, `.ckpt` or `.safetensors` file, also if it is nested under a known key.

    which: "ema", "model" or "auto" (the first of ema, model, state_dict and model_state_dict). Prefixes of DDP and
    torch.compile are removed.
    """
    path = Path(path)
    check_file(path)
    content: Any = read_safetensors(path) if _is_safetensors(path) else read_pickle(path)
    if not isinstance(content, Mapping):
        raise InputError(f"{path} contains a {type(content).__name__}, not a dictionary of tensors")
    wanted = ("ema", "model", "state_dict", "model_state_dict") if which == "auto" else (which,)
    inner = next((content[key] for key in wanted if isinstance(content.get(key), Mapping)), None)
    if inner is None:
        if which != "auto":
            raise InputError(f"{path} has no weights {which!r}; it has {', '.join(map(str, list(content)[:8]))}")
        inner = content
    state = {_bare(str(name)): value for name, value in inner.items()}
    if len(state) != len(inner):
        raise InputError(f"{path} has tensors whose names differ only by a prefix ({', '.join(PREFIXES)})")
    strange = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if strange or not state:
        raise InputError(f"{path} is not a state dict: no tensors under {', '.join(strange[:8]) or 'any name'}")
    return state


def _bare(name: str) -> str:
    while name.startswith(PREFIXES):
        name = name.split(".", 1)[1]
    return name


def _is_safetensors(path: Path) -> bool:
    if path.suffix == ".safetensors":
        return True
    try:
        with path.open("rb") as file:
            head = file.read(9)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    return len(head) == 9 and head[8:] == b"{" and struct.unpack("<Q", head[:8])[0] < 100 * 2**20


def read_safetensors(path: str | os.PathLike[str], device: str = "cpu") -> dict[str, Tensor]:
    """Read all tensors of a safetensors file, or raise an InputError that names it."""
    path = Path(path)
    check_file(path)
    try:
        # Processes of a CPU group use "cpu:0", which safetensors does not accept.
        with safe_open(path, "pt", device="cpu" if device.startswith("cpu") else device) as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except DAMAGED as error:
        raise InputError(f"{path} is not a complete safetensors file ({error})") from error


@dataclass(frozen=True)
class Stored:
    """A tensor in a safetensors file: its dtype, its shape, and the position of its first byte."""

    path: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int

    def read(self) -> Tensor:
        """Read this tensor alone: unlike a memory map, nothing of the file stays in memory."""
        tensor = torch.empty(self.shape, dtype=self.dtype)
        view = memoryview(tensor.reshape(-1).view(torch.uint8).numpy().data)
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(self.start)
                while len(view):
                    count = file.readinto(view)
                    if not count:
                        raise InputError(f"{self.path} was truncated while it was read")
                    view = view[count:]
        except OSError as error:
            raise InputError(f"cannot read {self.path}: {error.strerror or error}") from error
        return tensor


def list_safetensors(path: str | os.PathLike[str]) -> dict[str, Stored]:
    """List the tensors of a safetensors file by name, without reading them; a damaged file is an InputError."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} does not exist")
    try:
        with safe_open(path, "pt"):  # checks the header and the length of the file
            pass
        with path.open("rb") as file:
            length = struct.unpack("<Q", file.read(8))[0]
            header = json.loads(file.read(length))
        kinds = {name: dtype for dtype, name in DTYPES.items()}
        entries = [(name, one) for name, one in header.items() if name != "__metadata__"]
        return {
            name: Stored(path, kinds[one["dtype"]], tuple(one["shape"]), 8 + length + one["data_offsets"][0])
            for name, one in entries
        }
    except KeyError as error:
        raise InputError(f"{path} has tensors of a type that lwd does not read ({error.args[0]})") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path} is not a complete safetensors file ({error})") from error


def find_weights(directory: str | os.PathLike[str], name: str) -> dict[str, Stored]:
    """List the tensors of NAME.safetensors, or of all shards in NAME.safetensors.index.json; a missing one is an error.

    This is diffusers' and transformers' layout. Shards are files in the same directory.
    """
    directory = Path(directory)
    index = directory / f"{name}.safetensors.index.json"
    if not index.is_file():
        if not (directory / f"{name}.safetensors").is_file():
            raise InputError(f"{directory} has neither {name}.safetensors nor {index.name}")
        return _without_prefix(list_safetensors(directory / f"{name}.safetensors"))
    value = read_json(index)
    listed = value.get("weight_map") if isinstance(value, Mapping) else None
    if not isinstance(listed, Mapping) or not listed:
        raise InputError(f"{index} has no weight_map of tensors and shards")
    found: dict[str, Stored] = {}
    for file in sorted({str(shard) for shard in listed.values()}):
        if Path(file).name != file or not (directory / file).is_file():
            raise InputError(f"{directory} lacks the shard {file}, which {index.name} lists; download it again")
        found |= list_safetensors(directory / file)
    lost = [tensor for tensor, file in listed.items() if tensor not in found or found[tensor].path.name != file]
    if lost:
        raise InputError(f"{directory / str(listed[lost[0]])} lacks {lost[0]}, which {index.name} lists")
    return _without_prefix(found)


def _without_prefix(found: dict[str, Stored]) -> dict[str, Stored]:
    bare = {_bare(name): stored for name, stored in found.items()}
    return bare if len(bare) == len(found) else found


def write_safetensors(path: str | os.PathLike[str], tensors: Mapping[str, Tensor]) -> None:
    """Write atomically, one tensor at a time: safetensors' save_file would keep a second copy of all of them."""
    path, offset = Path(path), 0
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for name, tensor in tensors.items():
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with atomic_file(path) as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for tensor in tensors.values():
            file.write(_bytes(tensor))


def _bytes(tensor: Tensor) -> Any:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def mismatches(expected: Mapping[str, tuple[int, ...]], found: Mapping[str, Tensor]) -> list[str]:
    """List, as sorted phrases, the tensors that are missing, unexpected, misshapen or not floating point."""
    problems = [f"missing {name} {shape}" for name, shape in expected.items() if name not in found]
    for name, tensor in found.items():
        if name not in expected:
            problems.append(f"unexpected {name} {tuple(tensor.shape)}")
        elif tuple(tensor.shape) != tuple(expected[name]):
            problems.append(f"{name} is {tuple(tensor.shape)}, must be {tuple(expected[name])}")
        elif tensor.layout != torch.strided or tensor.device.type == "meta" or tensor.dtype not in DTYPES:
            problems.append(f"{name} is not a plain tensor ({tensor.layout}, {tensor.dtype}, {tensor.device})")
        elif not tensor.is_floating_point():
            problems.append(f"{name} is {tensor.dtype}, must be floating point")
    return sorted(problems)
