"""Fits: they learn, they report on images they never saw, and an interruption changes nothing."""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

import lwd
from lwd.cli import main
from lwd.images.sources import ArraySource
from lwd.representations.encoders import CallableEncoder, Origin
from lwd.representations.fit import _collect, fit_pca, fit_semvae, fit_texture, images, split
from lwd.representations.pca import load_pca
from lwd.representations.semvae import SemVAE, kl_divergence, load_semvae
from lwd.representations.settings import FitSettings, SemVAESettings, TextureSettings
from lwd.representations.texture import psnr
from messages import says

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
    with pytest.raises(lwd.InputError, match=says("waves", 15, 20)):
        split(waves(15), QUICK)


@pytest.mark.parametrize(("steps", "gain"), [(40, 0.5), pytest.param(200, 6, marks=pytest.mark.slow)])
def test_texture_fit_reconstructs_and_reports_what_it_reaches(tmp_path, steps, gain):
    """Oracle: the PSNR recomputed from the saved directory, against the best constant image."""
    source = waves()
    settings = TextureSettings(channels=4, steps=steps, batch=32, held_out=20, width=64)
    report = fit_texture(source, tmp_path / "ae", settings)
    model = lwd.TextureAutoencoder.load(tmp_path / "ae")
    held_out = images(source, split(source, QUICK)[1], 0)
    with torch.no_grad():
        again = psnr(model.decode(model.encode(held_out)), held_out).mean().item()
    assert_close(report["psnr"], again, atol=1e-3, rtol=0)
    constant = psnr(held_out.mean((2, 3), keepdim=True).expand_as(held_out), held_out).mean().item()
    assert again > constant + gain
    assert [p.name for p in tmp_path.iterdir()] == ["ae"]


LONG = {"channels": 4, "steps": 23, "batch": 4, "held_out": 20, "depth": 1}
"""For fits that keep their state every 20 steps."""


class Stop:
    """Interrupts a fit after a step, and knows the first that it saw."""

    def __init__(self, at=0):
        self.at, self.first = at, 0

    def __call__(self, step, _):
        self.first = self.first or step
        if step >= self.at:
            raise KeyboardInterrupt


def interrupted(fit, out, at=0):
    """The first step of a fit that is interrupted at a step, by default at its first."""
    stop = Stop(at)
    with pytest.raises(KeyboardInterrupt):
        fit(out, progress=stop)
    return stop.first


def texture(out, progress=None, **changes):
    return fit_texture(waves(), out, TextureSettings(**LONG | {"width": 32} | changes), progress=progress)


@pytest.fixture(scope="module", autouse=True)
def often():
    """Fits keep their state ten times as often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lwd.representations.descent.KEEP_EVERY", 20)
        yield


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """A folder with the state of a texture fit and of a SemVAE fit, both interrupted at step 22."""
    folder = tmp_path_factory.mktemp("half")
    for fit, name in ((texture, "texture"), (semvae, "semvae")):
        assert interrupted(fit, folder / name, 22) == 1
    assert sorted(p.name for p in folder.iterdir()) == [".semvae.fit.safetensors", ".texture.fit.safetensors"]
    return folder


@pytest.fixture
def folder(half, tmp_path):
    """A copy, which a test may go on with."""
    return Path(shutil.copytree(half, tmp_path / "copy"))


def test_an_interrupted_fit_goes_on_where_it_was(folder):
    """Oracle: the bytes of an undisturbed fit."""
    seen = []
    texture(folder / "calm")
    texture(folder / "texture", progress=lambda step, _: seen.append(step))
    assert seen == [21, 22, 23]
    name = "model.safetensors"
    assert (folder / "texture" / name).read_bytes() == (folder / "calm" / name).read_bytes()
    assert sorted(p.name for p in folder.iterdir()) == [".semvae.fit.safetensors", "calm", "texture"]


def test_state_of_another_fit_is_not_taken_up(folder):
    """Oracle: the first step of a fit with another seed."""
    assert interrupted(partial(texture, seed=1), folder / "texture") == 1


def semvae(out, grid=(4, 4), source=None, progress=None, **changes):
    settings = SemVAESettings(**LONG | {"limit": 8, "width": 16, "heads": 1} | changes)
    return fit_semvae(source or waves(), ENCODER, grid, out, settings, progress=progress)


@pytest.mark.parametrize("change", [{}, {"grid": (2, 2)}, {"heads": 2}, {"source": "other"}])
def test_only_the_same_semvae_fit_is_taken_up(folder, change):
    """Oracle: the first step after the interruption; grid and heads change no shape, only the plan."""
    if "source" in change:
        other = waves()
        change = {"source": replace(other, images=255 - other.images)}
    assert interrupted(partial(semvae, **change), folder / "semvae") == (1 if change else 21)


def test_compressors_record_what_they_were_fitted_to(tmp_path):
    """Oracle: the encoder's identity and the grid, from the files."""
    fit_pca(waves(), ENCODER, (4, 4), tmp_path / "pca", QUICK)
    semvae(tmp_path / "vae", grid=(2, 4), steps=2)
    assert load_pca(tmp_path / "pca").origin == Origin("averages", (4, 4))
    assert load_semvae(tmp_path / "vae").origin == Origin("averages", (2, 4))


