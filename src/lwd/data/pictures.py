"""Pictures as files: PNG, a grid of many, and ADM's .npz."""

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from lwd.data.sources import Pixels
from lwd.files import atomic_file


def png(pixels: Pixels) -> bytes:
    """One picture (h, w, 3) as a PNG."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def tile(pixels: Pixels, labels: Sequence[int]) -> Pixels:
    """Pictures (n, h, w, 3) as one; a column for each class where the labels go round up to sixteen."""
    classes = len(dict.fromkeys(labels[: len(pixels)]))
    columns = classes if 1 < classes <= 16 else min(8, len(pixels))
    missing = -len(pixels) % columns
    padded = np.concatenate([pixels, np.full((missing, *pixels.shape[1:]), 255, np.uint8)])
    n, h, w, _ = padded.shape
    return padded.reshape(n // columns, columns, h, w, 3).swapaxes(1, 2).reshape(n // columns * h, columns * w, 3)


def write_arrays(path: Path, parts: Sequence[Any], size: int, rows: Sequence[int]) -> None:
    """ADM's .npz: arr_0 (n, h, w, 3) uint8 with the images of these numbers; parts hold `size` images each.

    One image is in memory at a time. numpy.savez would note the time of writing: two equal sets would differ.
    """
    head = {"descr": "|u1", "fortran_order": False, "shape": (len(rows), *parts[0].shape[1:])}
    with (
        atomic_file(path) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
        archive.open(zipfile.ZipInfo("arr_0.npy"), "w", force_zip64=True) as entry,
    ):
        np.lib.format.write_array_header_1_0(entry, head)
        for i in rows:
            entry.write(np.ascontiguousarray(parts[i // size][i % size]).data)
