"""A training step as a GPU would see it: no waits, the right dtypes, one graph per block."""

import pytest
import torch

import lwd
from audits import Kinds, Waits
from lwd.models import layers
from lwd.probing.joint import probe
from lwd.training.devices import Devices
from lwd.training.task import RunOptions
from lwd.training.train import train
from lwd.training.trainer import Trainer
from train_data import cpu, images, settings

ON_A_CPU = {"lightningdit.py:_check __bool__"}
"""Labels are checked on the CPU only."""


def each_step(monkeypatch, mode):
    """Run every step under a mode; returns the modes by step."""
    seen, advance = {}, Trainer.advance

    def audited(trainer):
        with mode() as seen[trainer.step + 1]:
            advance(trainer)

    monkeypatch.setattr(Trainer, "advance", audited)
    return seen


@pytest.mark.parametrize(
    ("stage", "changes"),
    [
        (train, {"schedule": "offset:0.3", "optimizer": {"clip": 1.0}, "run": {"steps": 4, "log_every": 9}}),
        (train, {"schedule": "synchronous", "run": {"steps": 4, "log_every": 9, "accumulate": 2}}),
        (probe, {"run": {"steps": 4, "log_every": 9}, "probe": {"steps": 4, "burn_in": 1}}),
    ],
)
def test_no_step_waits_for_the_device(tmp_path, monkeypatch, stage, changes):
    """Oracle: after the first step, which fills caches, nothing is read from the device or copied from the host.

    The trace of rho is read a hundred times in a run; here in every step.
    """
    seen = each_step(monkeypatch, Waits)
    stage(settings(**changes), images(), tmp_path, cpu())
    for step in (2, 3):
        assert set(seen[step].found) <= ON_A_CPU | ({"rho.py:record tolist"} if stage is probe else set())


def test_dtypes_of_a_bf16_step(tmp_path, monkeypatch):
    """Oracle: attention in bf16; float64 for times, rates and logs only, which are (batch x groups) numbers."""
    seen = each_step(monkeypatch, Kinds)
    config = settings(run={"steps": 2, "batch": 16, "precision": "bf16"})
    train(config, images(), tmp_path, RunOptions(Devices("bf16", cpu=True)))
    assert seen[2].attention == {torch.bfloat16}
    assert 0 < seen[2].float64 <= 16 * 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # dynamo's own
@pytest.mark.parametrize("recompute", [False, True])
def test_blocks_compile_to_one_graph_without_breaks_or_recompiles(tmp_path, monkeypatch, recompute):
    """Oracle: dynamo's own counters over three steps of a network of three blocks, in bf16 autocast."""
    monkeypatch.setattr(layers, "BACKEND", "aot_eager")
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    network = {"depth": 3, "compile": True, "recompute": recompute}
    config = settings(network=network, run={"steps": 3, "precision": "bf16"})
    assert train(config, images(), tmp_path, RunOptions(Devices("bf16", cpu=True))).finished
    counters = torch._dynamo.utils.counters
    assert counters["stats"]["unique_graphs"] == 1  # one for all blocks and steps: full graphs cannot break
    assert not counters["graph_break"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_compiled_steps_are_the_eager_steps(tmp_path, monkeypatch):
    """Oracle: the same losses, to rounding."""
    monkeypatch.setattr(layers, "BACKEND", "aot_eager")
    losses = []
    for compiled in (False, True):
        out = tmp_path / str(compiled)
        lines = []
        config = settings(network={"compile": compiled}, run={"steps": 3})
        train(config, images(), out, cpu(on_step=lambda t, lines=lines: lines.append(t.last_line["total"])))
        losses.append(torch.tensor(lines))
    torch.testing.assert_close(*losses, rtol=1e-6, atol=0)


def test_constants_are_made_once_and_work_after_inference():
    """Oracle: training after a first call in inference mode."""
    objective, layout = lwd.FlowObjective(lwd.Layout.of(a=1, b=1)), torch.ones(2, 2)
    with torch.inference_mode():
        objective.weigh(layout, layout, layout)
    errors = torch.ones(2, 2, requires_grad=True)
    objective.weigh(errors, errors, torch.ones(2, 2))[0].sum().backward()
    assert errors.grad.tolist() == [[0.5, 0.5], [0.5, 0.5]]
