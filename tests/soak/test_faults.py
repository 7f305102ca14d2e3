"""Faults of disks and systems: what was complete stays, and one line says what to do. `make soak` runs them too."""

import errno
import itertools
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from filelock import FileLock

import lwd
from lwd.io.files import install, read_json, write_json
from lwd.io.jobs import write_once
from lwd.io.locks import BusyError, alone
from lwd.io.tensors import read_safetensors
from lwd.training.state import newest
from lwd.training.train import train
from messages import says
from train_data import cpu, images, settings

DATA = images(count=32)
LONG = {"steps": 6, "save_every": 2, "keep_last": 9}


def weights(out):
    return read_safetensors(newest(out / "checkpoints", print).path / "training.safetensors")


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@contextmanager
def disk(path, size):
    """A file system of its own, of a few hundred kilobytes."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(path)]
    if not sys.platform.startswith("linux") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs a small file system, which only root can mount")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def remount(path, options):
    subprocess.run(["mount", "-o", f"remount,{options}", str(path)], check=True)


def test_a_full_disk_stops_a_run_that_then_continues_to_the_same_bytes(tmp_path):
    """Oracle: the run on a large disk. The disk fills while the run goes on: a file takes what is left after step 2."""
    train(settings(run=LONG), DATA, tmp_path / "whole", cpu())
    with disk(tmp_path / "small", 20_000) as small:
        out, filler = small / "run", small / "filler"

        def fill(trainer):
            if trainer.step == 3:
                free = shutil.disk_usage(small).free
                filler.write_bytes(bytes(max(free - 20_000, 0)))

        with pytest.raises(lwd.InputError, match=says("No space left on device", "free", "again")):
            train(settings(run=LONG), DATA, out, cpu(on_step=fill))
        assert newest(out / "checkpoints", print).step == 2
        filler.unlink()
        assert train(settings(run=LONG), DATA, out, cpu()).finished
        assert same(weights(out), weights(tmp_path / "whole"))


def test_too_small_a_disk_is_noticed_before_the_first_step(tmp_path):
    """Oracle: one checkpoint has about a megabyte, the disk half of one."""
    with disk(tmp_path / "small", 500) as small, pytest.raises(lwd.InputError, match=says("free", "checkpoint")):
        train(settings(network={"width": 64}, run=LONG), DATA, small / "run", cpu())


def test_a_full_disk_keeps_the_old_model(tmp_path):
    """Oracle: the model that was there still loads after it could not be replaced."""
    train(settings(run={"steps": 1}), DATA, tmp_path / "run", cpu())
    point = lwd.load(tmp_path / "run")
    with disk(tmp_path / "small", 2000) as small:
        lwd.save(point, small / "model")
        free = shutil.disk_usage(small).free
        (small / "filler").write_bytes(bytes(max(free - 20_000, 0)))
        with pytest.raises(lwd.InputError, match=says("No space left on device")):
            lwd.save(point, small / "model", replace=True)
        assert lwd.load(small / "model").schedule == point.schedule
        assert [p.name for p in sorted(small.iterdir())] == ["filler", "model"]


def test_a_read_only_directory_is_told_before_the_work(tmp_path):
    """Oracle: the message names the directory; what is in it can still be read."""
    with disk(tmp_path / "disk", 4000) as place:
        train(settings(run={"steps": 2}), DATA, place / "run", cpu())
        remount(place, "ro")
        with pytest.raises(lwd.InputError, match=says("Read-only file system", "directory")):
            train(settings(run={"steps": 4}), DATA, place / "run", cpu())
        with pytest.raises(lwd.InputError, match=says("Read-only file system")):
            write_json(place / "x.json", {})
        assert lwd.load(place / "run").provenance["step"] == 2


def test_a_shard_that_vanishes_is_named(tmp_path):
    """Oracle: the reader opened it, then it was removed."""
    folder = shutil.copytree(Path(__file__).parents[1] / "fixtures" / "earlier" / "latents", tmp_path / "latents")
    reader = lwd.LatentReader(folder)
    gone = folder / "shard-00001.safetensors"
    gone.unlink()
    with pytest.raises(lwd.InputError, match=says(gone.name)):
        reader.batch(0, 40, 0)


def test_a_checkpoint_that_vanishes_is_made_again(tmp_path):
    """Oracle: an undisturbed run."""
    train(settings(run=LONG), DATA, tmp_path / "whole", cpu())
    train(settings(run=LONG | {"steps": 4}), DATA, tmp_path / "run", cpu())
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "00000004")
    (tmp_path / "run" / "metrics.jsonl").unlink()
    train(settings(run=LONG), DATA, tmp_path / "run", cpu())
    assert same(weights(tmp_path / "run"), weights(tmp_path / "whole"))


@pytest.mark.parametrize("error", [OSError(errno.ENOLCK, "No locks available"), NotImplementedError("no flock")])
def test_a_directory_without_locks_is_refused_in_one_line(tmp_path, monkeypatch, error):
    """Oracle: what some network file systems answer to flock."""

    def acquire(*_, **__):
        raise error

    monkeypatch.setattr(FileLock, "acquire", acquire)
    with pytest.raises(lwd.InputError, match=says("lock", "file system")):
        train(settings(run=LONG), DATA, tmp_path / "run", cpu())


def test_a_clock_that_goes_back_changes_nothing(tmp_path, monkeypatch):
    """Oracle: an undisturbed run; every look at the clock is an hour earlier than the one before."""
    train(settings(run=LONG), DATA, tmp_path / "whole", cpu())
    hours = itertools.count()
    monkeypatch.setattr(time, "time", lambda: 2e9 - 3600 * next(hours))
    monkeypatch.setattr(time, "monotonic", lambda: 1e6 - 3600 * next(hours))
    train(settings(run=LONG | {"steps": 3}), DATA, tmp_path / "run", cpu())
    for path in (tmp_path / "run").rglob("*"):
        os.utime(path, (1e9, 1e9))
    train(settings(run=LONG), DATA, tmp_path / "run", cpu())
    assert same(weights(tmp_path / "run"), weights(tmp_path / "whole"))


def forked(function):
    """Run a function in a child process; returns its process number. The child ends with 0, or 1 if it raised."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            function()
            code = 0
        finally:
            os._exit(code)
    return pid


