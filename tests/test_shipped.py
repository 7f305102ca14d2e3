"""The model that ships with lwd: good pictures, offline, small."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import lwd
from lwd.assets import MODELS
from lwd.cli import main
from lwd.representations.judge import load_judge, seen_classes
from lwd.representations.texture import from_uint8
from lwd.sampling.pipeline import resolve
from lwd.schedule.learned import Learnable
from messages import says
from pipelines import with_statistics as pipeline

HEUN = {"method": "heun", "steps": 10}


def share_seen(pipe, **guidance):
    """Share of 100 samples in which the judge, trained on real images only, sees the class that was asked for."""
    labels = [i % 10 for i in range(100)]
    images = pipe(labels, seed=0, solver=HEUN, **guidance).images
    pixels = from_uint8(torch.from_numpy(np.stack([np.asarray(image) for image in images])))
    return float((seen_classes(load_judge(), pixels) == torch.tensor(labels)).double().mean())


@pytest.mark.slow
def test_the_pictures_show_what_was_asked_for():
    """Oracle: the judge, which is right about 86% of real test images and 10% of noise (measured here: 71% and 83%)."""
    pipe, weak = (lwd.LWDPipeline.from_pretrained(name) for name in ("fashion", "fashion-weak"))
    plain, guided = share_seen(pipe), share_seen(pipe, guide=weak, scale=1.5)
    assert plain > 0.6
    assert guided > plain + 0.05
    assert guided > 0.75


@pytest.mark.parametrize("name", ["fashion", "cifar"])
def test_it_is_small_and_says_where_it_comes_from(name):
    """Oracle: 10 MB with its weak partner; a learned schedule with its lambda; 16 bits stored, 32 computed."""
    folders = MODELS[name], MODELS[f"{name}-weak"]
    size = sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())
    assert size <= 10_000_000
    checkpoint = lwd.load(MODELS[name])
    assert isinstance(checkpoint.schedule, Learnable)
    assert checkpoint.provenance["schedule"]["lambda"] > 0
    assert next(checkpoint.velocity.parameters()).dtype == torch.float32
    assert 0.05 < float(checkpoint.schedule.times(0.5)[0]) < 0.45


def test_the_command_of_the_readme(tmp_path, monkeypatch, capsys):
    """Oracle: one picture of 64 shirts, in grey; no other file; nothing needs a network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    command = ["sample", "--model", "fashion", "--label", "3", "--solver", "heun", "--steps", "5"]
    assert main([*command, "--count", "16", "--out", "shirts.png"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["shirts.png"]
    picture = np.asarray(Image.open("shirts.png").convert("L"))
    assert picture.std() > 20
    assert main(["sample", "--model", "fashon", "--out", "x.png"]) == 2
    assert says("fashion", "fashion-weak").search(capsys.readouterr().err)


def test_a_model_of_the_same_name_goes_first(tmp_path, monkeypatch):
    """Oracle: a directory `fashion` with a model is that model; one with something else is not in the way."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fashion").mkdir()
    assert resolve("fashion") == MODELS["fashion"]
    (tmp_path / "fashion").rmdir()
    pipeline().save_pretrained("fashion")
    assert resolve("fashion").resolve() == tmp_path / "fashion"


def test_the_colour_model_draws_what_its_latents_look_like():
    """Oracle: the training latents have mean 0 and deviation 1 in every channel; its images are 32 px and in colour."""
    pipe = lwd.LWDPipeline.from_pretrained("cifar")
    drawn = pipe([i % 10 for i in range(60)], seed=0, solver={"method": "ab3", "steps": 12})
    z = drawn.solution.z
    assert float(z.mean((0, 2, 3)).abs().mean()) < 0.15
    assert 0.8 < float(z.std((0, 2, 3)).mean()) < 1.15
    pixels = np.stack([np.asarray(image) for image in drawn.images]).astype(float)
    assert pixels.shape == (60, 32, 32, 3)
    assert np.abs(pixels[..., 0] - pixels[..., 2]).mean() > 10
    assert 40 < pixels.std() < 80
    assert pipe.checkpoint.class_names[3] == "cat"


@pytest.mark.parametrize("name", list(MODELS))
def test_shipped_models_refuse_another_schedule(name):
    """Oracle: they were trained under one curve."""
    with pytest.raises(lwd.InputError, match=says("schedule")):
        lwd.load(MODELS[name]).under(lwd.Synchronous())


@pytest.mark.parametrize("name", ["fashion", "cifar"])
def test_recommended_solvers_ship_with_it(name):
    """Oracle: grids from 0 to 1; well below the 50 to 98 evaluations that torchdiffeq takes (sampler.md)."""
    found = lwd.load(MODELS[name]).recommended
    assert {(one.guide, one.scale) for one in found} == {("", None), ("weak", 1.5)}
    for one in found:
        assert one.grid[0] == 0
        assert one.grid[-1] == 1
        assert len(one.grid) == one.steps + 1
        assert one.nfe <= 92 / 4
        assert one.error <= one.tolerance


@pytest.mark.slow
def test_the_recommended_solver_is_as_accurate_on_other_samples():
    """Oracle: dopri5 at rtol 1e-6, on seeds that neither the search nor the choice has seen."""
    pipe, weak = (lwd.LWDPipeline.from_pretrained(name) for name in ("fashion", "fashion-weak"))
    labels, seed = [i % 10 for i in range(20)], 77_000
    for guidance in ({}, {"guide": weak, "scale": 1.5}):
        own = pipe(labels, seed, **guidance).solution
        truth = pipe(labels, seed, solver={"method": "dopri5", "rtol": 1e-6, "atol": 1e-8}, **guidance).solution
        error = float((own.z - truth.z).square().mean().sqrt() / truth.z.std())
        assert own.nfe <= 92 / 4
        assert error < 0.01


@pytest.mark.slow
def test_sampling_imports_neither_dynamo_nor_matplotlib(tmp_path):
    """Oracle: the modules of a fresh process; together they take longer than the samples."""
    command = ["sample", "--model", "fashion", "--guide", "fashion-weak", "--scale", "1.5", "--count", "8"]
    script = f"import sys; from lwd.cli import main; main({[*command, '--out', str(tmp_path / 'x.png')]}); "
    script += "print([name for name in ('torch._dynamo', 'matplotlib', 'sympy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
