"""Evaluation on several processes and on a GPU: the same numbers, however they are computed."""

import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from lwd.evaluation import features
from lwd.evaluation.features import FeatureSet, extract, extract_share
from lwd.evaluation.kernel import kid, kid_without
from lwd.evaluation.manifold import overlap
from lwd.evaluation.score import Reference, score


class Made:
    """Pictures of random pixels."""

    name, digest = "made", "0123456789abcdef"

    def __len__(self):
        return 70

    def batches(self, size, start=0):
        for low in range(start, len(self), size):
            rows = range(low, min(low + size, len(self)))
            yield np.stack([np.random.default_rng(i).integers(0, 256, (4, 4, 3), np.uint8) for i in rows])


class Means:
    """Features: the mean of each channel and of two corners."""

    identity = "means"

    def __init__(self):
        self.seen = 0

    def __call__(self, images):
        self.seen += len(images)
        x = images.double()
        return {"encoder": torch.cat([x.mean((1, 2)), x[:, 0, 0], x[:, 3, 3]], 1).float()}


def test_processes_share_the_features(tmp_path, monkeypatch):
    """Oracle: one process, bit for bit; every image is looked at once, and the first process waits for the others."""
    monkeypatch.setattr(features, "BLOCK", 20)
    wanted = extract(Made(), [Means()], batch=10, cache=tmp_path / "one")
    networks = [Means() for _ in range(3)]
    first = threading.Thread(target=extract_share, args=(Made(), [networks[0]], (0, 3), 10, None, tmp_path / "three"))
    first.start()
    for rank in (1, 2):
        assert first.is_alive()
        counts = []
        extract_share(Made(), [networks[rank]], (rank, 3), 10, counts.append, tmp_path / "three")
        assert sum(counts) == 20
    first.join(20)
    assert not first.is_alive()
    assert sum(network.seen for network in networks) == 70
    found = extract(Made(), [last := Means()], batch=10, cache=tmp_path / "three")
    assert last.seen == 0
    assert torch.equal(found.rows["encoder"], wanted.rows["encoder"])
    assert torch.equal(found.moments("encoder").scatter, wanted.moments("encoder").scatter)


def test_features_are_kept_by_device(tmp_path):
    """Oracle: on a CPU the key of earlier versions; elsewhere another one."""
    cpu, gpu = Means(), Means()
    cpu.device, gpu.device = torch.device("cpu"), torch.device("cuda")
    folders = [features._folder(Made(), [network], tmp_path) for network in (Means(), cpu, gpu)]
    assert folders[0] == folders[1] != folders[2]


@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_float32_distances_give_the_same_overlap(shift):
    """Oracle: float64, point by point; a third of the samples are copies, so that ties are common."""
    generator = torch.Generator().manual_seed(0)
    ref = torch.randn(120, 40, generator=generator) + shift
    rows = torch.cat([ref[:40], ref[40:80] + 1e-4, torch.randn(40, 40, generator=generator) + shift])
    exact, fast = (overlap(ref, rows, 3, 5, 10, device) for device in (None, torch.device("cpu")))
    for name in ("precise", "recalled", "dense", "covered"):
        assert torch.equal(getattr(exact, name), getattr(fast, name))
    assert (exact.recall_without, exact.coverage_without) == (fast.recall_without, fast.coverage_without)


def test_float32_products_give_the_same_kid():
    """Oracle: float64, to 1e-5 of the kernel's mean."""
    generator = torch.Generator().manual_seed(0)
    ref, rows = (torch.rand(90, 64, generator=generator) for _ in range(2))
    cpu = torch.device("cpu")
    assert kid(ref, rows, device=cpu) == pytest.approx(kid(ref, rows), abs=1e-5)
    assert kid_without(ref, rows, 10, device=cpu) == pytest.approx(kid_without(ref, rows, 10), abs=1e-5)


def test_scoring_says_how_far_it_is(tmp_path):
    """Oracle: shares that add up to no more than 1."""
    found: FeatureSet = extract(Made(), [Means()], cache=tmp_path)
    shares = []
    score(found, Reference.of(found, {}, "same"), progress=shares.append)
    assert len(shares) == 3
    assert 0.5 < sum(shares) <= 1


@pytest.mark.slow
def test_torchrun_gives_the_same_numbers(tmp_path):
    """Oracle: one process; all of evaluation.json but the name of its samples."""
    noise = np.random.default_rng(0).integers(0, 256, (600, 28, 28, 3), np.uint8)
    np.savez(tmp_path / "noise.npz", arr_0=noise)
    found = []
    for count in (1, 2):
        many = ["-m", "torch.distributed.run", f"--nproc-per-node={count}", "--standalone"] if count > 1 else []
        options = ["--reference", "fashion/test", "--encoder", "fashion", "--skip-inception", "--threads", "1"]
        command = [sys.executable, *many, "-m", "lwd", "evaluate", str(tmp_path / "noise.npz"), *options]
        out, cache = tmp_path / f"{count}.json", str(tmp_path / f"cache{count}")
        env = os.environ | {"OMP_NUM_THREADS": "1", "LWD_CACHE": cache}
        done = subprocess.run([*command, "--out", str(out)], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        found.append(json.loads(out.read_text()))
    assert found[0] == found[1]
