"""The jobs that make CIFAR-10's latents, with stand-ins for the images, the encoders and Inception."""

from functools import partial

import pytest

import lwd
from lwd.reproduce import latents
from lwd.reproduce.formats import TableFile
from lwd.reproduce.jobs import ordered
from lwd.reproduce.run import SPECS, prepare, reproduce
from lwd.reproduce.scales import CIFAR10
from lwd.reproduce.settings import ReproduceSettings, parse_latents
from messages import says
from reproduce.small import COMMON, PROBE, SMALL
from stand_ins import Shop, stand_in, stand_in_encoder

SMALLER = CIFAR10.changed(
    models=tuple(model.changed(preset="cifar-small") for model in SMALL.models),
    latents=tuple(plan.changed(channels=4) for plan in CIFAR10.latents[:2]),
    robustness_steps=4,
    train=COMMON,
    probe=(*COMMON, *PROBE),
    draw=CIFAR10.draw.changed(count=20, steps=3, batch=10),
    cpu=True,
    threads=1,
)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    stand_in(monkeypatch.setattr)
    monkeypatch.setattr("lwd.reproduce.latents.load_encoder", stand_in_encoder)
    monkeypatch.setattr(latents, "TEXTURE_STEPS", 2)
    monkeypatch.setattr(latents, "TextureSettings", partial(latents.TextureSettings, held_out=8, width=32, batch=8))
    monkeypatch.setattr(latents, "FitSettings", partial(latents.FitSettings, held_out=8))
    made = Shop(tmp_path / "shop")
    monkeypatch.setenv("LWD_CACHE", str(made.cache))
    monkeypatch.chdir(tmp_path)
    return made


@pytest.mark.usefixtures("shop")
def test_latents_are_fitted_and_encoded_once(tmp_path):
    """Oracle: the table's rows, each with its own FID; one autoencoder, a PCA and shards for each latent."""
    reproduce("robustness", "out", ReproduceSettings(scale="cifar10"), lambda _: None, SMALLER)
    table = TableFile.read(tmp_path / "out" / "robustness.json")
    assert [(row.words["semantic latent"], row.name) for row in table.rows] == [
        ("resnet-pca", "offset 0.3"),
        ("resnet-pca", "learned"),
        ("efficientnet-pca", "offset 0.3"),
        ("efficientnet-pca", "learned"),
    ]
    assert all("fid" in row.measured for row in table.rows)
    assert "inception_score" in table.unavailable
    for name in ("resnet-pca", "efficientnet-pca"):
        assert lwd.LatentReader(tmp_path / "out" / "latents" / name).layout == lwd.Layout.of(texture=16, semantic=4)
    names = [job.title for job in ordered(SPECS["robustness"].jobs(prepare("all", "out", None, SMALLER)[1]))]
    assert names.count("fit the autoencoder") == 1


def test_given_latents_need_a_decoder(shop, tmp_path):
    """Oracle: the main latents are there, and nothing says how to decode them; with a decoder they are used."""
    place = shop.made("latents")
    settings = ReproduceSettings(scale="cifar10", latents=parse_latents(str(place)))
    with pytest.raises(lwd.InputError, match=says("autoencoder")) as error:
        reproduce("unguided", "out", settings, lambda _: None, SMALLER)
    assert error.value.argument == "decoder"
    assert not (tmp_path / "out").exists()
    few = SMALLER.changed(models=SMALLER.models[:1])
    reproduce("unguided", "out", settings.changed(decoder=str(shop.made("ae"))), lambda _: None, few)
    assert (tmp_path / "out" / "unguided.md").exists()
    assert not (tmp_path / "out" / "latents").exists()
