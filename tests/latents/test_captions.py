"""Latents for text-to-image models: the Flux 2 autoencoder, and captions beside labels."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import avg_pool2d
from torch.testing import assert_close

import lwd
from lwd.images.sources import FolderSource
from lwd.latents.shards import CAPTIONS
from lwd.representations.encoders import CallableEncoder
from lwd.representations.pca import PCAFit
from lwd.representations.texture import TextureAutoencoder, from_uint8
from messages import says
from sefi import write_autoencoder


def write_images(root, captions=True):
    generator = np.random.default_rng(0)
    for number in range(5):
        path = root / ("cats" if number < 2 else "dogs") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 255, (32, 48, 3), dtype=np.uint8)).save(path)
        if captions:
            path.with_suffix(".txt").write_text(f" picture\nnumber {number} ")
    return root


def encoders(tmp_path):
    write_autoencoder(tmp_path)
    colours = CallableEncoder(lambda images: avg_pool2d(images, 16), "mean colours")
    pca = PCAFit().update(torch.randn(8, 3, 4, 4)).finish(channels=2)
    return lwd.Encoders.of(TextureAutoencoder.load(tmp_path / "vae"), colours, pca)


def test_captions_and_flux2_latents(tmp_path):
    """Oracle: the files; the autoencoder's latents of the images, whatever the order of groups."""
    source, tools = FolderSource(write_images(tmp_path / "images")), encoders(tmp_path)
    settings = lwd.EncodeSettings(shard_size=2, batch=2, captions=True)
    lwd.encode(source, tmp_path / "out", tools, settings)
    unit = lwd.Statistics({"semantic": torch.zeros(2), "texture": torch.zeros(8)},
                          {"semantic": torch.ones(2), "texture": torch.ones(8)})  # fmt: skip
    reader = lwd.LatentReader(tmp_path / "out", ("semantic", "texture"), unit)
    assert reader.captions == [f"picture number {i}" for i in range(5)]
    assert reader.labels.tolist() == [0, 0, 1, 1, 1]
    assert reader.layout == lwd.Layout.of(semantic=2, texture=8)
    batch = reader.gather(np.array([3]), np.array([False]))
    with torch.no_grad():
        wanted = tools.autoencoder.encode(from_uint8(torch.from_numpy(np.array(source.image(3)[None]))))
    assert_close(batch.latents[:, 2:], wanted, atol=1e-4, rtol=1e-4)


def test_missing_captions(tmp_path):
    """Oracle: the file that is missing or does not fit, before or after encoding."""
    tools, images = encoders(tmp_path), write_images(tmp_path / "images", captions=False)
    settings = lwd.EncodeSettings(captions=True)
    with pytest.raises(lwd.InputError, match=says("0.txt")):
        lwd.encode(FolderSource(images), tmp_path / "out", tools, settings)
    assert not (tmp_path / "out").exists()
    lwd.encode(FolderSource(images), tmp_path / "plain", tools)
    reader = lwd.LatentReader(tmp_path / "plain")
    assert reader.captions == []
    (tmp_path / "plain" / CAPTIONS).write_text('{"format": "lwd.captions", "version": 1, "captions": ["one"]}')
    with pytest.raises(lwd.InputError, match=says(CAPTIONS, 1, 5)):
        _ = lwd.LatentReader(tmp_path / "plain").captions
