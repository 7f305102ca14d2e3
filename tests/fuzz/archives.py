"""Mutations of archives: zip bombs, hostile pickles, PyTorch files and .npz."""

import io
import os
import pickle
import struct
import zipfile
import zlib
from functools import cache
from random import Random
from typing import Any

import numpy as np
import torch

from fuzz.formats import CANARY, change_bytes
from fuzz.hostile import change, number, places, put, value
from lwd.io.tensors import DTYPES


@cache
def bomb() -> bytes:
    """A raw deflate stream of almost 4 GB of zeros in 4 MB: one flushed block of 16 MB, 255 times."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(2**24)) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * 255 + zlib.compressobj(9, zlib.DEFLATED, -15).flush()


def zipped(entries: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return out.getvalue()


def with_bomb(entries: dict[str, bytes], name: str) -> bytes:
    """The archive with one entry followed by 4 GB of zeros; its sizes are honest, its CRC is not."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for other, content in entries.items():
            if other != name:
                archive.writestr(other, content)
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)  # the entry itself comes first, so that its header is valid
        start, packed = out.tell(), packer.compress(entries[name]) + packer.flush(zlib.Z_FULL_FLUSH) + bomb()
        info = zipfile.ZipInfo(name)
        info.CRC = 0
        info.compress_type, info.compress_size, info.file_size, info.header_offset = (
            8,
            len(packed),
            255 * 2**24 + len(entries[name]),
            start,
        )
        out.write(info.FileHeader(zip64=True) + packed)
        archive.start_dir = out.tell()
        archive.filelist.append(info)
        archive.NameToInfo[name] = info
        archive._didModify = True
    return out.getvalue()


def unzipped(content: bytes) -> dict[str, bytes]:
    """The entries; empty if it is not a complete archive (any more)."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            small = [entry for entry in archive.infolist() if entry.file_size < 2**24]
            return {entry.filename: archive.read(entry) for entry in small}
    except Exception:  # whatever an earlier mutation did to it
        return {}


def change_zip(content: bytes, rng: Random, inner: Any = change_bytes) -> bytes:
    """Mutate an entry, its name or how it is compressed."""
    entries = unzipped(content)
    if not entries or rng.random() < 0.25:
        return change_bytes(content, rng)
    name, kind = rng.choice(list(entries)), rng.randrange(20)
    if kind == 0:
        return with_bomb(entries, name)
    if kind == 1:
        entries.pop(name)
    elif kind == 2:
        entries[rng.choice(("../../evil", "/etc/evil", name + "x", "", "a/../../b", "arr_0.npy"))] = entries.pop(name)
    elif kind == 3:
        other = rng.choice(list(entries))
        entries[name], entries[other] = entries[other], entries[name]
    elif kind > 4:
        entries[name] = inner(entries[name], rng)
    packing = (zipfile.ZIP_STORED,) * 3 + (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    return zipped(entries, rng.choice(packing))


# --- pickles and PyTorch files ---


class Evil:
    """Its pickle calls a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def evils(rng: Random) -> Any:
    """An object whose unpickling runs code that would leave the canary."""
    path = os.environ[CANARY]
    return rng.choice(
        (
            Evil(os.system, f"touch {path}"),
            Evil(exec, f"open({path!r}, 'w')"),
            Evil(eval, f"open({path!r}, 'w')"),
            Evil(open, path, "w"),
            Evil(os.mkdir, path),
            Evil(torch.save, [1], path),
            Evil(getattr, os, "system"),
            Evil(np.load, path),
        )
    )


