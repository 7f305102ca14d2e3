"""Where a run computes: CUDA builds without a GPU, srun, timeouts, and threads that spin."""

import subprocess
import sys
from datetime import timedelta

import pytest
import torch

from lwd.compute.devices import choose_device
from lwd.errors import InputError
from lwd.io.jobs import process
from lwd.io.launch import adopt_slurm, first_host
from lwd.training import devices as module
from lwd.training.devices import Devices
from messages import says

SRUN = {
    "SLURM_STEP_NUM_TASKS": "16",
    "SLURM_PROCID": "9",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_STEP_TASKS_PER_NODE": "8(x2)",
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
}


def test_a_cuda_build_without_a_gpu_trains_in_float32_on_the_cpu(monkeypatch):
    """Oracle: torch itself, told that CUDA was compiled in; no driver, so no device."""
    monkeypatch.setattr(torch._C, "_accelerator_getAccelerator", lambda: torch.device("cuda"))
    assert torch.accelerator.current_accelerator().type == "cuda"
    found = Devices()
    assert (found.device.type, found.bf16) == ("cpu", False)


def test_two_precisions_in_one_process():
    """Oracle: a notebook may train first in one and then in the other."""
    assert [Devices(precision, cpu=True).bf16 for precision in ("fp32", "bf16", "auto")] == [False, True, False]


def test_tasks_of_srun_know_each_other():
    """Oracle: by hand; two nodes with eight tasks each, this is the second of the second node."""
    variables = dict(SRUN)
    adopt_slurm(variables)
    expected = {"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8", "MASTER_ADDR": "gpu07"}
    assert {name: variables[name] for name in expected} == expected
    other = dict(SRUN) | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    adopt_slurm(other)
    assert other["MASTER_PORT"] == variables["MASTER_PORT"]


@pytest.mark.parametrize(("visible", "local"), [("5", "0"), ("GPU-8f2c", "0"), ("0,1,2,3", "1"), ("", "1")])
def test_a_task_of_srun_that_sees_one_gpu_uses_it(visible, local):
    """Oracle: CUDA numbers what a task sees from 0; with --gpus-per-task=1 that is one GPU."""
    variables = dict(SRUN) | {"CUDA_VISIBLE_DEVICES": visible}
    adopt_slurm(variables)
    assert variables["LOCAL_RANK"] == local


@pytest.mark.parametrize("name", [None, "cuda", torch.device("cuda")])
@pytest.mark.parametrize("started", [SRUN, {"LOCAL_RANK": "1", "RANK": "1", "WORLD_SIZE": "2"}])
def test_every_process_of_a_launcher_has_its_own_gpu(monkeypatch, name, started):
    """Oracle: the device that torch, which has none here, is asked for."""
    for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(key, "")
        monkeypatch.delenv(key)
    for key, value in started.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(InputError, match=says("cuda:1")):
        choose_device(name)


def test_tasks_of_srun_share_the_work_of_other_commands(monkeypatch):
    """Oracle: `lwd encode` and `lwd sample` divide their work by this number."""
    for name, value in SRUN.items():
        monkeypatch.setenv(name, value)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")  # so that it is restored afterwards
        monkeypatch.delenv(name)
    assert process() == (9, 16)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
        SRUN | {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "a"},
    ],
)
def test_torchrun_and_single_tasks_are_left_alone(variables):
    """Oracle: nothing changes; srun with one torchrun per node sets RANK itself."""
    after = dict(variables)
    adopt_slurm(after)
    assert after == variables


def test_tasks_of_srun_that_cannot_know_each_other_are_refused():
    """Oracle: one line instead of sixteen runs in one directory."""
    with pytest.raises(InputError, match=says(16, "SLURM_STEP_NODELIST", "torchrun")):
        adopt_slurm({name: value for name, value in SRUN.items() if name != "SLURM_STEP_NODELIST"})


@pytest.mark.parametrize(
    ("nodes", "first"), [("gpu[07-09,12],cpu1", "gpu07"), ("node3", "node3"), ("a-1,b-2", "a-1"), ("n[1]-ib", "n1-ib")]
)
def test_the_first_host_of_a_list(nodes, first):
    assert first_host(nodes) == first


def test_a_hang_within_a_step_is_noticed_in_minutes(monkeypatch):
    """Oracle: what accelerate is given for the training collectives; long waits have a group of their own."""
    seen = {}

    def accelerator(**options):
        seen["timeout"] = options["kwargs_handlers"][0].timeout
        raise KeyboardInterrupt

    monkeypatch.setattr("accelerate.Accelerator", accelerator)
    with pytest.raises(KeyboardInterrupt):
        Devices(cpu=True, timeout=5)
    assert seen["timeout"] == timedelta(minutes=5) < module.LONG


@pytest.mark.slow
@pytest.mark.parametrize(("first", "warned"), [("lwd", False), ("torch", True)])
def test_idle_threads_do_not_spin_for_python_users(first, warned):
    """Oracle: the variable that OpenMP reads when torch is loaded; if that was too late, one warning."""
    code = (
        f"import {first}, lwd, os; from lwd.compute.devices import warn_about_spinning as w; import torch;"
        "torch.set_num_threads(2); w(); w(); print(os.environ['GOMP_SPINCOUNT'])"
    )
    variables = {"PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2000"
    assert done.stderr.count("GOMP_SPINCOUNT=2000") == warned
