"""Recommended solvers: stored with a model, used by default, only for the guidance they were measured with."""

import json

import numpy as np
import pytest

import lwd
from lwd.checkpoints.formats import Recommendation
from lwd.checkpoints.recommended import find_recommended, read_recommended, store_recommended
from lwd.cli import main
from lwd.io.files import model_digest
from lwd.sampling.benchmark import Trial, recommendation
from lwd.sampling.flow import Flow
from lwd.sampling.generator import open_generator
from lwd.sampling.placement import calibrate, place
from lwd.sampling.settings import SampleSettings
from messages import says
from pipelines import three_classes
from strategies import small_mixture

GRID = [0.0, 0.2, 0.5, 0.7, 1.0]
PLAIN = Recommendation(solver="ab3", steps=4, grid=GRID, nfe=7, error=0.01, tolerance=0.02)
GUIDED = PLAIN.changed(guide="null", scale=1.5, solver="heun")


@pytest.fixture
def model(tmp_path):
    three_classes().save_pretrained(tmp_path / "model")
    for one in (PLAIN.changed(solver="euler"), GUIDED, PLAIN):
        store_recommended(tmp_path / "model", one)
    return tmp_path / "model"


def test_a_recommendation_replaces_the_older_one_and_leaves_the_model_as_it_was(model, tmp_path):
    """Oracle: what was stored; the checksum of the model before."""
    assert read_recommended(model) == (GUIDED, PLAIN)
    digest = model_digest(model)
    (model / "sampling.json").rename(tmp_path / "aside.json")
    assert model_digest(model) == digest
    (tmp_path / "aside.json").rename(model / "sampling.json")
    lwd.LWDPipeline.from_pretrained(model).save_pretrained(tmp_path / "copy")
    assert read_recommended(tmp_path / "copy") == (GUIDED, PLAIN)


def test_it_is_used_where_nothing_else_was_asked_for(model):
    """Oracle: the solver's options, by hand."""
    own = open_generator(model, SampleSettings())
    assert own.solver() == {"method": "ab3", "grid": GRID}
    assert open_generator(model, SampleSettings(scale=1.5), "null").solver() == {"method": "heun", "grid": GRID}
    assert open_generator(model, SampleSettings(scale=2.0), "null").solver()["method"] == "dopri5"
    assert open_generator(model, SampleSettings(rtol=0.1)).solver()["method"] == "dopri5"
    assert open_generator(model, SampleSettings(solver="euler", steps=3)).solver() == {"method": "euler", "steps": 3}
    with pytest.raises(lwd.InputError, match=says("placement", 9)):
        open_generator(model, SampleSettings(solver="ab3", steps=9, placement="recommended")).solver()


def test_the_pipeline_uses_it_too(model):
    """Oracle: the same grid given by hand."""
    pipe = lwd.LWDPipeline.from_pretrained(model)
    own, given = (pipe([0, 1], solver=solver).images for solver in (None, {"method": "ab3", "grid": GRID}))
    assert all(np.array_equal(a, b) for a, b in zip(own, given, strict=True))
    assert pipe([0], guide="null", scale=1.5).solution.method == "heun"
    assert pipe([0], guide="null", scale=1.6, size=(4, 4)).solution.method == "dopri5"
    assert pipe.checkpoint.under(lwd.Synchronous(), anyway=True).recommended == ()


def test_guidance_is_compared_by_value():
    """Oracle: by hand."""
    one = PLAIN.changed(guide="weak", scale={"texture": 1.5}, interval=(0.2, 0.8))
    assert find_recommended([PLAIN, one], object(), {"texture": 1.5}, [0.2, 0.8]) is one
    assert find_recommended([PLAIN, one], object(), 1.5, (0.2, 0.8)) is None
    assert find_recommended([one], None, None, None) is None


def test_the_calibration_is_solved_once(monkeypatch):
    """Oracle: calls of the field: the second placement of a solver costs its search and nothing else."""
    monkeypatch.setattr("lwd.sampling.placement.CANDIDATES", 32)
    data, calls = small_mixture(), [0]

    def counted(z, times, label):
        calls[0] += 1
        return data(z, times, label)

    flow = Flow(counted, lwd.Synchronous(), data.layout, (1, 1))
    calibration, alone = calibrate(flow), place("optimised", 6, "ab3", flow)
    costs = []
    for _ in range(2):
        before = calls[0]
        assert place("optimised", 6, "ab3", flow, calibration=calibration) == alone
        costs.append(calls[0] - before)
    assert costs[1] <= costs[0] - 2 * 32 - 40


def test_bench_stores_what_it_recommends(model, tmp_path, capsys, monkeypatch):
    """Oracle: the manifest of samples drawn without options."""
    monkeypatch.setattr(Flow, "truth", lambda flow: flow.solve(rtol=1e-4, atol=1e-6, adaptive="sample").z)
    monkeypatch.setattr("lwd.sampling.placement.Calibration.optimised", lambda *arguments: arguments[-1][0])
    monkeypatch.setattr("lwd.sampling.benchmark.RTOLS", (1e-1, 1e-2))
    (model / "sampling.json").unlink()
    bench = ["bench", "sampler", str(model), "--out", str(tmp_path / "out"), "--budgets", "6", "--count", "2"]
    assert main([*bench, "--tolerance", "0.5", "--threads", "1"]) == 0
    assert str(model) in capsys.readouterr().out
    (stored,) = read_recommended(model)
    assert main(["sample", "--model", str(model), "--count", "2", "--out", str(tmp_path / "s"), "--threads", "1"]) == 0
    about = json.loads((tmp_path / "s" / "manifest.json").read_text())
    assert about["solver"]["method"] == stored.solver
    assert about["solver"].get("grid") == stored.grid
    assert about["nfe"]["mean"] == stored.nfe


def test_a_trial_becomes_a_record():
    """Oracle: its fields."""
    generator = open_generator("fashion", SampleSettings(scale=1.5), "null")
    found = recommendation(generator, 0.1, Trial("ab3", "optimised", 4, None, 7, 0.05, tuple(GRID)))
    assert (found.guide, found.scale, found.grid, found.nfe) == ("null", 1.5, GRID, 7)
