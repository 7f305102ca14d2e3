"""Fits on several processes: the same result as on one, written once, and resumed after a kill."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import lwd
from lwd.compute.moments import Moments
from lwd.representations.pca import load_pca
from lwd.representations.processes import Processes
from lwd.representations.semvae import load_semvae
from messages import says

WORKER = str(Path(__file__).with_name("fit_worker.py"))


def launch(kind, out, processes, code=0, **changes):
    """The losses of rank 0 and the report."""
    command, log = [sys.executable], out.parent / f"{out.name}.log"
    if processes > 1:
        command += ["-m", "torch.distributed.run", f"--nproc-per-node={processes}", "--standalone"]
    command += [WORKER, kind, str(out), str(log), json.dumps(changes)]
    done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert bool(done.returncode) == bool(code), done.stderr[-2000:]
    return json.loads(log.read_text()) if not code else None


def near(a, b, tolerance=1e-5):
    return a == pytest.approx(b, rel=tolerance, abs=tolerance)


def test_shares_are_the_batch_of_one_process(monkeypatch):
    """Oracle: positions, noise and batches of a pass, put together over ranks."""
    one = Processes(8)
    alone = one.noise(8, (2, 4), torch.Generator().manual_seed(3))
    found = []
    for rank in range(2):
        part = Processes(8)
        part.rank, part.world = rank, 2
        noise = part.noise(4, (2, 4), torch.Generator().manual_seed(3))
        found.append((part.positions(5), noise, part.share(np.arange(21))))
    assert np.array_equal(np.concatenate([f[0] for f in found]), one.positions(5))
    assert torch.equal(torch.cat([f[1] for f in found]), alone)
    assert sorted(np.concatenate([f[2] for f in found])) == list(range(21))
    assert found[1][2].tolist() == list(range(8, 16))
    assert one.merge(Moments()).count == 0
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(lwd.InputError, match=says(8, 3)):
        Processes(8)
    monkeypatch.setenv("WORLD_SIZE", "2")  # no address of the others
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(lwd.InputError, match="torchrun"):
        Processes(8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["semvae", "texture"])
def test_two_processes_fit_the_same_model_as_one(tmp_path, kind):
    """Oracle: losses and report of one process; a kill on two continues on one."""
    one = launch(kind, tmp_path / "one", 1)
    two = launch(kind, tmp_path / "two", 2)
    assert len(one["losses"]) == 12
    assert near(two["losses"], one["losses"])
    assert near(two["report"], one["report"])
    launch(kind, tmp_path / "killed", 2, code=9, stop=7)
    assert not (tmp_path / "killed").exists()
    resumed = launch(kind, tmp_path / "killed", 1)
    assert near(resumed["losses"], one["losses"][5:])
    assert near(resumed["report"], one["report"])
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["killed", "one", "two"]
    assert not list(tmp_path.glob(".*"))
    if kind == "semvae":
        features = torch.randn(2, 12, 4, 4, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            a, b = (load_semvae(tmp_path / name).encode(features) for name in ("one", "two"))
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@pytest.mark.slow
def test_two_processes_fit_the_same_pca_and_kept_features(tmp_path):
    """Oracle: one process; images in memory (`limit`) are shared in the same way."""
    one, two = (launch("pca", tmp_path / str(n), n) for n in (1, 2))
    assert near(two["report"], one["report"], 1e-10)
    a, b = (load_pca(tmp_path / str(n)) for n in (1, 2))
    torch.testing.assert_close(a.components, b.components, atol=1e-9, rtol=0)
    one, two = (launch("semvae", tmp_path / f"kept{n}", n, limit=40) for n in (1, 2))
    assert near(two["losses"], one["losses"])
