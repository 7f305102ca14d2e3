"""Reading from a disk: how many bytes, by which way, and how far ahead."""

import os
import threading

import numpy as np
import pytest
import torch

import lwd
from lwd.latents.ahead import Ahead
from lwd.latents.files import OpenFiles
from lwd.latents.reader import LatentReader
from lwd.latents.shards import write_manifest, write_shard
from messages import says


def write(directory, dtype=torch.float32, shards=3, count=64, features=False):
    """Shards with rows of 32 + 16 channels on 16x16, like the published ones."""
    generator, lines = torch.Generator().manual_seed(0), []
    for number in range(shards):
        tensors = {"labels": torch.randint(0, 10, (count,), generator=generator)}
        keys = {"latents": (32, 16, 16), "latents_sv": (16, 16, 16)} | ({"feats_dino": (8, 4, 4)} if features else {})
        for key, shape in keys.items():
            for suffix in ("", "_flip"):
                tensors[key + suffix] = torch.randn(count, *shape, generator=generator).to(dtype)
        lines.append(write_shard(directory / f"{number}.safetensors", tensors))
    ones = {"texture": torch.ones(32), "semantic": torch.full((16,), 3.0)}
    write_manifest(directory, lwd.Layout.of(texture=32, semantic=16), 10, lines, lwd.Statistics(ones, ones))


def read_bytes():
    with open("/proc/self/io") as file:
        return int(dict(line.split(": ") for line in file.read().splitlines())["read_bytes"])


def drop(directory):
    """Drop the pages of all files from the page cache."""
    for path in directory.iterdir():
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="Linux counts the bytes of a process")
@pytest.mark.parametrize("way", ["batch", "stored"])
def test_a_cold_batch_reads_what_it_needs(tmp_path, way):
    """Oracle: the system's count of bytes from the disk; a row that starts within a page costs one page more."""
    write(tmp_path)
    reader = LatentReader(tmp_path)
    drop(tmp_path)
    before = read_bytes()
    for step in range(4):
        getattr(reader, way)(step, 16, seed=0)
    read, useful = read_bytes() - before, 4 * 16 * 48 * 256 * 4
    if not read:
        pytest.skip("this file system is in memory")
    assert 0.9 * useful < read <= 1.5 * useful


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_stored_batches_are_the_same_batches(tmp_path, dtype):
    """Oracle: the rows copied from memory maps, bit for bit, after conversion and normalisation."""
    write(tmp_path, dtype, count=9, features=True)
    reader = LatentReader(tmp_path, features=True)
    for step, rank in ((0, 0), (3, 1)):
        wanted, stored = reader.batch(step, 16, 5, rank, 2), reader.stored(step, 16, 5, rank, 2)
        assert all(part.dtype == dtype for part in (*stored.parts, stored.features))
        found = stored.to("cpu")
        for name in ("latents", "labels", "index", "features"):
            assert torch.equal(getattr(found, name), getattr(wanted, name))
        assert torch.equal(wanted.to("cpu").latents, wanted.latents)


def test_threads_read_with_few_open_files(tmp_path, monkeypatch):
    """Oracle: the reader itself, one batch after another; the number of open files of this process."""
    write(tmp_path, shards=6, count=4)
    reader = LatentReader(tmp_path)
    monkeypatch.setattr(reader._files, "most", 2)
    wanted = [reader.batch(step, 8, 0).latents for step in range(12)]
    ahead = Ahead(lambda step: reader.stored(step, 8, 0), threads=3)
    found = [ahead.get(step, range(step + 1, min(step + 4, 12))).to("cpu").latents for step in range(12)]
    ahead.close()
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert len(reader._files._open) <= 2


def test_results_wait_in_the_background_and_old_ones_are_dropped():
    """Oracle: what was loaded, and when."""
    started, release = [], threading.Event()

    def load(key):
        started.append(key)
        if key == 9:
            release.wait(10)
        return -key

    ahead = Ahead(load, threads=1)
    assert ahead.get(0, [1, 2]) == 0
    assert ahead.get(1, [2, 9]) == -1
    assert ahead.get(2, [9, 3]) == -2
    release.set()
    assert ahead.get(5, []) == -5  # after a jump, 3 is no longer wanted
    ahead.close()
    assert started.count(1) == started.count(2) == 1


def test_what_disappears_is_named(tmp_path):
    write(tmp_path, shards=1, count=4)
    reader = LatentReader(tmp_path)
    files = OpenFiles([tmp_path / "0.safetensors", tmp_path / "1.safetensors"])
    with pytest.raises(lwd.InputError, match=says("1.safetensors")), files.take([1]):
        pass
    os.truncate(tmp_path / "0.safetensors", 5000)
    with pytest.raises(lwd.InputError, match=says("0.safetensors", "truncated")):
        reader.gather_stored(np.arange(4), np.zeros(4, bool))
