"""The catalog against SFD's own tables, and against itself."""

import pytest
import torch

import lwd
from lwd.checkpoints.published import PUBLISHED, RECIPES, PublishedNetwork, find_published, find_recipe
from lwd.models.lightningdit import LightningDiT, LightningDiTConfig, parameter_count
from lwd.schedule.io import parse_schedule
from lwd.solver import METHODS
from messages import says

GUIDANCE = {  # model, epochs: steps of the weak model, scale (README of yuemingPAN/SFD, "Inference 50K samples")
    ("xl", 80): ("0070000", 1.6),
    ("xl", 800): ("0070000", 1.5),
    ("xxl", 80): ("0060000", 1.5),
    ("xxl", 800): ("0120000", 1.5),
}
FID = {  # unguided and guided; NPU, GPU (same page, "Evaluation")
    ("xl", 80): ((3.43, 3.50), (1.30, 1.29)),
    ("xl", 800): ((2.54, 2.66), (1.06, 1.03)),
    ("xxl", 80): ((2.84, 2.92), (1.19, 1.20)),
    ("xxl", 800): ((2.38, 2.36), (1.04, 1.04)),
}
STEPS = {80: "0400000", 800: "4000000"}
NETWORKS = {name: one for name, one in PUBLISHED.items() if isinstance(one, PublishedNetwork)}


@pytest.mark.parametrize(("model", "epochs"), GUIDANCE)
def test_every_row_of_sfds_tables_is_a_recipe(model, epochs):
    """Oracle: SFD's tables of weak models, scales and FID; its configs' solver and tolerances."""
    for kind, fid in zip(("unguided", "autoguidance"), FID[model, epochs], strict=True):
        recipe = find_recipe(f"sfd-{model}-{epochs}-{kind}")
        assert tuple(recipe.fid.values()) == fid
        assert (recipe.solver, recipe.atol, recipe.rtol, recipe.count) == ("dopri5", 1e-6, 1e-3, 50_000)
        weights = NETWORKS[recipe.model].weights
        assert weights.folder == {"xl": "model_weights/sfd_xl", "xxl": "model_weights/sfd_1p0"}[model]
        assert weights.path == f"checkpoints/{STEPS[epochs]}.pt"
        if kind == "unguided":
            assert (recipe.guide, recipe.scale) == ("", None)
            continue
        weak = NETWORKS[recipe.guide]
        step, scale = GUIDANCE[model, epochs]
        assert (weak.weights.path, recipe.scale) == (f"checkpoints/{step}.pt", scale)
        assert weak.weights.folder == "model_weights/sfd_autoguidance_b"


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_what_they_say(name):
    """Oracle: parameter counts in float32 against the sizes given; groups against schedule and autoencoder."""
    entry = NETWORKS[name]
    layout = lwd.Layout.of(**entry.groups)
    with torch.device("meta"):
        count = parameter_count(LightningDiT(LightningDiTConfig.of(entry.size, layout, tap=2)))
    assert entry.gigabytes == pytest.approx(count * 4 / 1e9, abs=0.01)
    assert parse_schedule(entry.schedule, layout.names) == lwd.Offset(0.3)
    assert entry.statistics.keys() == entry.groups.keys()
    assert PUBLISHED[entry.autoencoder].channels == entry.groups["texture"]
    assert {file.repository for file in entry.files().values()} == {entry.weights.repository}


def test_all_networks_together_have_the_size_of_the_repository():
    """Oracle: the hub's page of SFD-Project/SFD: 15.4 GB."""
    assert sum(entry.gigabytes for entry in NETWORKS.values()) == pytest.approx(15.4, abs=0.05)


def test_recipes_name_models_and_solvers_that_exist():
    for recipe in RECIPES.values():
        assert recipe.model in NETWORKS
        assert recipe.guide == "" or recipe.guide in NETWORKS
        assert recipe.solver in METHODS


def test_what_is_given_wins_and_another_solver_drops_the_tolerances():
    """Oracle: by hand."""
    recipe = find_recipe("sfd-xl-800-autoguidance")
    assert recipe.fill({}) == {
        "model": "sfd-xl", "guide": "sfd-xl-weak", "scale": 1.5, "solver": "dopri5",
        "atol": 1e-6, "rtol": 1e-3, "count": 50_000,
    }  # fmt: skip
    changed = recipe.fill({"solver": "heun", "steps": 25, "model": None, "count": 8})
    assert changed == {
        "model": "sfd-xl", "guide": "sfd-xl-weak", "scale": 1.5, "solver": "heun", "steps": 25, "count": 8,
    }  # fmt: skip


def test_unknown_names_are_told_the_known_ones():
    with pytest.raises(lwd.InputError, match=says("sfd-xlx", "sfd-xl")):
        find_published("sfd-xlx")
    with pytest.raises(lwd.InputError, match=says("sfd-xl-800", "sfd-xl-800-unguided")):
        find_recipe("sfd-xl-800")
