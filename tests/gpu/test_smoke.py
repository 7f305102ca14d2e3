"""The smoke test of `make test-gpu`: on a GPU as it is, and its code on a CPU with a small network."""

from contextlib import contextmanager

import pytest
import torch

import lwd
from audits import Waits
from gpu_smoke import MORE, SAMPLES, STEPS, RandomLatents, main, smoke
from lwd.training.devices import Devices
from lwd.training.guard import Guard
from lwd.training.plan_settings import PlanSettings
from train_data import settings


@contextmanager
def strict():
    """What set_sync_debug_mode("error") does, as far as a CPU can tell; labels are checked on a CPU only."""
    with Waits() as waits:
        yield
    if set(waits.found) - {"lightningdit.py:_check __bool__"}:
        raise RuntimeError(str(waits.found))


def test_a_step_that_waits_is_found():
    """Oracle: reading a value, in a file of lwd."""
    with pytest.raises(RuntimeError, match="guard"), strict():
        Guard(torch.device("cpu"), 3).review()


def check(found):
    assert found["steps"] == [STEPS, STEPS + MORE]
    assert found["losses finite"]
    assert found["samples finite"]
    assert found["samples"] == SAMPLES


def test_the_smoke_test_itself_on_a_cpu(tmp_path, monkeypatch):
    """Oracle: it counts steps and samples, and fails on a step that waits."""
    monkeypatch.setattr("gpu_smoke.STEPS", 5)
    monkeypatch.setattr("gpu_smoke.MORE", 1)
    data = RandomLatents(lwd.Layout.of(texture=4, semantic=2), 4, 16, classes=3, count=32)
    data.inner.feature_width = 16
    config = settings(network={"tap": 0}, run={"batch": 8})
    machine = PlanSettings(gpus=1, layout="texture=4,semantic=2", side=4, classes=3)
    found = smoke(tmp_path, config, data, Devices(cpu=True), strict, machine)
    assert found["steps"] == [5, 6]
    assert found["samples"] == SAMPLES
    assert found["planned memory, GB"] > 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU: make test-gpu")
def test_fifty_steps_of_xl_on_a_gpu(tmp_path):
    """Oracle: set_sync_debug_mode("error") in every step, and the plan's memory within a quarter."""
    found = main(tmp_path, "lwd-xl")
    print(found)
    check(found)
    assert found["peak memory, GB"] == pytest.approx(found["planned memory, GB"], rel=0.25)
