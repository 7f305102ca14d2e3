"""`lwd sample`: model directories, trajectories, bad input."""

import pytest
import torch

import lwd
from lwd.cli import main
from lwd.report.trajectory import states_along
from messages import says
from pipelines import LAYOUT
from pipelines import three_classes as pipeline
from sampling.folders import picture


def test_trajectory_states_are_the_samplers_own(model, tmp_path):
    """Oracle: the noise at 0, the sample at 1, and a solve that stops in between."""
    pipe = pipeline()
    c = pipe.checkpoint
    states = states_along(pipe, c.velocity, [3, 4], [0, 1], (0, 0.5, 1))
    assert torch.equal(states[0], lwd.seeded_noise([3, 4], (6, 4, 4)))
    tight = {"rtol": 1e-4, "atol": 1e-6}
    field = torch.no_grad()(lwd.flow_field(c.velocity, c.schedule, LAYOUT, torch.tensor([0, 1])))
    half = lwd.solve(lambda z, tau: field(z, tau / 2) / 2, states[0], breakpoints=(0.3 / 1.3 * 2,), **tight).z
    assert (states[0.5] - half).abs().max() < 5e-3
    full = lwd.sample(c.velocity, c.schedule, LAYOUT, seeds=[3, 4], labels=[0, 1], size=(4, 4), **tight).z
    assert (states[1] - full).abs().max() < 5e-3
    arguments = ["sample", "--model", str(model), "--count", "4", "--out", str(tmp_path / "s"), "--trajectory"]
    assert main(arguments) == 0
    assert picture(tmp_path / "s" / "trajectory.png").shape[1] > 1000
    assert main([*arguments[:-3], "--out", str(tmp_path / "grid.png"), "--label", "0-1"]) == 0
    assert picture(tmp_path / "grid.png").shape == (16 * 10, 16 * 10, 3)  # 8 px, enlarged to look at


@pytest.mark.parametrize(
    ("extra", "facts"),
    [
        (["--model", "nowhere"], ("nowhere", "fashion", "fashion-weak")),
        (["--label", "4"], ("0..2", 3, 4)),
        (["--label", "7"], ("0..2", 7)),
        (["--label", "x"], "'x'"),
        (["--scale", "1.5"], ("scale", "guide")),
        (["--interval", "0:0.5"], ("interval", "guide")),
        (["--guide", "null"], ("guide", "scale")),
        (["--guide", "null", "--scale", "depth=2"], ("scale", "depth", "texture", "semantic")),
        (["--guide", "null", "--scale", "much"], "much"),
        (["--guide", "null", "--scale", "2", "--interval", "0.5"], "'0.5'"),
        (["--guide", "nowhere", "--scale", "2"], "nowhere"),
        (["--solver", "huen", "--steps", "4"], ("huen", "heun")),
        (["--solver", "heun"], ("heun", "steps", "--steps")),
        (["--solver", "heun", "--steps", "0"], ("heun", 0, "--steps")),
        (["--steps", "0"], ("steps", "dopri5")),
        (["--rtol", "nan"], ("rtol", "nan")),
        (["--label", "0-999999999"], "0-999999999"),
        (["--guide", "null", "--scale", "2", "--interval", "0:1:2"], "0:1:2"),
        (["--steps", "4"], ("steps", "dopri5")),
        (["--solver", "heun", "--steps", "4", "--rtol", "1e-3"], ("rtol", "heun")),
        (["--placement", "texture"], ("placement", "dopri5")),
        (["--solver", "heun", "--steps", "4", "--placement", "txture"], ("txture", "texture")),
        (["--solver", "heun", "--steps", "4", "--placement", "shift"], ("shift", "shift:0.3")),
        (["--solver", "heun", "--steps", "4", "--placement", "shift:-1"], ("shift:-1", "--placement")),
        (["--solver", "euler-maruyama"], ("euler-maruyama", "steps", "--steps")),
        (["--solver", "euler-maruyama", "--steps", "8", "--diffusion", "sgima"], ("sgima", "sigma", "--diffusion")),
        (["--solver", "sde-heun", "--steps", "8", "--diffusion", "depth=sigma"], ("depth", "--diffusion")),
        (["--solver", "sde-heun", "--steps", "8", "--last-step", "mean:2"], ("mean:2", "--last-step")),
        (["--solver", "sde-heun", "--steps", "8", "--rtol", "1e-3"], ("rtol", "sde-heun", "dopri5")),
        (["--solver", "sde-heun", "--steps", "8", "--placement", "optimised"], ("sde-heun", "heun", "--placement")),
        (["--solver", "sde-heun", "--steps", "8", "--trajectory"], ("sde-heun", "--trajectory")),
        (["--solver", "heun", "--steps", "4", "--diffusion", "sigma"], ("diffusion", "heun", "sde-heun")),
        (["--last-step", "mean"], ("dopri5", "euler-maruyama", "--last-step")),
        (["--count", "0"], ("count", 0)),
        (["--format", "jpg"], ("jpg", "png", "npz")),
        (["--seed", "-1"], ("seed", -1)),
        (["--decoder", "nowhere"], "nowhere"),
        (["--other-schedule"], ("other_schedule", "schedule")),
        (["--schedule", "synchronous"], "schedule"),
        (["--schedule", "nowhere.json"], "nowhere.json"),
    ],
)
def test_bad_input_gets_one_line(model, tmp_path, capsys, extra, facts):
    code = main(["sample", "--model", str(model), "--count", "2", "--out", str(tmp_path / "out"), *extra])
    error = capsys.readouterr().err.strip()
    assert (code, len(error.splitlines())) == (2, 1), error
    assert says(facts).search(error), error
    assert not (tmp_path / "out" / "manifest.json").exists()