def odd_tensor(tensor: torch.Tensor, rng: Random) -> Any:
    """Something else in place of a tensor."""
    flat = tensor.detach().reshape(-1)
    odd: tuple[Any, ...] = (
        lambda: tensor.to(rng.choice(list(DTYPES))),
        lambda: tensor.to(torch.complex64),
        lambda: torch.zeros(1).expand(rng.choice((2**20, 2**29, 2**33, 2**45))),  # one number on disk
        lambda: torch.zeros(1).expand(tensor.shape),
        lambda: torch.empty(tensor.shape, device="meta"),
        lambda: torch.zeros(2, 2).to_sparse(),
        lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
        lambda: torch.quantize_per_tensor(torch.zeros(4), 0.1, 0, torch.quint8),
        lambda: (
            torch.full_like(tensor, min(float(min(number(rng), 1e38)), 3e38)) if tensor.is_floating_point() else flat
        ),
        lambda: torch.nn.Parameter(tensor.float()),
        lambda: tensor.to(torch.float8_e4m3fn),
        lambda: flat,
        lambda: flat[:0],
        lambda: tensor[None],
        lambda: flat.tolist()[:1000],
        lambda: value(rng),
        lambda: {"mean": tensor},
    )
    return rng.choice(odd)()


def change_torch(content: bytes, rng: Random) -> bytes:
    """Mutate a file of torch.save: the objects in it, the archive, its pickle, or the bytes."""
    kind = rng.randrange(6)
    if kind < 2 or len(content) > 2**21:  # an earlier mutation was a bomb
        return change_zip(content, rng)
    try:
        state = torch.load(io.BytesIO(content), weights_only=True)
        tensors = [place for place in places(state) if place and isinstance(_at(state, place), torch.Tensor)]
    except Exception:  # whatever an earlier mutation did to it
        return change_bytes(content, rng)
    if kind == 2:
        spots = [place for place in places(state) if place]
        state = put(state, rng.choice(spots), evils(rng)) if spots and rng.random() < 0.7 else evils(rng)
    elif kind == 3 and isinstance(state, dict):
        state = change(state, rng)
    elif tensors:
        place = rng.choice(tensors)
        state = put(state, place, odd_tensor(_at(state, place), rng))
    if rng.random() < 0.1 and isinstance(state, dict):
        state["itself"] = state
    try:
        out = io.BytesIO()
        torch.save(state, out, _use_new_zipfile_serialization=rng.random() < 0.8)
    except Exception:  # some oddities cannot be saved
        return pickle.dumps(value(rng), protocol=rng.choice((0, 2, 4)))
    return out.getvalue()


def _at(tree: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        tree = tree[key]
    return tree


# --- .npz ---


def change_npy(content: bytes, rng: Random) -> bytes:
    """Another header (shape, dtype, order, version, length), objects, or bytes."""
    kind = rng.randrange(6)
    if kind == 0 or content[:6] != b"\x93NUMPY":
        return change_bytes(content, rng)
    if kind == 1:
        out = io.BytesIO()
        np.save(out, np.array([evils(rng)], dtype=object), allow_pickle=True)
        return out.getvalue()
    end = 10 + struct.unpack("<H", content[8:10])[0]
    shape = [rng.choice((0, 1, 2, 3, 28, -1, 2**31, 2**62, number(rng))) for _ in range(rng.choice((0, 1, 2, 4, 4, 9)))]
    dtype = rng.choice(("|u1", "<f4", "<f8", "<i8", "|O", "<U9", "|V0", "<M8[ns]", "bad", "[('a','<f4')]", "|S0"))
    head = rng.choice(
        (
            repr({"descr": dtype, "fortran_order": rng.random() < 0.2, "shape": tuple(shape)}),
            repr({"descr": "|u1", "fortran_order": False, "shape": tuple(shape)}),
            content[10:end].decode("latin1").replace("(", rng.choice(("(9", "((", "(-", "(1e9,"))),
            "(" * 3000,
            "{" + "[" * 300,
            "__import__('os').system('id')",
        )
    )
    version = rng.choice((b"\x01\x00", b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"))
    size = struct.pack("<H" if version == b"\x01\x00" else "<I", len(head) + 1)
    return content[:6] + version + size + head.encode("latin1", "replace") + b"\n" + content[end:]


def change_npz(content: bytes, rng: Random) -> bytes:
    return change_zip(content, rng, change_npy)
