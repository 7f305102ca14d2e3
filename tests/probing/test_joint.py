"""The joint probe against closed forms: Gaussian data, where the best denoiser of every curve is known."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import lwd
from lwd.models.exact import Gaussian
from lwd.objective import FlowObjective
from lwd.probing.joint import probe, starting_schedule
from lwd.probing.sweep import sweep, weakest_stable
from lwd.schedule.io import read_provenance
from lwd.surfaces.integral import path_objective
from lwd.surfaces.verdict import judge
from lwd.training.config import with_changes
from lwd.training.rho import RhoProbe
from lwd.training.task import Task
from lwd.training.train import train
from messages import says
from train_data import MatrixNet, ScaledExact, cpu, first_losses, gaussian, images, memory, settings

TAU = torch.linspace(0, 1, 101, dtype=torch.float64)


def closed_form(exact, kinetic, mode, start, steps=2000):
    """Where rho comes to rest if the denoiser is always the minimiser of flow + kinetic energy for the present curve.

    The kinetic term shrinks the denoiser too: min over v of r |v - u|^2 + lambda r^2 |v|^2 is v = v* / (1 + lambda r).
    It is held fixed while rho takes its gradient (the envelope theorem), and the mode decides which gradient.
    """
    objective = FlowObjective(exact.layout, reduction="groups", weight_gradient=mode, kinetic=kinetic)
    schedule = starting_schedule(exact.layout.names, 4, start)
    schedule.rho.requires_grad_(True)
    optimizer = torch.optim.Adam([schedule.rho], lr=0.02)
    points, weights = (torch.from_numpy(x) for x in np.polynomial.legendre.leggauss(48))
    for _ in range(steps):
        times, rates = schedule.times((points + 1) / 2), schedule.rates((points + 1) / 2)
        errors, energies = exact.surfaces(times)
        shrunk = (1 / (1 + kinetic * rates)).detach()
        terms = objective.weigh(errors + (1 - shrunk) ** 2 * energies, shrunk**2 * energies, rates)
        optimizer.zero_grad()
        (weights[:, None] / 2 * sum(terms)).sum().backward()
        optimizer.step()
    return schedule.freeze()


def joint(tmp_path, exact, kinetic, mode, start, steps=3000):
    config = settings(
        objective={"reduction": "groups", "weight_gradient": mode},
        optimizer={"lr": 2e-3},
        run={"steps": steps, "batch": 2048, "log_every": 250, "save_every": 10**6, "label_drop": 0.0},
        probe={"kinetic": kinetic, "burn_in": steps * 2 // 3, "start": start},
    )
    return probe(config, memory(exact), tmp_path, cpu(network=MatrixNet(exact.layout.channels)))


@pytest.mark.parametrize("mode", ["exact", "stop", "none"])
def test_the_first_step_of_rho_follows_the_closed_form(tmp_path, mode):
    """Oracle: the gradient of the path objective on exact surfaces, by quadrature; Adam's first step is its sign."""
    exact = gaussian()
    goal = FlowObjective(exact.layout, reduction="groups", weight_gradient=mode, kinetic=0.1)
    schedule = lwd.Polynomial.from_shares([[0.3, 0.2, 0.2, 0.2, 0.1]])
    rho = RhoProbe(schedule, lr=0.01)
    config = settings(run={"batch": 200_000, "label_drop": 0.0})
    total = first_losses(config, exact, tmp_path, Task(ScaledExact(exact), goal, schedule, rho)).total
    expected = path_objective(schedule, exact.surfaces, goal)
    assert total.item() == pytest.approx(expected.item(), rel=0.01)
    (slope,) = torch.autograd.grad(expected, schedule.rho)
    total.backward()
    assert (schedule.rho.grad - slope).norm() < 0.005  # the three modes are 0.02 apart, the sampling error is 0.002
    before = schedule.rho.detach().clone()
    rho.update(1, keep=True)
    clear = slope.abs() > 0.5 * slope.abs().max()
    assert_close((schedule.rho.detach() - before)[clear], -0.01 * slope.sign()[clear], atol=1e-6, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "kinetic", "start"),
    [("exact", 0.12, 0.3), ("exact", 0.2, 0.3), ("stop", 0.12, 0.3), ("stop", 0.2, 0.0)],
)
def test_rho_lands_on_the_closed_form(tmp_path, mode, kinetic, start):
    """Oracle: the minimum for "exact" (interior for both lambdas), the fixed point for "stop"; sup norm 0.02."""
    exact = gaussian()
    found = joint(tmp_path, exact, kinetic, mode, start, 3000 if kinetic < 0.2 else 5000)
    expected = closed_form(exact, kinetic, mode, start)
    assert (found.schedule.times(TAU) - expected.times(TAU)).abs().max() < 0.02
    words = {"exact": "converged", "stop": "collapsed" if start else "converged"}
    assert found.verdict.word == words[mode]


