"""Mutations of file contents, by format: bytes, safetensors, PNG, YAML, lines; archives.py has the others."""

import json
import struct
import zlib
from random import Random
from typing import Any

import numpy as np
import yaml

from fuzz.hostile import change, change_json, number, text_of

CANARY = "FUZZ_CANARY"
"""The variable with the path that executed code would write."""
STARTS = (
    b"",
    b"\0",
    b"{",
    b"[]",
    b"null",
    b"\xff" * 100,
    b"\0" * 100,
    b"\x89PNG\r\n\x1a\n",
    b"PK\x03\x04",
    b"PK\x05\x06" + b"\0" * 18,
)
STARTS += (
    b"\x80\x02}.",
    b"\x80\x04\x95",
    b"\x1f\x8b\x08",
    b"\x93NUMPY\x01\x00",
    b"%!PS-Adobe-3.0 EPSF-3.0\n",
    b"\xef\xbb\xbf{}",
    b"GIF89a",
)
LENGTHS = tuple(struct.pack("<Q", n) for n in (0, 1, 8, 2**20, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1))


def change_bytes(content: bytes, rng: Random) -> bytes:
    """Flip, overwrite, cut, repeat or replace bytes of anything."""
    size, kind = len(content), rng.randrange(12)
    if kind == 0 or not size:
        return rng.choice(STARTS) + (content if rng.random() < 0.3 else b"")
    i = rng.randrange(min(size, 2000) if rng.random() < 0.5 else size)
    j = min(size, i + rng.choice((1, 2, 8, 64, 1000)))
    if kind < 5:
        return content[:i] + bytes([content[i] ^ 1 << rng.randrange(8)]) + content[i + 1 :]
    if kind == 5:
        return content[:i]
    if kind == 6:
        return content[:i] + content[j:]
    if kind == 7:
        return content[:j] + content[i:j] * rng.choice((1, 2, 100)) + content[j:]
    if kind == 8:
        return content[:i] + rng.choice(LENGTHS)[: rng.choice((1, 2, 4, 8))] + content[i + 8 :]
    if kind == 9:
        return content + rng.choice((b"\0", b"\n", b"x" * 1000, rng.randbytes(64), content))
    if kind == 10:
        return rng.randbytes(rng.choice((1, 7, 8, 9, 100, 5000)))
    return content[:i] + rng.randbytes(j - i) + content[j:]


# --- safetensors ---


def change_safetensors(content: bytes, rng: Random) -> bytes:
    """Mutate the header as JSON, or a tensor to another valid one: dtype, shape, values, name."""
    try:
        (length,) = struct.unpack("<Q", content[:8])
        header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
        names = [name for name in header if name != "__metadata__"]
    except (struct.error, ValueError, RecursionError, TypeError):
        return change_bytes(content, rng)
    kind = rng.randrange(8)
    if kind < 3 or not names:
        head = change_json(text_of(header), rng)
        return struct.pack("<Q", len(head)) + head + data
    if kind == 3:
        return rng.choice(LENGTHS) + content[8:]
    try:
        tensors = {n: _array(header[n], data) for n in names}
        one = rng.choice(names)
        tensors[one] = _other(tensors[one], rng)
    except (KeyError, TypeError, ValueError, IndexError):  # an earlier mutation broke the header
        return change_bytes(content, rng)
    if rng.random() < 0.2:
        name = rng.choice((one + "x", "", "labels", "../x", rng.choice(names), "blocks.99.x"))
        tensors[name] = tensors.pop(one) if rng.random() < 0.5 else tensors[one]
    return _written(tensors)


NUMPY = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
}


def _array(entry: Any, data: bytes) -> np.ndarray[Any, Any]:
    low, high = entry["data_offsets"]
    return np.frombuffer(data[low:high], NUMPY[entry["dtype"]]).reshape(entry["shape"])


def _other(array: np.ndarray[Any, Any], rng: Random) -> np.ndarray[Any, Any]:
    kind = rng.randrange(8)
    with np.errstate(all="ignore"):
        if kind == 0:
            return array.astype(rng.choice(sorted(NUMPY.values())))
        if kind == 1:
            return array.reshape(rng.choice(((-1,), (1, -1), (-1, 1), (1, 1, -1), array.shape[::-1])))
        if kind == 2:
            return array[tuple(slice(0, rng.choice((0, 1, max(n - 1, 0)))) for n in array.shape)]
        if kind == 3:
            return np.repeat(array.reshape(-1), 2)
        if kind == 4:
            return np.zeros(rng.choice(((0,), (0, 2**40), (1,), (2**20,), (1,) * 60)), array.dtype)
        changed = array.copy().reshape(-1)
        if changed.size:
            where = rng.randrange(changed.size) if kind < 7 else slice(None)
            changed[where] = np.array(float(min(number(rng), 1e300)), np.float64).astype(array.dtype)
        return changed.reshape(array.shape)


