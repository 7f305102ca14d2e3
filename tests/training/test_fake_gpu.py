"""Training and sampling as on a GPU, with torch's meta device in its place: devices never mix, and nothing waits."""

import pytest
import torch

import lwd
from fake_gpu import GPU, Answers, FakeGPU, NoGenerators, Uploads, install
from gpu_smoke import RandomLatents
from latents.test_reader import write
from lwd.models.lightningdit import LightningDiT, LightningDiTConfig
from lwd.objective import FlowObjective
from lwd.training.rho import RhoProbe
from lwd.training.task import RunOptions, Task
from lwd.training.train import build_network
from lwd.training.trainer import Trainer
from train_data import PAIR, images, settings

CURVES = {
    "offset": lambda: lwd.Offset(0.3),
    "polynomial": lambda: lwd.Polynomial([[0.0, -1.0, 1.0]]).freeze(),
    "bernstein": lambda: lwd.Bernstein(degree=3).freeze(),
    "knots": lambda: lwd.PiecewiseLinear((0, 0.5, 1), {"texture": (0, 0.2, 1), "semantic": (0, 0.7, 1)}),
    "independent": lambda: None,
}
"""What a run trains under; the last one is that of a surface probe."""


def steps(trainer, count=3):
    """Take some steps; returns the copies of the last one that wait."""
    with NoGenerators():
        for _ in range(count - 1):
            trainer.advance()
        with Uploads() as uploads:
            trainer.advance()
    assert all(weight.device == GPU for weight in (*trainer.weights, *trainer.ema.shadow))
    return uploads.found


def trainer(out, config, data, schedule, rho=None, **objective):
    network = build_network(config, data)
    task = Task(network, FlowObjective(data.layout, **objective), schedule, rho)
    return Trainer(config, data, out, task, RunOptions(FakeGPU()))


def test_the_audit_sees_copies_that_wait_and_mixed_devices():
    """Oracle: one copy of each kind."""
    host, device = torch.ones(3), torch.empty(3, device=GPU)
    with Uploads() as uploads:
        host.to(GPU)
        host.to(GPU, non_blocking=True)
        device.copy_(host)
        torch.tensor([1.0], device=GPU)
    assert len(uploads.found) >= 2
    with pytest.raises(RuntimeError):
        torch.lerp(host, device, 0.5 * torch.ones(3))
    with pytest.raises(RuntimeError):
        bool(device.sum() > 0)


@pytest.mark.parametrize("name", CURVES)
def test_a_step_stays_on_the_device(tmp_path, monkeypatch, name):
    """Oracle: torch's checks of devices, and its refusal to read values of the meta device."""
    install(monkeypatch)
    schedule = CURVES[name]()
    schedule = schedule.to(GPU) if isinstance(schedule, torch.nn.Module) else schedule
    config = settings(optimizer={"clip": 1.0}, run={"accumulate": 2, "label_drop": 0.1})
    assert steps(trainer(tmp_path, config, images(), schedule, cosine=1.0)) == []


def test_a_step_with_alignment_stays_on_the_device(tmp_path, monkeypatch):
    """Oracle: as above."""
    install(monkeypatch)
    data = RandomLatents(lwd.Layout.of(texture=4, semantic=2), 4, 16, classes=3, count=32)
    data.inner.feature_width = 16
    config = settings(network={"tap": 1, "projector_width": 8}, objective={"align": 1.0}, run={"batch": 8})
    assert steps(trainer(tmp_path, config, data, lwd.Offset(0.3), align=1.0)) == []


def test_a_step_of_a_joint_probe_stays_on_the_device(tmp_path, monkeypatch):
    """Oracle: as above; the trace of rho is not read in these steps."""
    install(monkeypatch)
    schedule = lwd.Polynomial().to(GPU)
    run = trainer(tmp_path, settings(run={"steps": 10_000}), images(), schedule, RhoProbe(schedule, burn_in=1))
    assert steps(run) == []


def test_shards_are_read_as_they_are_stored_and_converted_on_the_device(tmp_path, monkeypatch):
    """Oracle: as above, with the reader's own path for a GPU."""
    install(monkeypatch)
    write(tmp_path / "latents", dtype=torch.float16)
    data = lwd.LatentReader(tmp_path / "latents")
    run = trainer(tmp_path / "run", settings(run={"batch": 4}), data, lwd.Offset(0.3))
    assert steps(run) == []


@pytest.mark.parametrize(
    ("name", "solver"),
    [
        ("knots", {"method": "abm", "steps": 4}),
        ("polynomial", {"method": "heun", "steps": 3}),
    ],
)
def test_sampling_stays_on_the_device(name, solver):
    """Oracle: torch's checks of devices; the schedule stays on the CPU, as a loaded model has it."""
    with torch.device(GPU):
        network = LightningDiT(LightningDiTConfig(PAIR, 1, 16, 2, classes=3, grid=(2, 2)))
    weak = lwd.AutoGuidance(network, network, 1.5, PAIR)
    both = lwd.ClassifierFree(weak, 3, {"texture": 2.0}, PAIR)
    answers = {"__call__": [0]}
    where = {"seeds": range(9), "labels": [0, 1, 2] * 3, "size": (2, 2), "device": GPU}
    with torch.no_grad(), Answers(**answers):
        z = lwd.sample(both, CURVES[name](), PAIR, **where, **solver).z
    assert (z.device, z.shape, z.dtype) == (GPU, (9, 2, 2, 2), torch.float32)
