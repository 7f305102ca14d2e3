"""What a run of days needs: trackers, clocks, guards, meters, pictures that fail, checkpoints in parts."""

import json
import signal
import sys
import types
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from lwd.errors import InputError
from lwd.io.files import sha256
from lwd.training.devices import Replica
from lwd.training.formats import TensorIndex
from lwd.training.guard import Guard
from lwd.training.journal import read_metrics
from lwd.training.meter import LEAST, Meter, Spikes
from lwd.training.shards import Piece, Stored, owners, staged
from lwd.training.train import train
from lwd.training.watch import MOST, Watch
from messages import says
from train_data import cpu, images, settings

DATA = images()


class Tracked:
    """A stand-in for wandb: what it was told."""

    def __init__(self):
        self.started, self.lines, self.metrics, self.finished = [], [], [], 0

    def init(self, **options):
        self.started.append(options)
        return self

    def define_metric(self, name, step_metric=None):
        self.metrics.append((name, step_metric))

    def log(self, numbers):
        self.lines.append(numbers)

    def finish(self):
        self.finished += 1


def test_a_continued_run_is_one_run_of_wandb(tmp_path, monkeypatch):
    """Oracle: the same id before and after, and a step in every line, because a run may return to a checkpoint."""
    tracked = Tracked()
    module = types.ModuleType("wandb")
    module.init = tracked.init
    module.__spec__ = types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "wandb", module)
    for steps in (4, 8):
        train(settings(run={"steps": steps}), DATA, tmp_path, cpu(wandb=True))
    first, second = tracked.started
    assert first["id"] == second["id"]
    assert {first["resume"], second["resume"]} == {"allow"}
    assert [line["step"] for line in tracked.lines] == list(range(1, 9))
    assert tracked.finished == 2
    train(settings(run={"steps": 9}), DATA, tmp_path, cpu())
    assert json.loads((tmp_path / "run.json").read_text())["wandb"] == first["id"]


@pytest.mark.parametrize("error", [RuntimeError("CUDA out of memory"), InputError("no decoder")])
def test_a_picture_that_fails_does_not_end_the_run(tmp_path, capsys, error):
    """Oracle: all steps are taken, every failure is said."""

    def fail(_path, _step):
        raise error

    assert train(settings(), DATA, tmp_path, cpu(after_save=fail)).finished
    assert says("step 4", str(error)).search(capsys.readouterr().err)


def test_an_early_warning_saves_and_stops(tmp_path):
    """Oracle: SIGUSR1 at step 3 leaves a checkpoint of step 3."""
    stopped = train(
        settings(), DATA, tmp_path, cpu(on_step=lambda t: t.step == 3 and signal.raise_signal(signal.SIGUSR1))
    )
    assert (stopped.step, stopped.finished) == (3, False)
    assert (tmp_path / "checkpoints" / "latest").read_text() == "00000003"


def test_saves_by_the_clock(tmp_path, monkeypatch):
    """Oracle: an hour a step, so every step is saved, though save_every is far away."""
    hours = iter(range(10_000))
    monkeypatch.setattr("lwd.training.watch.time", types.SimpleNamespace(monotonic=lambda: 3600.0 * next(hours)))
    train(settings(run={"steps": 3, "save_every": 100, "keep_last": 9}), DATA, tmp_path, cpu())
    found = sorted(p.name for p in (tmp_path / "checkpoints").iterdir() if p.is_dir())
    assert found == ["00000000", "00000001", "00000002", "00000003"]


class Exchange:
    """Devices of two processes, of which the other one has these flags."""

    world, device = 2, torch.device("cpu")

    def __init__(self, other):
        self.other, self.calls = other, 0

    def largest(self, values):
        self.calls += 1
        return [max(pair) for pair in zip(values, self.other, strict=True)]


def test_processes_look_up_at_the_same_steps_and_rarely(monkeypatch):
    """Oracle: the slowest process decides: half a second a step means every second step."""
    now = [0.0]
    monkeypatch.setattr("lwd.training.watch.time", types.SimpleNamespace(monotonic=lambda: now[0]))
    devices = Exchange([1.0, 0.0, 0.0, 0.5])
    watch = Watch(devices, minutes=0)
    assert watch.is_due(1)
    now[0] = 0.01
    assert watch.look(1, stop=False, saving=True).stop  # the other process was asked to
    assert [watch.is_due(step) for step in (2, 3)] == [False, True]
    devices.other = [0.0] * 4
    look = watch.look(3, stop=False, saving=True)
    assert (look.stop, look.save, look.saving) == (False, False, True)
    assert watch.next == 3 + MOST


