"""The surface probe: a denoiser at independent local times, its surfaces, and what is done with both."""

import json

import numpy as np
import pytest
import torch

import lwd
from lwd.cli import main
from lwd.objective import FlowObjective
from lwd.probing.surface import calibrate, error_scale, parse_weights, surface_probe, surface_settings
from lwd.representations.texture import PatchAutoencoder
from lwd.surfaces.curvature import predicted_error
from lwd.surfaces.files import load_surfaces
from lwd.surfaces.table import GridSurfaces, tabulate
from lwd.training.config import with_changes
from lwd.training.draws import draw
from lwd.training.task import Task
from lwd.training.train import load_into, train
from messages import says
from stand_ins import coarse_optimum
from strategies import small_mixture
from train_data import MatrixNet, ScaledExact, cpu, first_losses, gaussian, images, memory, settings


def test_local_times_are_independent_and_even():
    """Oracle: every stratum of every group holds one draw; groups are uncorrelated; the other draws are unchanged."""
    one = draw((0, 0, 5), (4096, 1), slice(0, 4096), groups=3)
    strata = (one.local * 4096).floor().long()
    for g in range(3):
        assert torch.equal(strata[:, g].sort().values, torch.arange(4096))
    assert (torch.corrcoef(one.local.T) - torch.eye(3)).abs().max() < 0.06
    plain = draw((0, 0, 5), (4096, 1), slice(0, 4096))
    assert torch.equal(plain.tau, one.tau)
    assert torch.equal(plain.noise, one.noise)
    part = draw((0, 0, 5), (4096, 1), slice(100, 200), groups=3)
    assert torch.equal(part.local, one.local[100:200])
    times, rates = one.clocks(None)
    assert torch.equal(times, one.local)
    assert (rates == 1).all()


def test_the_first_step_follows_the_closed_form(tmp_path):
    """Oracle: loss and gradient of a scaled exact velocity, averaged over all pairs of local times by quadrature."""
    exact, network = gaussian(0.6), ScaledExact(gaussian(0.6), 0.8)
    goal = FlowObjective(exact.layout, reduction="groups")
    config = settings(run={"batch": 200_000, "label_drop": 0.0})
    total = first_losses(config, exact, tmp_path, Task(network, goal, None)).total
    points, weights = (torch.from_numpy(x) for x in np.polynomial.legendre.leggauss(24))
    pairs = torch.cartesian_prod((points + 1) / 2, (points + 1) / 2)
    expected = (torch.outer(weights, weights).flatten()[:, None] / 4 * network.surfaces(pairs)[0]).sum()
    assert total.item() == pytest.approx(expected.item(), rel=0.01)
    mine, theirs = (float(torch.autograd.grad(value, network.scale)[0]) for value in (total, expected))
    assert mine == pytest.approx(theirs, rel=0.05)


@pytest.mark.slow
def test_surfaces_of_a_trained_network_are_the_closed_form(tmp_path):
    """Oracle: Gaussian surfaces: within 3 standard errors, plus what 1500 steps leave of the network's own error."""
    exact = gaussian(0.6)
    config = settings(
        objective={"reduction": "groups"},
        optimizer={"lr": 3e-3, "decay": "cosine"},
        run={"batch": 1024, "log_every": 500, "save_every": 10**6, "label_drop": 0.0},
        probe={"steps": 1500, "burn_in": 1, "points": 6, "samples": 4000},
    )
    options = cpu(network=MatrixNet(2))
    outcome, table = surface_probe(config, memory(exact, 50_000), tmp_path, options)
    assert outcome.finished
    losses, energies = exact.surfaces(table.points)
    inside = ((table.points > 0.05) & (table.points < 0.95)).all(1)
    away = (table.losses - losses).abs()[inside] - 3 * table.loss_errors[inside]
    assert away.max() < 0.02
    assert ((table.energies - energies).abs()[inside] - 3 * table.energy_errors[inside]).max() < 0.05
    again, same = surface_probe(config, memory(exact, 50_000), tmp_path, options)
    assert again.step == 1500
    assert torch.equal(same.losses, table.losses)


@pytest.fixture(scope="module")
def calibrated():
    """Surfaces of the mixture, and the scale of predicted errors by order."""
    data = small_mixture()
    draws, labels = data.draw(400, seed=2)
    table = tabulate(data, draws, labels, data.layout, points=11)
    return table, calibrate(data, table, labels[:128], (1, 1))


@pytest.mark.parametrize("order", [1, 2])
def test_calibrated_errors_have_the_size_of_real_ones(calibrated, order):
    """Oracle: errors of Euler's and Heun's method on the mixture, under schedules that calibration did not see."""
    data, (table, scales) = small_mixture(), calibrated
    scale = scales[str(order)]
    method = ("euler", "heun")[order - 1]
    for schedule in (lwd.Offset(0.15), lwd.Offset(0.3), lwd.Polynomial.from_shares([[0.3, 0.4, 0.3]])):
        options = {"seeds": range(500, 628), "size": (1, 1), "dtype": torch.float64}
        truth = lwd.sample(data, schedule, data.layout, rtol=1e-6, atol=1e-8, **options).z
        real = lwd.sample(data, schedule, data.layout, method=method, steps=12, **options).z - truth
        predicted = predicted_error(schedule, GridSurfaces(table), data.layout, 12, order)
        assert 0.5 < scale * predicted / float(real.square().mean().sqrt()) < 2


