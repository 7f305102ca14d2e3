"""Two processes, DDP and FSDP2: the same numbers, few collectives, one graph, little memory. One launch for all."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lwd.training.devices import Devices
from lwd.training.journal import read_metrics
from lwd.training.state import read
from train_data import images
from two_processes import BLOCKS, WithFeatures, losses

HERE = Path(__file__).parent
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone")
LAST = "checkpoints/00000004/model.safetensors"
BOTH = pytest.mark.parametrize("parallel", ["ddp", "fsdp2"])
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    out = tmp_path_factory.mktemp("two")
    command = [*TORCHRUN, "--nproc-per-node=2", str(HERE.parent / "two_processes.py"), str(out)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((out / "found.json").read_text()) | {"out": out}


@BOTH
def test_clip_recompute_and_alignment_on_two_processes(found, parallel, tmp_path):
    """Oracle: one process; losses within 1e-5, averaged weights within 1e-6."""
    changes = {"network": {"tap": 1, "recompute": True}, "objective": {"align": 0.5}, "optimizer": {"clip": 0.05}}
    alone = losses(tmp_path, Devices("fp32", cpu=True), WithFeatures(images()), **changes)
    assert found[parallel]["clip, recompute, REPA"] == pytest.approx(alone, rel=1e-5)
    here, there = (load_file(run / LAST) for run in (tmp_path, found["out"] / parallel / "all"))
    for name, weight in here.items():
        torch.testing.assert_close(there[name], weight, atol=1e-6, rtol=0)


@BOTH
def test_bf16_on_two_processes(found, parallel, tmp_path):
    """Oracle: float32 on one process, to the precision of bf16."""
    alone = losses(tmp_path, Devices("fp32", cpu=True))
    assert found[parallel]["bf16"] == pytest.approx(alone, rel=2e-2)


@BOTH
def test_blocks_compile_to_one_graph(found, parallel):
    """Oracle: dynamo's count of graphs over three steps in bf16, without and with recomputation."""
    assert found[parallel]["compiled"] == [1, 1]


def test_collectives_of_a_step(found):
    """Oracle: DDP reduces each bucket once (one here); FSDP2 gathers every block twice and the root once, reduces
    each once, and adds up the norm. Nothing else: no flag, no log."""
    assert found["ddp"]["collectives"] == {"allreduce": found["ddp"]["collectives"]["allreduce"]}
    assert found["ddp"]["collectives"]["allreduce"] <= 2
    counts = found["fsdp2"]["collectives"]
    gathers = sum(count for name, count in counts.items() if "gather" in name)
    scatters = sum(count for name, count in counts.items() if "scatter" in name)
    assert gathers <= 2 * BLOCKS + 1
    assert scatters == BLOCKS + 1
    assert counts["allreduce"] == 1


def test_sharded_weights_do_not_stay_gathered(found):
    """Oracle: after a forward pass of eight blocks, less than two of them are alive in bf16; with DDP all eight."""
    sharded, copied = found["fsdp2"]["alive"], found["ddp"]["alive"]
    assert max(sharded["bytes"]) <= 2 * sharded["block"]
    assert min(copied["bytes"]) >= 8 * copied["block"]


def test_sigterm_during_a_slow_save_loses_nothing(tmp_path):
    """Oracle: the newest checkpoint is that of the last step in the log, intact, in two parts, with nothing beside it.

    The signal goes to torchrun while both processes are writing; they finish that save and write another.
    """
    changes = {"run": {"steps": 100_000, "save_every": 4, "keep_last": 1}}
    command = [*TORCHRUN, "--nproc-per-node=2", "--shutdown-timeout=120", str(HERE / "worker.py"), str(tmp_path)]
    process = subprocess.Popen([*command, json.dumps(changes), "slow"], env=ENVIRONMENT, stderr=subprocess.PIPE)
    checkpoints = tmp_path / "checkpoints"
    deadline = time.monotonic() + 300
    while not list(checkpoints.glob(".00000008.*")) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    latest = (checkpoints / "latest").read_text()
    assert int(latest) == read_metrics(tmp_path / "metrics.jsonl")[-1]["step"] >= 8
    assert sorted(p.name for p in checkpoints.iterdir()) == [latest, "latest"]
    assert len(list((checkpoints / latest).glob("training-*.safetensors"))) == 2
    read(checkpoints / latest)  # verifies all checksums


def test_shards_within_nodes_and_copies_between_them(tmp_path):
    """Oracle: four processes as two nodes (hsdp) train what one process trains, and one continues from their parts."""
    runs = {"steps": 6, "save_every": 3}
    alone = losses(tmp_path / "alone", Devices("fp32", cpu=True), network={"depth": 2}, run=runs)
    command = [*TORCHRUN, "--nproc-per-node=4", str(HERE / "worker.py"), str(tmp_path / "four")]
    changes = {"run": {"steps": 3, "save_every": 3, "parallel": "hsdp"}}
    done = subprocess.run([*command, json.dumps(changes)], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert losses(tmp_path / "four", Devices("fp32", cpu=True), network={"depth": 2}, run=runs) == pytest.approx(
        alone, rel=1e-5
    )