@pytest.mark.slow
def test_three_groups_learn_two_curves(tmp_path):
    """Oracle: the closed form for three groups with different correlations."""
    covariance = torch.tensor([[1.0, 0.4, 0.7], [0.4, 1.0, 0.5], [0.7, 0.5, 1.0]])
    exact = Gaussian(lwd.Layout.of(texture=1, depth=1, semantic=1), covariance)
    found = joint(tmp_path, exact, 0.12, "exact", 0.3, 9000)
    expected = closed_form(exact, 0.12, "exact", 0.3)
    assert (found.schedule.times(TAU) - expected.times(TAU)).abs().max() < 0.02
    assert found.schedule.followers == ("texture", "depth")


@pytest.mark.slow
def test_beside_a_frozen_denoiser_rho_barely_moves(tmp_path):
    """Oracle: the paper's observation. A network trained on one clock rejects other curves; a learning one follows."""
    exact = gaussian()
    data, network = memory(exact), MatrixNet(2)
    run = {"steps": 500, "batch": 512, "log_every": 100, "save_every": 10**6, "label_drop": 0.0}
    config = settings(objective={"cosine": 0.0}, optimizer={"lr": 2e-3}, run=run, schedule="synchronous")
    train(config, data, tmp_path / "network", cpu(network=network))
    moved = {}
    for name, rate in (("frozen", 1e-12), ("learning", 2e-3)):
        config = settings(
            objective={"reduction": "groups"},
            optimizer={"lr": rate},
            run=run,
            probe={"kinetic": 0.0, "burn_in": 450, "start": 0.1},
        )
        copy = MatrixNet(2)
        copy.load_state_dict(network.state_dict())
        found = probe(config, data, tmp_path / name, cpu(network=copy))
        start = starting_schedule(exact.layout.names, 4, 0.1)
        moved[name] = float((found.schedule.times(TAU) - start.times(TAU)).detach().abs().max())
    assert moved["learning"] > 4 * moved["frozen"], moved


def test_a_probe_writes_down_how_its_schedule_was_found(tmp_path):
    config = settings(probe={"kinetic": 0.07, "burn_in": 4}, objective={"weight_gradient": "stop"})
    found = probe(config, images(), tmp_path, cpu())
    assert lwd.load_schedule(tmp_path / "schedule.json") == found.schedule
    about = read_provenance(tmp_path / "schedule.json")
    assert (about["lambda"], about["weight_gradient"], about["steps"], about["seed"]) == (0.07, "stop", 8, 0)
    assert about["data"] == images().fingerprint


def test_a_sweep_keeps_what_it_has_and_names_the_weakest_stable_lambda(tmp_path):
    """Oracle: a second call runs nothing; adding a lambda runs one probe."""
    seen = []
    config = settings(run={"steps": 4}, probe={"burn_in": 1})
    rows, finished = sweep(config, images(), tmp_path, [0.1, 0.05], cpu(), seen.append)
    assert finished
    assert seen == [0.05, 0.1]
    rows, _ = sweep(config, images(), tmp_path, [0.1, 0.05, 0.2], cpu(), seen.append)
    assert seen == [0.05, 0.1, 0.2]
    assert weakest_stable(rows) == 0.05
    with pytest.raises(lwd.InputError, match=says("steps", 4, 5)):
        sweep(settings(run={"steps": 5}, probe={"burn_in": 1}), images(), tmp_path, [0.1], cpu())
    with pytest.raises(lwd.InputError, match=says("objective.reduction")):
        sweep(with_changes(config, objective={"reduction": "groups"}), images(), tmp_path, [0.1], cpu())
    with pytest.raises(lwd.InputError, match=says("data")):
        sweep(config, images(seed=1), tmp_path, [0.1], cpu())


def test_the_verdict_does_not_depend_on_how_often_is_logged(tmp_path):
    """Oracle: one run, two values of log_every."""
    verdicts = []
    for every in (1, 50):
        changes = {"kinetic": 0.0, "burn_in": 30, "rho_lr": 0.1, "start": 0.3}
        config = settings(run={"steps": 40, "log_every": every, "save_every": 1000}, probe=changes)
        options = cpu(network=MatrixNet(2))
        verdicts.append(probe(config, memory(gaussian(0.6), 500), tmp_path / str(every), options).verdict)
    assert verdicts[0] == verdicts[1]
    assert verdicts[0].moved > 0


def test_the_verdict_is_a_number():
    """Oracle: tau^5 is the extreme itself; the identity is 0.535 away from it (the maximum of tau - tau^5)."""
    identity = lwd.Polynomial()
    assert judge(identity.extremes()[0]).word == "collapsed"
    assert judge(identity).distance == pytest.approx(0.2**0.25 - 0.2**1.25, abs=2e-3)
    history = ([0, 10], torch.stack([identity.times(TAU), identity.extremes()[0].times(TAU)]).detach())
    assert judge(identity, history).word == "converged"
    history = ([9, 10], history[1])
    assert judge(identity, history).word == "moving"


def test_a_single_group_has_nothing_to_learn():
    with pytest.raises(lwd.InputError, match=says("group")):
        RhoProbe(lwd.Polynomial(groups=("texture",)))
