"""Several processes, and kills: the numbers of a run do not depend on either."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lwd.cli import main
from lwd.training.journal import read_metrics
from lwd.training.trainer import Trainer
from messages import says

WORKER = str(Path(__file__).with_name("worker.py"))
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def launch(out, processes, changes, kind="train"):
    command = [sys.executable]
    if processes > 1:
        command += ["-m", "torch.distributed.run", f"--nproc-per-node={processes}", "--standalone"]
    done = subprocess.run(
        [*command, WORKER, str(out), json.dumps(changes), kind], env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [line["total"] for line in read_metrics(Path(out) / "metrics.jsonl")]


def close(a, b, tolerance=1e-5):
    a, b = torch.tensor(a), torch.tensor(b)
    return a.shape == b.shape and bool(((a - b).abs() <= tolerance * a.abs()).all())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["train", "probe"])
def test_two_processes_train_the_same_model_as_one(tmp_path, kind):
    """Oracle: 50 steps, losses within 1e-5 relative; each continues from the other's checkpoint."""
    long, half = {"run": {"steps": 50, "save_every": 25}}, {"run": {"steps": 25, "save_every": 25}}
    one = launch(tmp_path / "one", 1, long, kind)
    assert close(one, launch(tmp_path / "two", 2, long, kind))
    launch(tmp_path / "there", 1, half, kind)
    assert close(one, launch(tmp_path / "there", 2, long, kind))
    launch(tmp_path / "back", 2, half, kind)
    assert close(one, launch(tmp_path / "back", 1, long, kind))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["train", "probe"])
def test_sharded_weights_train_the_same_model(tmp_path, kind):
    """Oracle: FSDP2 on two processes equals one process, also through a checkpoint of the other."""
    one = launch(tmp_path / "one", 1, {"run": {"steps": 20}}, kind)
    sharded = {"run": {"steps": 20, "parallel": "fsdp2", "accumulate": 2}}
    assert close(one, launch(tmp_path / "sharded", 2, sharded, kind))
    launch(tmp_path / "mixed", 2, {"run": {"steps": 8, "parallel": "fsdp2"}}, kind)
    assert close(one, launch(tmp_path / "mixed", 1, {"run": {"steps": 20}}, kind))


@pytest.mark.slow
def test_a_sweep_on_two_processes(tmp_path):
    """Oracle: the same schedules as on one, to rounding; the others wait for what the main process writes."""
    _shards(tmp_path / "latents")
    found = {}
    for processes in (1, 2):
        command = [sys.executable, "-m"]
        if processes > 1:
            command += ["torch.distributed.run", f"--nproc-per-node={processes}", "--standalone", "-m"]
        command += ["lwd", "sweep", str(tmp_path / "latents"), "--out", str(tmp_path / str(processes)), "--steps", "6"]
        command += ["--kinetic", "0.01,0.02,0.04"]
        for change in ("network.depth=1", "network.width=32", "run.batch=8", "probe.burn_in=2"):
            command += ["--set", change]
        subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True)
        found[processes] = json.loads((tmp_path / str(processes) / "sweep.json").read_text())["probes"]
    for one, two in zip(found[1], found[2], strict=True):
        assert close(one["schedule"]["rho"]["texture"], two["schedule"]["rho"]["texture"], 1e-4)