def test_a_scale_that_was_not_measured_is_one():
    """Oracle: by hand, hostile values included."""
    assert error_scale({"error_scales": {"2": 3.5}}, 2) == 3.5
    for value in ({}, {"error_scales": 3}, {"error_scales": {"2": "x"}}, {"error_scales": {"2": float("nan")}}):
        assert error_scale(value, 2) == 1.0


def test_three_groups_from_training_to_schedule(tmp_path, capsys):
    """Oracle: the commands' own files; what cannot be had for three groups is refused before anything is solved."""
    exact = gaussian(0.4, groups=3)
    config = settings(
        objective={"reduction": "groups"},
        run={"batch": 64, "log_every": 5, "save_every": 10, "label_drop": 0.0},
        probe={"steps": 10, "burn_in": 1, "points": 6, "samples": 64},
    )
    _, table = surface_probe(config, memory(exact, 500), tmp_path / "run", cpu(network=MatrixNet(3)))
    assert table.losses.shape == (6 * 32 + 8, 3)
    assert table.bends is None
    fit = ["schedule", "fit", str(tmp_path / "run"), "--kinetic", "0.3", "--out", str(tmp_path / "s.json")]
    assert main(fit) == 0
    assert lwd.load_schedule(tmp_path / "s.json").groups == exact.layout.names
    path = ["schedule", "path", str(tmp_path / "run"), "--lambdas", "0.3", "--out", str(tmp_path / "p")]
    assert main([*path, "--steps", "10"]) == 2
    assert says("groups").search(capsys.readouterr().err)
    assert main(path) == 0


@pytest.mark.parametrize(
    ("changed", "facts"), [({"points": 3}, ("probe.points", 5, 3)), ({"samples": 8}, ("probe.samples", 32, 500, 8))]
)
def test_what_cannot_be_tabulated_is_refused_before_training(tmp_path, changed, facts):
    """Oracle: no run directory is made."""
    config = settings(probe={"points": 5, "samples": 64} | changed)
    with pytest.raises(lwd.InputError, match=says(facts)):
        surface_probe(config, memory(gaussian(0.6), 500), tmp_path / "run", cpu(network=MatrixNet(2)))
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def probed(tmp_path_factory):
    """A surface probe of a small LightningDiT, killed half way by its step count and continued."""
    out = tmp_path_factory.mktemp("surface")
    data = images(count=400)
    config = settings(probe={"steps": 6, "burn_in": 1, "points": 5, "samples": 64})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lwd.probing.surface.CALIBRATION", 4)
        surface_probe(with_changes(config, probe={"steps": 3}), data, out / "run", cpu())
        _, table = surface_probe(config, data, out / "run", cpu())
    assert load_surfaces(out / "run")[1]["steps"] == 6
    return out / "run", data, table


def test_the_network_samples_under_any_schedule(probed, tmp_path):
    """Oracle: `lwd.sample` of the same network under that schedule; a model of one schedule refuses another."""
    run, data, _ = probed
    torch.manual_seed(0)
    PatchAutoencoder.small(channels=4, patch=2, width=32, depth=1).save(_made(tmp_path / "ae"))
    common = ["--decoder", str(tmp_path / "ae"), "--count", "4", "--solver", "euler", "--steps", "5"]
    free = ["sample", "--model", str(run), *common]
    assert main([*free, "--schedule", "offset:0.3", "--out", str(tmp_path / "a")]) == 0
    assert main([*free, "--out", str(tmp_path / "b")]) == 0
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    assert manifest["model"]["schedule"]["kind"] == "offset"
    assert (tmp_path / "a" / "samples.npz").read_bytes() != (tmp_path / "b" / "samples.npz").read_bytes()
    point = lwd.load(run / "checkpoints" / "00000006")
    assert point.any_schedule
    assert point.under(lwd.Offset(0.3)).schedule == lwd.Offset(0.3)
    bound = lwd.Checkpoint(point.velocity, lwd.Synchronous())
    with pytest.raises(lwd.InputError, match=says("schedule")):
        bound.under(lwd.Offset(0.3))
    assert bound.under(lwd.Offset(0.3), anyway=True).schedule == lwd.Offset(0.3)
    assert bound.under(lwd.Synchronous()) is bound
    pipe = lwd.LWDPipeline(lwd.Checkpoint(point.velocity, lwd.Offset(0.3)))
    with pytest.raises(lwd.InputError, match=says("guide")):
        pipe.guided(bound, 1.5, None)
    assert pipe.guided(point, 1.5, None).guide is point.velocity  # a surface probe guides under every schedule
    assert data.layout.names == bound.layout.names