def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_second_run_in_the_same_directory_is_refused_and_the_first_is_not_disturbed(tmp_path):
    """Oracle: the first run alone. The second starts at each of its steps."""
    train(settings(run=LONG), DATA, tmp_path / "whole", cpu())
    refused = []

    def second(trainer):
        del trainer
        pid = forked(lambda: _refused(tmp_path / "run"))
        refused.append(ended(pid))

    train(settings(run=LONG), DATA, tmp_path / "run", cpu(on_step=second))
    assert refused == [0] * 6
    assert same(weights(tmp_path / "run"), weights(tmp_path / "whole"))


def _refused(out):
    with pytest.raises(BusyError, match=says("another process")):
        train(settings(run=LONG), DATA, out, cpu())


def test_two_processes_fill_one_cache(tmp_path):
    """Oracle: all four succeed, the directory is complete, and nothing else is left."""
    start = tmp_path / "start"

    def fill(folder):
        write_json(folder / "model.json", {"a": [1] * 1000})
        write_json(folder / "config.json", {"format": "x"})

    def work():
        while not start.exists():
            time.sleep(0.001)
        for number in range(20):
            install(tmp_path / "cache" / str(number), fill)
            write_once(tmp_path / "cache" / f"{number}.json", {"by": os.getpid()})
            assert read_json(tmp_path / "cache" / str(number) / "model.json") == {"a": [1] * 1000}

    (tmp_path / "cache").mkdir()
    pids = [forked(work) for _ in range(4)]
    start.touch()
    assert [ended(pid) for pid in pids] == [0] * 4
    assert len(list((tmp_path / "cache").iterdir())) == 40
    assert not list((tmp_path / "cache").glob(".*"))


def test_a_lock_ends_with_its_process(tmp_path):
    """Oracle: a process that is killed while it holds the lock."""
    ready = tmp_path / "ready"

    def hold():
        with alone(tmp_path):
            ready.touch()
            time.sleep(60)

    pid = forked(hold)
    while not ready.exists():
        time.sleep(0.01)
    with pytest.raises(BusyError), alone(tmp_path):
        pass
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    with alone(tmp_path):
        pass
