"""Items per second of the reader against one that opens the file for every item, in one process.

    python benchmarks/reader.py [--json] [--items 5000]

Random shards of the published shape: 32 + 16 channels on 16x16, with mirrored copies; once in shards of 1,000 items,
once in shards of 10. Both read the same items in the same order into normalised float32 batches.

The cold rows drop the files from the page cache first and count what comes from the disk (/proc/self/io), as a multiple
of the bytes that the batches need: for the reader (`batch`, memory maps), for what training on a GPU uses (`stored`,
four batches in advance), and for the baseline.
"""

import argparse
import gc
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

import lwd
from lwd.compute.order import coin, order
from lwd.latents.ahead import Ahead
from lwd.latents.batch import StoredBatch
from lwd.latents.reader import LatentReader
from lwd.latents.shards import write_manifest, write_shard

LAYOUT = lwd.Layout.of(texture=32, semantic=16)
BATCH = 250
SHARDS_OF = (1000, 10)


def write(directory: Path, items: int, per_shard: int) -> None:
    """Write shards of random latents with a manifest."""
    lines = []
    for start in range(0, items, per_shard):
        rows = min(per_shard, items - start)
        tensors = {"labels": torch.randint(0, 1000, (rows,))}
        for key, channels in (("latents", 32), ("latents_sv", 16)):
            for suffix in ("", "_flip"):
                tensors[key + suffix] = torch.randn(rows, channels, 16, 16)
        lines.append(write_shard(directory / f"{start:06}.safetensors", tensors))
    ones = {"texture": torch.ones(32), "semantic": torch.ones(16)}
    write_manifest(directory, LAYOUT, 1000, lines, lwd.Statistics(ones, ones))


def opened_per_item(reader: LatentReader, batch: int, seed: int) -> Iterator[Tensor]:
    """The baseline: open the shard for every item, slice its rows and label, normalise, and stack."""
    ends, step = reader.ends, 0
    while True:
        positions = np.arange(step * batch, (step + 1) * batch)
        rows, labels = [], []
        for index, flip in zip(order(len(reader), seed, positions), coin(seed, positions), strict=True):
            shard = int(np.searchsorted(ends, index, side="right"))
            row = int(index - (ends[shard - 1] if shard else 0))
            with safe_open(reader.shards[shard].path, "pt") as file:
                keys = (key + "_flip" * bool(flip) for key in reader.keys.values())
                latents = torch.cat([file.get_slice(key)[row : row + 1] for key in keys], dim=1)
                labels.append(file.get_slice("labels")[row : row + 1])
            rows.append(reader.statistics.normalize(latents, reader.layout)[0])
        torch.cat(labels)
        yield torch.stack(rows)
        step += 1


def rate(batches: Iterator[Tensor], steps: int) -> float:
    """Return items per second over so many batches."""
    start = time.perf_counter()
    for _ in range(steps):
        next(batches)
    return steps * BATCH / (time.perf_counter() - start)


def ratios(items: int, per_shard: int) -> list[float]:
    """Return the sorted ratios of 7 alternating rounds; print the rates of the first."""
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory), items, per_shard)
        reader = LatentReader(directory)
        ours = (batch.latents for batch in reader.batches(BATCH, seed=0))
        theirs = opened_per_item(reader, BATCH, seed=0)
        epoch = items // BATCH
        for _ in range(epoch):  # check that both return the same values, and warm the page cache
            torch.testing.assert_close(next(ours), next(theirs))
        rounds = [(rate(ours, 2 * epoch), rate(theirs, 4)) for _ in range(7)]
    fast, slow = rounds[0]
    print(f"{len(reader.shards)} shards: {fast:,.0f} items/s; opened per item: {slow:,.0f} items/s (first round)")
    return sorted(fast / slow for fast, slow in rounds)


def drop(directory: Path) -> None:
    """Drop the pages of all files from the page cache."""
    for path in directory.iterdir():
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def read_bytes() -> int:
    """Bytes that this process has had read from the disk."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


def ahead(reader: LatentReader) -> Iterator[Tensor]:
    """Batches as training on a GPU reads them."""
    batches: Ahead[int, StoredBatch] = Ahead(lambda step: reader.stored(step, BATCH, 0))
    for step in count():
        yield batches.get(step, range(step + 1, step + 5)).to("cpu").latents


def cold(items: int, per_shard: int, steps: int = 4) -> dict[str, tuple[float, float]]:
    """Bytes from the disk over useful bytes, and useful megabytes per second, by way of reading."""
    useful, found = steps * BATCH * LAYOUT.channels * 256 * 4, {}
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory), items, per_shard)
        ways: dict[str, Callable[[LatentReader], Iterator[Tensor]]] = {
            "reader": lambda reader: (batch.latents for batch in reader.batches(BATCH, seed=0)),
            "reader, four batches in advance": ahead,
            "opened per item": lambda reader: opened_per_item(reader, BATCH, seed=0),
        }
        for name, way in ways.items():
            reader = LatentReader(directory)
            drop(Path(directory))
            before, start = read_bytes(), time.perf_counter()
            batches = way(reader)
            for _ in range(steps):
                next(batches)
            found[name] = ((read_bytes() - before) / useful, useful / 1e6 / (time.perf_counter() - start))
            del batches, reader  # pages that are mapped cannot be dropped
            gc.collect()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the ratios as one JSON object on the last line")
    parser.add_argument("--items", type=int, default=5000, help="images in the shards (default 5000)")
    arguments = parser.parse_args()
    medians = {}
    for per_shard in SHARDS_OF:
        found = ratios(arguments.items, per_shard)
        print(f"ratio: {found[3]:.1f} (median of 7 alternating rounds, {found[0]:.1f} to {found[-1]:.1f})")
        name = "reader over opened per item" + (f", shards of {per_shard}" if per_shard != SHARDS_OF[0] else "")
        medians[name] = round(found[3], 2)
    for name, (factor, speed) in cold(arguments.items, SHARDS_OF[0]).items():
        print(f"cold, {name}: {factor:.2f} bytes from the disk for each useful byte, {speed:.0f} MB/s")
        medians[f"cold bytes over useful bytes, {name}"] = round(factor, 3)
    if arguments.json:
        print(json.dumps(medians))


if __name__ == "__main__":
    main()
