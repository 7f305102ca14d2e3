"""Fits: they learn, they report on images they never saw, and an interruption changes nothing."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

import lwd
from lwd.cli import main
from lwd.data.sources import ArraySource
from lwd.fit import FitSettings, fit_pca, fit_semvae, fit_texture, images, split
from lwd.representations.encoders import CallableEncoder
from lwd.representations.pca import load_pca
from lwd.representations.semvae import load_semvae
from lwd.representations.texture import psnr

QUICK = FitSettings(channels=4, steps=60, batch=16, held_out=20)


def waves(count=120, size=16):
    rng = np.random.default_rng(0)
    phase, rate = rng.random((2, count, 1, 1, 3))
    grid = np.arange(size) / size
    wave = np.sin(6 * (grid[:, None, None] * rate + grid[None, :, None] * (1 - rate) + phase))
    return ArraySource("waves", ("a", "b"), (127.5 * (wave + 1)).astype(np.uint8), np.arange(count) % 2)


def averages(pictures):
    small = torch.nn.functional.avg_pool2d(pictures, 4)
    return torch.cat([small, small.square(), small.roll(1, 2), small.roll(1, 3) * small], 1)


ENCODER = CallableEncoder(averages, "averages")


def test_held_out_images_are_never_trained_on():
    """Oracle: a partition, the same for the same seed, mixed over the classes."""
    train, held_out = split(waves(), QUICK)
    assert sorted([*train, *held_out]) == list(range(120))
    assert len(held_out) == 20
    assert 3 < waves().labels[held_out].sum() < 17
    with pytest.raises(lwd.InputError, match="too many"):
        split(waves(15), QUICK)


def test_texture_fit_reconstructs_and_reports_what_it_reaches(tmp_path):
    """Oracle: the PSNR recomputed from the saved directory, against the best constant image."""
    source = waves()
    report = fit_texture(source, tmp_path / "ae", FitSettings(channels=4, steps=200, batch=32, held_out=20), width=64)
    model = lwd.TextureAutoencoder.load(tmp_path / "ae")
    held_out = images(source, split(source, QUICK)[1], 0)
    with torch.no_grad():
        again = psnr(model.decode(model.encode(held_out)), held_out).mean().item()
    assert_close(report["psnr"], again, atol=1e-3, rtol=0)
    constant = psnr(held_out.mean((2, 3), keepdim=True).expand_as(held_out), held_out).mean().item()
    assert again > constant + 6
    assert [p.name for p in tmp_path.iterdir()] == ["ae"]


def test_an_interrupted_fit_goes_on_where_it_was(tmp_path):
    """Oracle: the bytes of an undisturbed fit; state is kept every 200 steps, the interruption comes at 250."""
    settings = FitSettings(channels=4, steps=300, batch=4, held_out=20)

    def stop(step, _):
        if step == 250:
            raise KeyboardInterrupt

    fit_texture(waves(), tmp_path / "calm", settings, width=32, depth=1)
    with pytest.raises(KeyboardInterrupt):
        fit_texture(waves(), tmp_path / "rough", settings, width=32, depth=1, progress=stop)
    seen = []
    fit_texture(waves(), tmp_path / "rough", settings, width=32, depth=1, progress=lambda step, _: seen.append(step))
    assert seen == list(range(201, 301))
    name = "model.safetensors"
    assert (tmp_path / "rough" / name).read_bytes() == (tmp_path / "calm" / name).read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["calm", "rough"]


def test_state_of_another_fit_is_not_taken_up(tmp_path):
    def stop(step, _):
        if step == 201:
            raise KeyboardInterrupt

    settings = FitSettings(channels=4, steps=210, batch=4, held_out=20)
    with pytest.raises(KeyboardInterrupt):
        fit_texture(waves(), tmp_path / "x", settings, width=32, depth=1, progress=stop)
    seen = []
    other = FitSettings(channels=4, steps=210, batch=4, held_out=20, seed=1)
    fit_texture(waves(), tmp_path / "x", other, width=32, depth=1, progress=lambda step, _: seen.append(step))
    assert seen[0] == 1


def test_pca_fit_is_the_pca_of_the_training_features(tmp_path):
    """Oracle: torch.linalg.svd of all training features at once."""
    source = waves()
    report = fit_pca(source, ENCODER, (4, 4), tmp_path / "pca", QUICK)
    pca = load_pca(tmp_path / "pca")
    features = averages(images(source, split(source, QUICK)[0], 0))
    rows = features.transpose(0, 1).flatten(1).T.double()
    _, s, v = torch.linalg.svd(rows - rows.mean(0), full_matrices=False)
    assert_close((pca.components @ v[:4].T).abs(), torch.eye(4).double(), atol=1e-4, rtol=0)
    assert_close(report["explained"], float((s[:4] ** 2).sum() / (s**2).sum()), atol=1e-6, rtol=0)
    assert 0.5 < report["explained_held_out"] <= 1


def test_semvae_fit_learns(tmp_path):
    """Oracle: held-out explained variance after many steps above that after one; numbers from the saved directory."""
    source = waves()
    short = fit_semvae(
        source, ENCODER, (4, 4), tmp_path / "a", FitSettings(channels=4, steps=1, batch=16, held_out=20), heads=1
    )
    settings = FitSettings(channels=4, steps=200, batch=32, held_out=20, lr=5e-3)
    long = fit_semvae(source, ENCODER, (4, 4), tmp_path / "b", settings, heads=1)
    assert long["explained_held_out"] > max(0.5, short["explained_held_out"] + 0.2)
    assert long["cosine_held_out"] > short["cosine_held_out"] + 0.1
    assert load_semvae(tmp_path / "b").channels == 4


def test_the_commands(tmp_path, capsys):
    for i, picture in enumerate(waves(40).images):
        path = tmp_path / "images" / f"class{i % 2}" / f"{i:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)
    root, common = str(tmp_path / "images"), ["--channels", "3", "--batch", "8", "--held-out", "8", "--steps", "5"]
    assert main(["fit", "texture", root, *common, "--width", "32", "--out", str(tmp_path / "ae")]) == 0
    assert "dB on 8 held-out images" in capsys.readouterr().out
    assert main(["fit", "texture", root, *common, "--steps", "9999999", "--out", str(tmp_path / "ae")]) == 2
    assert "--force" in capsys.readouterr().err  # found before the first step
    for extra, message in (
        (["--steps", "0"], "steps must be at least 1"),
        (["--held-out", "90"], "too many"),
        (["--patch", "5"], "patches of 5"),
    ):
        assert main(["fit", "texture", root, *common, *extra, "--out", str(tmp_path / "no")]) == 2
        assert message in capsys.readouterr().err
    assert main(["fit", "semantic", root, *common, "--encoder", "nothing", "--grid", "4", "--out", "x"]) == 2
    assert not (tmp_path / "no").exists()
