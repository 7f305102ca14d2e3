"""`lwd bench sampler`: orders of convergence, the front, the recommendation, and the command on a small model."""

import json

import pytest
import torch

import lwd
from lwd.cli import main
from lwd.evaluation import quality as room
from lwd.sampling.benchmark import Trial, front, recommend, sampler_errors, trial_settings
from lwd.sampling.flow import Flow
from messages import says
from pipelines import three_classes as pipeline
from strategies import small_mixture

LAYOUT = lwd.Layout.of(texture=2, semantic=1)


def flow(schedule):
    return Flow(small_mixture(), schedule, LAYOUT, (1, 1), (0,), 64, dtype=torch.float64)


def test_errors_fall_with_the_order_of_each_solver(monkeypatch):
    """Oracle: the slope of log error over log evaluations between 48 and 96 is minus the order; costs are as asked."""
    monkeypatch.setattr("lwd.sampling.benchmark.RTOLS", ())
    trials = sampler_errors(flow(lwd.Polynomial([[0.0, -1, 1, 0, -1]])), (48, 96), optimise=())
    for solver, order in (("euler", 1), ("midpoint", 2), ("heun", 2), ("ab2", 2), ("ab3", 3), ("rk4", 4)):
        few, many = (t for t in trials if t.solver == solver and t.placement == "tau")
        assert (few.nfe, many.nfe) == (48, 96)
        slope = torch.log2(torch.tensor(few.error / many.error))
        assert slope == pytest.approx(order, abs=0.6), solver
    placements = {t.placement for t in trials if t.solver == "heun"}
    assert placements == {"tau", "texture"}  # semantic is tau itself


def test_kinks_take_steps_and_leave_room_for_them():
    """Oracle: under Offset(0.3) there are three pieces: no trial has fewer steps, ab2 begins three times."""
    found = trial_settings(flow(lwd.Offset(0.3)), (4, 8), ())
    assert min(steps for *_, steps in found) >= 3
    assert ("ab2", "tau", 5) in found
    trials = sampler_errors(flow(lwd.Offset(0.3)), (8,), optimise=("heun",))
    assert {t.nfe for t in trials if t.steps} == {8}
    best = {t.placement: t.error for t in trials if t.solver == "heun"}
    assert best["optimised"] <= min(best.values()) * 1.02


def test_front_and_recommendation():
    """Oracle: by hand."""
    rows = [("a", 8, 0.3), ("b", 8, 0.2), ("c", 12, 0.25), ("d", 16, 0.01), ("e", 30, 0.001)]
    trials = [Trial(name, "tau", 4, None, nfe, error) for name, nfe, error in rows]
    assert [t.solver for t in front(trials)] == ["b", "d", "e"]
    assert recommend(trials, 0.02).solver == "d"
    assert recommend(trials, 1e-6).solver == "e"
    assert Trial("heun", "texture", 6, None, 12, 0.1).options == "--solver heun --steps 6 --placement texture"
    assert Trial("dopri5", "", None, 0.01, 12, 0.1).options == "--solver dopri5 --rtol 0.01"
    with pytest.raises(lwd.InputError, match=says("budgets")):
        recommend([], 0.1)


class Means:
    identity = "means"

    def __call__(self, images):
        return {"pool": images.float().mean((1, 2)) / 64}


@pytest.mark.slow  # quick: test_recommended.py::test_bench_stores_what_it_recommends
def test_the_command(tmp_path, capsys, monkeypatch):
    """Oracle: the recommended options draw samples at the cost that was promised; quality is drawn for the front."""
    monkeypatch.setenv("LWD_CACHE", str(tmp_path / "cache"))
    # A random network takes thousands of evaluations to 1e-6; test_placement.py tests the search itself.
    monkeypatch.setattr(Flow, "truth", lambda flow: flow.solve(rtol=1e-4, atol=1e-6, adaptive="sample").z)
    monkeypatch.setattr("lwd.sampling.placement.Calibration.optimised", lambda *arguments: arguments[-1][0])
    monkeypatch.setattr("lwd.sampling.benchmark.RTOLS", (1e-1,))
    monkeypatch.setattr(room, "networks_for", lambda *_: ([Means()], ""))
    pipeline().save_pretrained(tmp_path / "model")
    reference = tmp_path / "reference"
    reference.mkdir()
    for i, image in enumerate(pipeline()([0] * 12, solver={"method": "heun", "steps": 8}).images):
        image.save(reference / f"{i}.png")
    arguments = ["bench", "sampler", str(tmp_path / "model"), "--out", str(tmp_path / "out"), "--budgets", "6"]
    more = ["--tolerance", "0.3", "--count", "2", "--samples", "10", "--reference", str(reference)]
    assert main([*arguments, *more]) == 0
    shown = capsys.readouterr().out
    result = json.loads((tmp_path / "out" / "sampler.json").read_text())
    assert result["recommended"] in shown
    trials = [Trial(**row) for row in result["trials"]]
    assert [row[0] for row in result["quality"]] == [t.nfe for t in front(trials)]
    assert all(value >= 0 and error >= 0 for _, value, error in result["quality"])
    assert (tmp_path / "out" / "sampler.png").stat().st_size > 10_000
    draw = ["sample", "--model", str(tmp_path / "model"), "--count", "8", "--out", str(tmp_path / "s")]
    assert main([*draw, *result["recommended"].split()]) == 0
    cost = json.loads((tmp_path / "s" / "manifest.json").read_text())["nfe"]["mean"]
    assert cost == pytest.approx(recommend(trials, 0.3).nfe, rel=0.01)
    assert main([*arguments[:-1], "8,x"]) == 2
    assert says("--budgets", "8,x").search(capsys.readouterr().err)
    assert main(["bench", "sampler", str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert says("nowhere").search(said[0])
