"""What survives of a run: kept models without the optimizer's state, the model's own sampling defaults."""

import json

import pytest

import lwd
from lwd.checkpoints.formats import SamplingDefaults
from lwd.probing.starts import probe_starts
from lwd.sampling.generator import with_defaults
from lwd.sampling.settings import SampleSettings
from lwd.surfaces.verdict import Verdict
from lwd.training.train import train
from messages import says
from train_data import cpu, images, settings

DATA = images()


def test_models_of_named_steps_are_kept_without_the_optimizer(tmp_path):
    """Oracle: the files themselves; a run of 9 steps keeps steps 3 and 7 for good, and full checkpoints of the last."""
    config = settings(run={"steps": 9, "save_every": 2, "keep_last": 1, "keep_at": [3, 7]})
    config = config.changed(sampling={"solver": "heun", "steps": 4})
    train(config, DATA, tmp_path, cpu())
    assert sorted(p.name for p in (tmp_path / "kept").iterdir()) == ["00000003", "00000007"]
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["00000009", "latest"]
    for kept in (tmp_path / "kept").iterdir():
        assert not {"state.json", "training.safetensors"} & {p.name for p in kept.iterdir()}
        assert lwd.load(kept).sampling.solver == "heun"
    places = (tmp_path / "kept/00000007", tmp_path / "checkpoints/00000009")
    sizes = [sum(file.stat().st_size for file in place.iterdir()) for place in places]
    assert sizes[0] < 0.3 * sizes[1]


def test_settings_that_are_not_given_come_from_the_model():
    """Oracle: by hand."""
    own = SamplingDefaults(solver="heun", steps=25, scale=1.5, count=500)
    assert (
        with_defaults(SampleSettings(), own, guided=False).to_dict()
        == SampleSettings(solver="heun", steps=25, count=500).to_dict()
    )
    given = with_defaults(SampleSettings(solver="euler", steps=3), own, guided=True)
    assert (given.solver, given.steps, given.scale, given.count) == ("euler", 3, 1.5, 500)
    assert with_defaults(SampleSettings(scale=2.0), own, guided=True).scale == 2.0
    assert with_defaults(SampleSettings(), None, guided=True) == SampleSettings()


def test_an_unlearned_family_is_not_trained_under(tmp_path):
    """Oracle: the word for a family is refused, a file with a curve is not."""
    with pytest.raises(lwd.InputError, match=says("polynomial")):
        train(settings(schedule="polynomial"), DATA, tmp_path / "a", cpu())
    lwd.save_schedule(lwd.Polynomial.from_shares([[0.5, 0.5]]), tmp_path / "s.json")
    assert train(settings(schedule=str(tmp_path / "s.json"), run={"steps": 1}), DATA, tmp_path / "b", cpu()).finished


def test_several_starts_keep_the_lowest(tmp_path):
    """Oracle: starts.json and the folders of the single probes."""
    config = settings(probe={"steps": 3, "burn_in": 1, "starts": [0.0, 0.9]})
    found, values = probe_starts(config, DATA, tmp_path, cpu())
    best = min(values, key=values.get)
    assert set(values) == {0.0, 0.9}
    assert found.schedule == lwd.load_schedule(tmp_path / f"start-{best:g}" / "schedule.json")
    assert found.schedule == lwd.load_schedule(tmp_path / "schedule.json")
    assert json.loads((tmp_path / "starts.json").read_text())["best"] == best
    again, same = probe_starts(config, DATA, tmp_path, cpu())
    assert same == values
    assert again.schedule == found.schedule


def test_a_probe_that_went_nowhere_says_so():
    """Oracle: by hand: the distance from the start decides, not the distance from the identity."""
    stuck = Verdict("converged", 0.4, 0.001, 0.0, travelled=0.004)
    assert says(0.01, "starts").search(str(stuck))
    moved = Verdict("converged", 0.4, 0.001, 0.2, travelled=0.2)
    assert "starts" not in str(moved)