def test_the_guard_does_not_depend_on_when_it_is_read():
    """Oracle: the same steps, read after each of them and at the end; nothing counts after the limit."""
    norms = [1.0, float("nan"), 1.0, float("inf"), float("nan"), 1.0, float("nan")]
    often, once = (Guard(torch.device("cpu"), 2) for _ in range(2))
    for step, norm in enumerate(norms, start=1):
        flags = {float(guard.check(torch.tensor(norm), step)) for guard in (often, once)}
        assert flags == {float(step in (2, 4) or step >= 5)}
        often.review()
    seen = once.review()
    assert seen == often.review()
    assert (seen.skipped, seen.last, seen.tripped, seen.bad) == (3, 5, True, 2)


def test_the_meter_measures_a_window(monkeypatch):
    """Oracle: by hand; 2 devices of 100 operations per second, 4 steps of 50 in 2 s, half a second of waiting."""
    now = [0.0]
    monkeypatch.setattr("lwd.training.meter.time", types.SimpleNamespace(monotonic=lambda: now[0]))
    meter = Meter(torch.device("cpu"), world=2, operations=50.0, peak=100.0)
    meter.start(10)
    with meter.waiting():
        now[0] += 0.5
    now[0] = 2.0
    found = meter.read(14)
    assert (found["steps per second"], found["MFU"], found["data wait"]) == (2.0, 0.5, 0.25)
    assert found["peak memory"] > 2**20
    now[0] = 3.0
    assert meter.read(15)["steps per second"] == 1.0  # of this window alone


def test_a_spike_is_far_above_the_lines_before():
    """Oracle: by hand; a slow rise and noise are no spikes, and a few lines are too few to say."""
    spikes = Spikes()
    assert not any(spikes.is_spike(value) for value in (1.0, 9.0, 1.0))
    spikes = Spikes([1.0 + 0.01 * (i % 3) for i in range(LEAST)])
    assert not spikes.is_spike(1.08)
    assert spikes.is_spike(1.5)
    assert not spikes.is_spike(1.01)


def test_metrics_of_a_run_have_speed_wait_and_memory(tmp_path):
    train(settings(run={"steps": 2}), DATA, tmp_path, cpu())
    line = read_metrics(tmp_path / "metrics.jsonl")[-1]
    assert {"steps per second", "data wait", "peak memory", "gradient norm"} <= set(line)
    assert 0 <= line["data wait"] <= 1


def test_copies_divide_the_work_evenly():
    """Oracle: every tensor has one owner, and no copy writes more than another by more than one tensor."""
    sizes = [70, 5, 40, 40, 10, 20, 5, 30]
    owner = owners(sizes, 3)
    loads = [sum(size for size, who in zip(sizes, owner, strict=True) if who == copy) for copy in range(3)]
    assert max(loads) - min(loads) <= 10
    tensors = {str(i): torch.full((size,), float(i)) for i, size in enumerate(sizes)}
    parts = [staged(tensors, Replica(copy, 3, True)) for copy in range(3)]
    assert sorted(name for part in parts for name in part) == sorted(tensors)
    tensors["0"].zero_()
    assert next(part["0"].data for part in parts if "0" in part).unique().tolist() == [0.0]  # tensor 0 is all 0


def test_parts_are_read_in_any_division(tmp_path):
    """Oracle: the tensor itself, written in three blocks of rows and read in two; only the files needed are opened."""
    whole, rows = torch.arange(35.0).reshape(7, 5), (3, 2, 2)
    parts, start = [], 0
    for i, count in enumerate(rows):
        save_file({"w": whole[start : start + count].contiguous()}, tmp_path / f"part{i}")
        parts.append([f"part{i}", [start, 0], [count, 5]])
        start += count
    about = {"shape": [7, 5], "dtype": "F32", "parts": parts}
    index = TensorIndex.parse({"format": "lwd.training-parts", "version": 1, "tensors": {"w": about}, "sha256": {}})
    stored = Stored(tmp_path, index)
    assert torch.equal(stored.tensor("w"), whole)
    low, high = Piece(torch.empty(4, 5), (7, 5), (0, 0)), Piece(torch.empty(3, 5), (7, 5), (4, 0))
    stored.fill({"w": low})
    stored.fill({"w": high})
    assert torch.equal(torch.cat([low.data, high.data]), whole)
    Path(tmp_path / "part2").unlink()
    stored.fill({"w": low})
    with pytest.raises(InputError, match=says("part2")):
        stored.fill({"w": high})


def test_a_single_process_writes_the_format_of_earlier_versions(tmp_path):
    """Oracle: the files of version 0.1: one file of training tensors, with its checksum."""
    train(settings(run={"steps": 4}), DATA, tmp_path, cpu())
    folder = tmp_path / "checkpoints" / "00000004"
    state = json.loads((folder / "state.json").read_text())
    assert state["sha256"]["training.safetensors"] == sha256(folder / "training.safetensors")
    assert not (folder / "training.json").exists()
