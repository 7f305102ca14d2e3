"""Training on captions with several processes, and with kills: the numbers of a run do not depend on either."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from captioned import saved, write_complete, write_latents
from lwd.training.journal import read_metrics

SETTINGS = ("run.batch=4", "run.log_every=1", "run.save_every=2", "objective.cosine=0", "optimizer.lr=1e-3")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("captions")
    write_complete(root / "model")
    write_latents(root / "latents")
    return root


def command(out, processes=1, steps=6, *settings):
    launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={processes}", "--standalone"] if processes > 1 else []
    train = ["-m", "lwd", "train", "latents", "--init-from", "model", "--schedule", "offset:0.1", "--cpu"]
    changes = [f"--set={change}" for change in (*SETTINGS, *settings)]
    return [sys.executable, *launcher, *train, "--steps", str(steps), *changes, "--out", out]


def environment(place):
    return os.environ | {"OMP_NUM_THREADS": "1", "LWD_CACHE": str(place / "cache")}


def launch(place, out, *options):
    done = subprocess.run(command(out, *options), cwd=place, env=environment(place), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return torch.tensor([line["total"] for line in read_metrics(place / out / "metrics.jsonl")])


@pytest.mark.slow
def test_two_processes_train_the_same_model_as_one(place):
    """Oracle: the losses of one process, with copies and with shards of the weights; captions are embedded together."""
    one = launch(place, "one")
    two = launch(place, "two", 2)
    sharded = launch(place, "sharded", 2, 6, "run.parallel=fsdp2", "network.recompute=true")
    for other in (two, sharded):
        assert ((other - one).abs() <= 1e-4 * one).all()


@pytest.mark.slow
def test_kills_change_no_bit(place):
    """Oracle: the checkpoint of an undisturbed run; killed after the first step and again later."""
    steps = 40
    launch(place, "calm", 1, steps)
    for moment in (1, 9):
        process = subprocess.Popen(command("hurt", 1, steps), cwd=place, env=environment(place))
        path, deadline = place / "hurt" / "metrics.jsonl", time.monotonic() + 300
        while process.poll() is None and time.monotonic() < deadline:
            if path.exists() and len(path.read_bytes().splitlines()) >= moment:
                break
            time.sleep(0.01)
        assert process.poll() is None, "the run ended before it was killed"
        process.send_signal(signal.SIGKILL)
        process.wait()
    launch(place, "hurt", 1, steps)
    calm, hurt = (saved(place / name, steps) for name in ("calm", "hurt"))
    assert calm.keys() == hurt.keys()
    assert all(torch.equal(calm[name], hurt[name]) for name in calm)
