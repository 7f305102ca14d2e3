"""Stage II against the closed form: what a trained network reaches on Gaussian data."""

import pytest
import torch

import lwd
from lwd.latents.batch import Batch
from lwd.objective import FlowObjective
from lwd.path import interpolate
from lwd.surfaces.integral import path_objective
from lwd.training.draws import draw
from lwd.training.journal import read_metrics
from lwd.training.task import Task
from lwd.training.train import train
from train_data import MatrixNet, ScaledExact, cpu, first_losses, gaussian, images, memory, settings


@torch.no_grad()
def reached(network, schedule, exact, count=200_000):
    """The corrected flow loss of a network along a schedule, on fresh data with stratified tau."""
    data, label = exact.draw(count, seed=9)
    noise = torch.randn(data.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(8))
    tau = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    times, rates = schedule.times(tau), schedule.rates(tau)
    z, target = interpolate(data, noise, times, exact.layout)
    objective = FlowObjective(exact.layout, reduction="groups")
    best = objective(exact(z, times, label), target, rates).total
    return float(objective(network(z.float(), times, label).double(), target, rates).total / best), float(best)


@pytest.mark.parametrize("correction", ["exact", "none"])
def test_the_first_step_follows_the_closed_form(tmp_path, correction):
    """Oracle: loss and gradient of a scaled exact velocity, by quadrature; at scale 1 the gradient vanishes."""
    exact = gaussian()
    schedule = lwd.Polynomial.from_shares([[0.4, 0.3, 0.3]]).freeze()
    goal = FlowObjective(exact.layout, reduction="groups", weight_gradient=correction)
    config = settings(run={"batch": 200_000, "label_drop": 0.0}, optimizer={"ema": 0.99})
    slopes = {}
    for scale in (0.8, 1.0):
        network = ScaledExact(exact, scale)
        total = first_losses(config, exact, tmp_path, Task(network, goal, schedule)).total
        expected = path_objective(schedule, network.surfaces, goal)
        assert total.item() == pytest.approx(expected.item(), rel=0.01)
        slopes[scale] = [float(torch.autograd.grad(value, network.scale)[0]) for value in (total, expected)]
    assert slopes[0.8][0] == pytest.approx(slopes[0.8][1], rel=0.05)
    assert slopes[1.0][1] == 0
    assert abs(slopes[1.0][0]) < 0.05 * abs(slopes[0.8][1])


@pytest.mark.slow
@pytest.mark.parametrize("correction", ["exact", "none"])
def test_training_reaches_the_closed_form_minimum(tmp_path, correction):
    """Oracle: E[u | z] minimises the corrected and the uncorrected loss alike; within 2% of its loss."""
    exact, network = gaussian(), MatrixNet(2)
    schedule = lwd.Polynomial.from_shares([[0.4, 0.3, 0.3]])
    lwd.save_schedule(schedule, tmp_path / "schedule.json")
    run = {"steps": 1200, "batch": 1024, "log_every": 400, "save_every": 10**6, "label_drop": 0.0}
    objective = {"cosine": 0.0, "reduction": "groups", "weight_gradient": correction}
    config = settings(
        objective=objective,
        optimizer={"lr": 3e-3, "decay": "cosine", "ema": 0.99},
        run=run,
        schedule=str(tmp_path / "schedule.json"),
    )
    train(config, memory(exact), tmp_path / "run", cpu(network=network))
    ratio, best = reached(network, schedule, exact)
    assert ratio < 1.02
    closed = path_objective(schedule.freeze(), exact.surfaces, FlowObjective(exact.layout, reduction="groups"))
    assert best == pytest.approx(float(closed), rel=0.01)  # the average itself has 0.3% of noise


def test_features_are_aligned_when_asked(tmp_path):
    """Oracle: with REPA on, the term falls, and the projector learns; without a tap it is refused."""
    data = images()
    torch.manual_seed(0)
    features = torch.nn.functional.conv2d(data.latents, torch.randn(5, 6, 1, 1))

    class Aligned:
        def __getattr__(self, name):
            return getattr(data, name)

        def batch(self, *arguments, **named):
            found = data.batch(*arguments, **named)
            return Batch(found.latents, found.labels, found.index, features[found.index])

    network = lwd.LightningDiT(
        lwd.LightningDiTConfig(data.layout, 2, 32, 2, 3, grid=(4, 4), tap=1, features=5, projector_width=16)
    )
    config = settings(objective={"align": 1.0}, network={"tap": 1}, run={"steps": 60, "log_every": 20})
    train(config, Aligned(), tmp_path, cpu(network=network))
    terms = [line["align"] for line in read_metrics(tmp_path / "metrics.jsonl")]
    assert terms[-1] < 0.8 * terms[0]


def test_labels_are_dropped_at_the_rate_asked_for():
    """Oracle: the binomial's 5 sigma; tau's mean and logit-normal's quartiles."""
    draws = draw((0, 0, 0), (40_000, 1), slice(None), "uniform", 0.1)
    assert abs(float(draws.dropped.float().mean()) - 0.1) < 5 * (0.09 / 40_000) ** 0.5
    assert abs(float(draws.tau.mean()) - 0.5) < 5 / (12 * 40_000) ** 0.5
    skewed = draw((0, 0, 0), (40_000, 1), slice(None), "logit-normal").tau
    quartile = torch.sigmoid(torch.special.ndtri(torch.tensor(0.25)))
    assert abs(float(skewed.quantile(0.25)) - float(quartile)) < 0.01
    part = draw((0, 0, 0), (40_000, 1), slice(100, 200), "uniform", 0.1)
    assert torch.equal(part.noise, draws.noise[100:200])
    assert not torch.equal(draw((0, 0, 1), (40_000, 1), slice(None)).noise, draws.noise)