@pytest.mark.slow
def test_twenty_kills_change_no_bit(tmp_path):
    """Oracle: the final checkpoint of a run that was killed twenty times is that of the undisturbed one."""
    changes = {"run": {"steps": 400, "save_every": 3}}
    launch(tmp_path / "whole", 1, changes)
    rng, kills, hurt = random.Random(0), 0, tmp_path / "hurt"
    progress = set()
    while True:
        process = subprocess.Popen(
            [sys.executable, WORKER, str(hurt), json.dumps(changes)], env=ENVIRONMENT, stderr=subprocess.DEVNULL
        )
        if kills == 20:
            assert process.wait() == 0
            break
        before = _lines(hurt)
        deadline = time.monotonic() + 60
        # Killed at a random moment of the loop itself, not during Python's imports.
        while _lines(hurt) == before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.15))
        if process.poll() is not None:
            assert process.returncode == 0
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        progress.add(_lines(hurt))
    assert kills == 20, "the run ended before it was killed twenty times"
    for name in ("training.safetensors", "model.safetensors"):
        a, b = (load_file(tmp_path / run / "checkpoints" / "00000400" / name) for run in ("whole", "hurt"))
        assert all(torch.equal(a[key], b[key]) for key in a), name
    assert len(progress) > 3
    assert not list((hurt / "checkpoints").glob(".0*"))


def _lines(run):
    path = run / "metrics.jsonl"
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def _long_run(tmp_path):
    """The words of a command that trains for hours, and logs every step."""
    _shards(tmp_path / "latents")
    command = ["train", str(tmp_path / "latents"), "--out", str(tmp_path / "run")]
    changes = ("run.log_every=1", "run.batch=8", "run.save_every=100000", "run.steps=100000")
    for change in (*changes, "network.depth=1", "network.width=32", "schedule=offset:0.3"):
        command += ["--set", change]
    return command


def test_signals_finish_the_step_save_and_say_so(tmp_path, monkeypatch, capsys):
    """Oracle: exit code 3, a checkpoint at the step that was reached, and the same command continues."""
    command, advance = _long_run(tmp_path), Trainer.advance
    for step, number in enumerate((signal.SIGTERM, signal.SIGINT), start=1):
        monkeypatch.setattr(Trainer, "advance", lambda self, n=number: (advance(self), signal.raise_signal(n)))
        assert main(command) == 3
        (said,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("lwd: ")]
        assert says("interrupted", step, "saved", "same command").search(said)
        assert (tmp_path / "run" / "checkpoints" / "latest").read_text() == f"{step:08}"
    assert [row["step"] for row in read_metrics(tmp_path / "run" / "metrics.jsonl")] == [1, 2]


@pytest.mark.slow
def test_sigterm_from_outside_finishes_the_step_saves_and_says_so(tmp_path, monkeypatch, capsys):
    """Oracle: as above, for a process that another one signals."""
    words = _long_run(tmp_path)
    command = [sys.executable, "-m", "lwd", *words]
    process = subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while _lines(tmp_path / "run") < 5 and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 3, errors
    step = read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]["step"]
    (said,) = [line for line in errors.splitlines() if line.startswith("lwd: ")]
    assert says("interrupted", step, "saved", "same command").search(said)
    assert (tmp_path / "run" / "checkpoints" / "latest").read_text() == f"{step:08}"
    advance = Trainer.advance
    monkeypatch.setattr(Trainer, "advance", lambda self: (advance(self), signal.raise_signal(signal.SIGINT)))
    assert main(words) == 3
    assert says("interrupted", step + 1).search(capsys.readouterr().err)
    assert [row["step"] for row in read_metrics(tmp_path / "run" / "metrics.jsonl")] == list(range(1, step + 2))


def _shards(directory):
    from lwd.compute.moments import ChannelMoments
    from lwd.groups import Layout
    from lwd.latents.shards import write_manifest, write_shard
    from lwd.latents.statistics import Statistics

    latents, labels = torch.randn(32, 6, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(32) % 3
    parts = {"texture": latents[:, :4].contiguous(), "semantic": latents[:, 4:].contiguous()}
    line = write_shard(
        directory / "shard-00000.safetensors",
        {"latents": parts["texture"], "latents_sv": parts["semantic"], "labels": labels},
    )
    moments = {name: ChannelMoments().update(part) for name, part in parts.items()}
    statistics = Statistics(
        {name: m.mean.float() for name, m in moments.items()}, {name: m.std.float() for name, m in moments.items()}
    )
    write_manifest(directory, Layout.of(texture=4, semantic=2), 3, [line], statistics)