def test_features_are_kept_in_half_and_their_moments_are_exact():
    """Oracle: all of them at once; what float16 cannot hold is refused."""
    batches = [100 + torch.randn(n, 3, 2, 2, generator=torch.Generator().manual_seed(n)) for n in (5, 5, 2)]
    kept, moments = _collect(iter(batches), 20)
    whole = torch.cat(batches).half()
    assert torch.equal(kept, whole)
    assert_close(moments.std, whole.double().std((0, 2, 3), correction=0), atol=1e-9, rtol=0)
    with pytest.raises(lwd.InputError, match=says("float16")):
        _collect([torch.full((1, 3, 2, 2), 7e4)], 1)


def test_pca_channels_are_checked_before_the_pass(tmp_path):
    """Oracle: an encoder that knows its width is never called."""
    encoder = CallableEncoder(lambda _: pytest.fail("called"), "wide")
    encoder.features = 3
    with pytest.raises(lwd.InputError, match=says(3, 4)):
        fit_pca(waves(), encoder, (4, 4), tmp_path / "pca", QUICK)


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


@pytest.mark.parametrize(
    ("steps", "gain", "least"), [(40, 0.05, -0.1), pytest.param(200, 0.2, 0.5, marks=pytest.mark.slow)]
)
def test_semvae_fit_learns(tmp_path, steps, gain, least):
    """Oracle: held-out explained variance after many steps above that after one; numbers from the saved directory."""
    source = waves()
    settings = SemVAESettings(channels=4, steps=steps, batch=32, held_out=20, lr=5e-3, heads=1)
    short = fit_semvae(source, ENCODER, (4, 4), tmp_path / "a", settings.changed(steps=1))
    long = fit_semvae(source, ENCODER, (4, 4), tmp_path / "b", settings)
    assert long["explained_held_out"] > short["explained_held_out"] + gain
    assert long["cosine_held_out"] > short["cosine_held_out"] + gain / 2
    assert long["explained_held_out"] > least
    assert load_semvae(tmp_path / "b").channels == 4


STREAM = {"channels": 4, "batch": 8, "held_out": 20, "depth": 1, "width": 16, "heads": 2}


class Counting:
    """A source and an encoder that count how many images were read and encoded."""

    def __init__(self):
        self.inner, self.read, self.encoded, self.most, self.sizes = waves(), [], 0, 0, set()
        self.name, self.classes, self.labels = self.inner.name, self.inner.classes, self.inner.labels

    def __len__(self):
        return len(self.inner)

    def image(self, number):
        self.read.append(number)
        return self.inner.image(number)

    def encoder(self):
        def features(pictures):
            self.most = max(self.most, len(self.read) - self.encoded)
            self.encoded += len(pictures)
            self.sizes.add(len(pictures))
            return averages(pictures)

        return CallableEncoder(features, "averages")