def _written(tensors: dict[str, np.ndarray[Any, Any]]) -> bytes:
    header, blocks, low = {}, [], 0
    kinds = {np.dtype(kind): name for name, kind in NUMPY.items()}
    for name, array in tensors.items():
        high = low + array.nbytes
        header[name] = {"dtype": kinds[array.dtype], "shape": list(array.shape), "data_offsets": [low, high]}
        blocks.append(np.ascontiguousarray(array).tobytes())
        low = high
    head = text_of(header)
    return struct.pack("<Q", len(head)) + head + b"".join(blocks)


# --- pictures, YAML, lines ---


def change_png(content: bytes, rng: Random) -> bytes:
    """Other sizes and kinds of pixels with a right checksum, chunks that unpack to much, or bytes."""
    kind = rng.randrange(4)
    if kind == 0 or content[:8] != b"\x89PNG\r\n\x1a\n":
        return change_bytes(content, rng)
    if kind == 1:
        sides = [rng.choice((0, 1, 27, 29, 3000, 9_000, 14_000, 65_535, 2**31 - 1, 2**32 - 1)) for _ in range(2)]
        depth = bytes((rng.choice((0, 1, 8, 16, 77)), rng.choice((0, 2, 3, 4, 6, 9)), 0, 0, rng.choice((0, 1, 7))))
        head = content[16:24] + depth if rng.random() < 0.3 else struct.pack(">II", *sides) + content[24:29]
        return content[:8] + _chunk(b"IHDR", head) + content[33:]
    if kind == 2:
        bits = zlib.compress(bytes(2**24)) if rng.random() < 0.5 else rng.randbytes(40)
        name = rng.choice(
            (b"zTXt", b"iTXt", b"iCCP", b"eXIf", b"tEXt", b"PLTE", b"acTL", b"fcTL", b"fdAT", b"tRNS", b"IHDR")
        )
        return content[:33] + _chunk(name, b"a\0\0" + bits) + content[33:]
    data = bytearray(content)
    i = rng.randrange(33, len(data))
    data[i] ^= 1 << rng.randrange(8)
    return bytes(data)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


NINES = b"".join(b"%c: &%c [%s]\n" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 9)) for i in range(8))
"""Aliases of aliases: 9^9 values in 300 bytes."""
YAML = (
    b"a: &a [x,x,x,x,x,x,x,x,x]\n" + NINES,
    *(b"run: &r {steps: *r}\n", b"? [1, 2]\n: 3\n", b"1: 2\n", b"run: !!python/object/apply:os.system ['id']\n"),
    *(b"run: !!binary x\n", b"about: 2001-99-99\n", b"about: 2001-01-01\n", b"<<: [1]\n", b"<<: {run: {steps: 3}}\n"),
    *(b"run: {steps: 0b, batch: 1:99:99}\n", b"base: preset\n", b"base: ../../../../etc/passwd\n", b"base: [1]\n"),
    *(b"--- 1\n--- 2\n", b"\t: 1\n", b"run: !!set {a, b}\n", b"[" * 3000, b"name: " + b"9" * 5000 + b"\n"),
    *(b"about: =\n", b"about: !!timestamp x\n", b"about: !!int x\n", b"expected: {1: {2: [.nan]}}\n", b"a: *b\n"),
    *(b"about: !!float x\n", b"about: 0x\n", b"about: 2001-01-01T99:99:99Z\n", b"? &a {b: *a}\n: 1\n"),
    b"about: !!omap [1]\n",
)


def change_yaml(content: bytes, rng: Random) -> bytes:
    """Mutate the tree, or add an oddity of YAML: aliases that multiply, tags, merge keys, dates."""
    kind = rng.randrange(5)
    if kind == 0:
        return change_bytes(content, rng)
    if kind == 1:
        return rng.choice(YAML) + (content if rng.random() < 0.5 else b"")
    if b"*" in content or len(content) > 2**17:  # aliases that multiply would fill the fuzzer's own memory
        return change_bytes(content, rng)
    try:
        tree = yaml.safe_load(content)
        return yaml.safe_dump(change(tree, rng)).encode("utf-8", "surrogatepass")
    except Exception:  # broken by an earlier mutation, or not for YAML
        return change_bytes(content, rng)


def change_lines(content: bytes, rng: Random) -> bytes:
    """Mutate one line of JSON lines, or the lines."""
    lines = content.splitlines(keepends=True)
    if not lines or rng.random() < 0.3:
        return change_bytes(content, rng)
    i, kind = rng.randrange(len(lines)), rng.randrange(5)
    if kind == 0:
        rng.shuffle(lines)
    elif kind == 1:
        lines.insert(i, lines[i])
    else:
        lines[i] = change_json(lines[i], rng) + b"\n"
    return b"".join(lines)
