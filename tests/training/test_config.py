"""Configuration: defaults, presets with bases, changes from the command line, and what is said about mistakes."""

import pytest

from lwd.errors import InputError
from lwd.training.config import config_from_dict, load_config, preset_names, weak_partner, with_changes
from messages import says


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_whole_and_survives_a_round_trip(name):
    """Oracle: JSON form and back; each preset says what it is and what it should reach."""
    config = load_config(name)
    assert config_from_dict(config.to_dict()) == config
    assert config.about
    assert config.expected
    assert config.name == name


def test_the_papers_model_has_the_papers_numbers():
    """Oracle: the paper's two tables of hyperparameters, and its unguided table."""
    config = load_config("lwd-xl")
    assert (config.network.size, config.network.tap) == ("XL/1", 2)
    assert config.objective.weights == {"texture": 1.0, "semantic": 2.0}
    assert (config.objective.cosine, config.objective.align, config.objective.reduction) == (1.0, 1.0, "channels")
    o = config.optimizer
    assert (o.lr, o.beta1, o.beta2, o.weight_decay, o.warmup, o.clip, o.ema) == (1e-4, 0.9, 0.999, 0.0, 0, 0.0, 0.9999)
    assert (config.run.batch, config.run.tau, o.decay) == (256, "uniform", "constant")
    p = config.probe
    assert (p.steps, p.kinetic, p.rho_lr, p.burn_in, p.degree) == (10_000, 0.04, 0.01, 5000, 4)
    assert config.expected["unguided FID by steps"]["400000"] == 2.87


def test_a_base_is_inherited_and_changes_win():
    sfd = load_config("sfd-xl", ["run.batch=64", "optimizer.lr=3e-4"])
    assert (sfd.schedule, sfd.objective.weight_gradient, sfd.network.size) == ("offset:0.3", "none", "XL/1")
    assert (sfd.run.batch, sfd.optimizer.lr) == (64, 3e-4)
    weak = load_config(weak_partner("lwd-xl"))
    assert (weak.network.size, weak.network.tap, weak.run.steps) == ("B/1", 2, 70_000)
    assert with_changes(sfd, run={"steps": 3}).run.steps == 3


@pytest.mark.parametrize("name", ["lwd-xl", "sfd-xl", "sync-xl", "lwd-xxl", "cifar-small", "fashion-small"])
def test_a_weak_partner_shares_everything_but_size_and_length(name):
    strong, weak = load_config(name), load_config(weak_partner(name))
    assert (strong.objective, strong.optimizer, strong.schedule) == (weak.objective, weak.optimizer, weak.schedule)
    assert weak.run.steps < strong.run.steps
    assert weak.network != strong.network


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ("run.bach=3", ("run.bach", "batch")),
        ("runs.batch=3", ("runs", "run")),
        ("run.batch", "'run.batch'"),
        ("run.batch=many", ("run.batch", "many")),
        ("run.batch=1.5", ("run.batch", 1.5)),
        ("run.batch=0", ("run.batch", 0)),
        ("run.seed=-1", ("run.seed", -1)),
        ("run.seed=99999999999999999999", ("run.seed", "99999999999999999999")),
        ("optimizer.beta1=2", ("optimizer.beta1", 2)),
        ("optimizer.lr=fast", ("optimizer.lr", "fast")),
        ("optimizer.lr=.nan", ("optimizer.lr", "nan")),
        ("optimizer.ema=1", ("optimizer.ema", 1)),
        ("run.tau=cosine", ("run.tau", "cosine", "uniform", "logit-normal")),
        ("run.flip=3", ("run.flip", 3)),
        ("objective.weights=3", ("objective.weights", 3)),
        ("objective.align=1", ("objective.align", "network.tap")),
        ("run.accumulate=3", ("run.accumulate", 3)),
        ("run.batch={", ("run.batch", "YAML")),
        ("name.x=3", "name"),
    ],
)
def test_mistakes_are_named(change, facts):
    with pytest.raises(InputError, match=says(facts)):
        load_config("", [change])


def test_presets_from_files(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("base: cifar-small\nrun: {batch: 7}\n")
    assert load_config(str(mine)).run.batch == 7
    assert load_config(str(mine)).network.patch == 2
    mine.write_text(f"base: {mine}\n")
    with pytest.raises(InputError, match=says("mine.yaml")):
        load_config(str(mine))
    mine.write_text("- a\n")
    with pytest.raises(InputError, match=says("mine.yaml")):
        load_config(str(mine))
    with pytest.raises(InputError, match=says("lwd-xk", "lwd-xl")):
        load_config("lwd-xk")
    with pytest.raises(InputError, match=says("mine", "lwd-xl")):
        weak_partner("mine")