def test_a_streamed_fit_sees_every_image_in_every_epoch_and_keeps_few(tmp_path):
    """Oracle: counts of what was read: once for the scale, then `epochs` times; never more than loaders + 1 batches."""
    source = Counting()
    settings = SemVAESettings(**STREAM, epochs=3, loaders=2)
    assert settings.with_steps(100).steps == 38  # 300 images in batches of 8
    assert SemVAESettings().with_steps(1_281_167).steps == -(-4 * 1_281_167 // 64)
    seen = []
    fit_semvae(source, source.encoder(), (4, 4), tmp_path / "vae", settings, progress=lambda step, _: seen.append(step))
    assert seen == list(range(1, 39))
    train, held_out = (set(part.tolist()) for part in split(source.inner, settings))
    counts = {number: source.read.count(number) for number in range(120)}
    assert {counts[number] for number in held_out} == {1}
    assert sum(counts[number] for number in train) == 100 + 38 * 8
    assert {counts[number] for number in train} <= {4, 5}  # the last batch begins a fourth epoch
    assert source.most <= 3 * 8
    assert max(source.sizes) == 8
    model = load_semvae(tmp_path / "vae")
    assert (model.architecture, model.origin) == ("sefi", Origin("averages", (4, 4)))


def test_a_streamed_fit_resumes_to_the_same_bytes_with_any_loaders(tmp_path):
    """Oracle: the bytes of an undisturbed fit with one loader."""

    def fit(out, progress=None, loaders=1):
        settings = SemVAESettings(**STREAM | {"batch": 2}, steps=23, loaders=loaders)
        return fit_semvae(waves(), ENCODER, (4, 4), out, settings, progress=progress)

    fit(tmp_path / "calm")
    assert interrupted(fit, tmp_path / "again", 22) == 1
    assert interrupted(partial(fit, loaders=3), tmp_path / "again") == 21
    fit(tmp_path / "again", loaders=2)
    assert (tmp_path / "again/model.safetensors").read_bytes() == (tmp_path / "calm/model.safetensors").read_bytes()


def test_the_weight_of_the_kl_term_counts_per_image(tmp_path, monkeypatch):
    """Oracle: losses of the first step at weights 0 and 0.5 differ by half of the KL of an image, summed."""
    first, divergence = {}, []

    def losses(self, features, *rest, **more):
        divergence.append(kl_divergence(*self.moments(features)).mean().item())
        return original(self, features, *rest, **more)

    original = SemVAE.losses
    monkeypatch.setattr(SemVAE, "losses", losses)
    for kl in (0.0, 0.5):
        settings = SemVAESettings(**STREAM, steps=1, limit=60, kl=kl)
        progress = partial(lambda kl, _, loss: first.update({kl: loss}), kl)
        fit_semvae(waves(), ENCODER, (4, 4), tmp_path / str(kl), settings, progress=progress)
    assert divergence[0] == divergence[1]
    assert_close(first[0.5] - first[0.0], 0.5 * divergence[0], atol=1e-5, rtol=1e-5)


def test_features_that_are_not_finite_stop_a_streamed_fit(tmp_path):
    """Oracle: one line, and nothing written."""
    encoder = CallableEncoder(lambda pictures: averages(pictures) / 0, "broken")
    with pytest.raises(lwd.InputError, match=says("NaN")):
        fit_semvae(waves(), encoder, (4, 4), tmp_path / "vae", SemVAESettings(**STREAM))
    assert not any(tmp_path.iterdir())


def test_the_commands(tmp_path, capsys):
    for i, picture in enumerate(waves(40).images):
        path = tmp_path / "images" / f"class{i % 2}" / f"{i:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)
    root, common = str(tmp_path / "images"), ["--channels", "3", "--batch", "8", "--held-out", "8", "--steps", "5"]
    assert main(["fit", "texture", root, *common, "--width", "32", "--out", str(tmp_path / "ae")]) == 0
    assert says("dB", 8).search(capsys.readouterr().out)
    assert main(["fit", "texture", root, *common, "--steps", "9999999", "--out", str(tmp_path / "ae")]) == 2
    assert "--force" in capsys.readouterr().err  # found before the first step
    for extra, facts in (
        (["--steps", "0"], ("steps", 0)),
        (["--held-out", "90"], (40, 90)),
        (["--patch", "5"], (16, 5)),
        (["--patch", "-4"], ("patch", -4)),
        (["--size", "-5"], ("size", -5)),
        (["--seed", "-1"], ("seed", -1)),
        (["--device", "abacus"], "abacus"),
    ):
        assert main(["fit", "texture", root, *common, *extra, "--out", str(tmp_path / "no")]) == 2
        assert says(facts).search(capsys.readouterr().err)
    semantic = ["fit", "semantic", root, "--out", str(tmp_path / "no"), "--encoder"]
    for extra, facts in (
        (["nothing", "--grid", "4"], "'4'"),
        (["nothing", "--grid", "0x4"], "0x4"),
        (["nothing", "--grid", "4x4", "--steps", "9"], ("--steps", "PCA")),
        (["nothing", "--grid", "4x4", "--limit", "9"], ("--limit", "PCA")),
        (["nothing", "--grid", "4x4", "--width", "9"], ("--width", "PCA")),
        (["nothing", "--grid", "4x4", "--kl", "9", "--epochs", "1"], ("--kl", "--epochs", "PCA")),
        (["nothing", "--grid", "4x4", "--kind", "semvae", "--steps", "9", "--epochs", "1"], ("--epochs", 9, 1)),
    ):
        assert main([*semantic, *extra]) == 2
        assert says(facts).search(capsys.readouterr().err)
    with pytest.raises(lwd.InputError, match=says("limit", -1)):
        SemVAESettings(limit=-1)
    with pytest.raises(lwd.InputError, match=says("0x4")):
        fit_pca(waves(), ENCODER, (0, 4), tmp_path / "no", QUICK)
    (tmp_path / "images" / "class0" / "00.png").write_bytes(b"broken")
    again = ["fit", "texture", root, *common, "--held-out", "20", "--width", "32", "--out"]
    assert main([*again, str(tmp_path / "no")]) == 2
    assert says("00.png").search(capsys.readouterr().err)
    assert main([*again, str(tmp_path / "skipped"), "--skip-bad"]) == 0
    assert not (tmp_path / "no").exists()