def test_a_second_path_leaves_nothing_of_the_first(probed, tmp_path, capsys, monkeypatch):
    """Oracle: files only of rules that chose something; an option without effect and a wrong place are refused."""
    run, _, _ = probed
    monkeypatch.setattr("lwd.surfaces.lambda_path.GlobalOptimum", coarse_optimum)
    path = ["schedule", "path", str(run), "--lambdas", "0.3", "--out", str(tmp_path)]
    assert main([*path, "--steps", "8"]) == 0
    assert (tmp_path / "chosen.json").exists()
    assert main(path) == 0
    assert not (tmp_path / "chosen.json").exists()
    assert json.loads((tmp_path / "path.json").read_text())["chosen"] is None
    capsys.readouterr()
    assert main([*path, "--order", "1"]) == 2
    assert says("--order", "--steps").search(capsys.readouterr().err)
    assert main(["schedule", "path", str(tmp_path / "nowhere"), "--out", str(tmp_path)]) == 2
    assert says("nowhere").search(capsys.readouterr().err)


def _made(path):
    path.mkdir()
    return path


def test_training_begins_with_the_probes_weights(probed, tmp_path):
    """Oracle: the first checkpoint of a run with init_from holds the probe's averaged weights; a misfit is refused."""
    run, data, _ = probed
    config = settings(run={"steps": 1, "save_every": 1})
    train(config, data, tmp_path / "run", cpu(), init_from=run)
    before = lwd.load(run / "checkpoints" / "00000006").velocity.state_dict()
    first = lwd.load(tmp_path / "run" / "checkpoints" / "00000000").velocity.state_dict()
    assert all(torch.equal(first[name], before[name]) for name in before)
    with pytest.raises(lwd.InputError, match=says(run)):
        train(settings(network={"width": 64}), data, tmp_path / "other", cpu(), init_from=run)
    with pytest.raises(lwd.InputError, match=says(tmp_path / "nowhere")):
        load_into(MatrixNet(2), tmp_path / "nowhere")


def test_the_commands(probed, tmp_path, capsys, monkeypatch):
    """Oracle: files that load; the fitted schedule's lambda and verdict in its provenance; one line for bad input."""
    run, _, table = probed
    monkeypatch.chdir(tmp_path)
    assert main(["surfaces", "show", str(run), "offset:0.3", "--out", "s.png"]) == 0
    shown = capsys.readouterr().out
    assert "method:" in shown
    assert f"{float(table.losses[:, 0].max()):.4f}" in shown
    assert main(["schedule", "fit", str(run), "--kinetic", "0.3", "--family", "bernstein:6", "--out", "fit.json"]) == 0
    fitted = lwd.load_schedule("fit.json")
    assert isinstance(fitted, lwd.Bernstein)
    assert json.loads((tmp_path / "fit.json").read_text())["provenance"]["lambda"] == 0.3
    assert main(["schedule", "fit", str(run), "--kinetic", "0.3", "--family", "optimum", "--out", "best.json"]) == 0
    assert isinstance(lwd.load_schedule("best.json"), lwd.PiecewiseLinear)
    capsys.readouterr()
    path = ["schedule", "path", str(run), "--lambdas", "0.5", "--steps", "8", "--out", "path"]
    assert main(path) == 0
    text = capsys.readouterr().out
    result = json.loads((tmp_path / "path" / "path.json").read_text())
    assert 0.5 in [row["lambda"] for row in result["points"]]
    assert says(8, "steps", "lambda").search(text) or result["chosen"] is None
    assert (tmp_path / "path" / "path.png").stat().st_size > 10_000
    for arguments, facts in (
        (["surfaces", "show", "nowhere"], "nowhere"),
        (
            ["schedule", "fit", str(run), "--kinetic", "0.1", "--family", "spline", "--out", "x.json"],
            ("spline", "polynomial", "bernstein"),
        ),
        (["schedule", "fit", str(run), "--kinetic", "-1", "--out", "x.json"], "kinetic"),
        (
            ["schedule", "fit", str(run), "--kinetic", "1", "--weights", "semantic", "--out", "x"],
            ("--weights", "semantic"),
        ),
        (["schedule", "path", str(run), "--lambdas", "a", "--out", "x"], ("--lambdas", "a")),
        (["probe", "latents", "--method", "surface", "--kinetic", "0.1", "--out", "x"], ("--kinetic", "surface")),
        (["probe", "latents", "--points", "9", "--out", "x"], ("--points", "surface")),
    ):
        assert main(arguments) == 2
        error = capsys.readouterr().err.strip()
        assert len(error.splitlines()) == 1
        assert says(facts).search(error), error
    assert surface_settings({"weights": {"semantic": 2}, "reduction": "groups"}) == ({"semantic": 2.0}, "groups")
    assert parse_weights("semantic=2,texture=1", ("texture", "semantic")) == {"semantic": 2.0, "texture": 1.0}
