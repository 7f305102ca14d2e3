"""The embedded data set: what is in it, how large it is, and that its latents belong to its images."""

import numpy as np
import pytest
import torch

from lwd.errors import InputError
from lwd.images.catalog import open_source
from lwd.images.fashion import FOLDER, fashion_meta, fashion_semantic, load_fashion
from lwd.latents.embedded import encode_embedded
from lwd.latents.reader import LatentReader
from lwd.latents.verify import verify
from lwd.representations.texture import PatchAutoencoder
from messages import says


@pytest.mark.parametrize(("split", "each"), [("train", 1200), ("test", 200)])
def test_counts_and_shapes(split, each):
    source = open_source(f"fashion/{split}")
    assert np.bincount(source.labels).tolist() == [each] * 10
    assert source.image(0).shape == (28, 28, 3)
    assert fashion_semantic(split).shape == (10 * each, 8, 4, 4)


def test_it_stays_small():
    """Oracle: the issue's limits, 8 MB for images and 8 MB for latents."""
    sizes = {path.name: path.stat().st_size for path in FOLDER.iterdir()}
    assert sizes["images.xz"] + sizes["labels.xz"] < 8e6
    assert sizes["semantic.xz"] + sizes["semantic.json"] < 8e6


def test_the_latents_belong_to_the_images():
    """Oracle: nearest neighbours in the latents have the image's class; a shifted pairing would be at chance (0.1)."""
    reference, query = fashion_semantic("train")[:4000].flatten(1), fashion_semantic("test")[:500].flatten(1)
    labels = torch.from_numpy(load_fashion("train").labels)[torch.cdist(query, reference).argmin(1)]
    assert (labels == torch.from_numpy(load_fashion("test").labels[:500])).float().mean() > 0.75
    assert 0.35 < fashion_meta()["explained_held_out"] < 0.45
    assert fashion_meta()["quantisation_error"] < 1e-3


def test_its_shards_are_whole_and_made_once(tmp_path):
    autoencoder = PatchAutoencoder.small(4, 7, 32, 1).eval()
    encode_embedded("test", autoencoder, tmp_path, "untrained")
    assert verify(tmp_path) == []
    reader = LatentReader(tmp_path)
    assert str(reader.layout) == "texture=4,semantic=8"
    assert not reader.mirrored
    before = (tmp_path / "manifest.json").stat().st_mtime_ns
    encode_embedded("test", autoencoder, tmp_path, "untrained")
    assert (tmp_path / "manifest.json").stat().st_mtime_ns == before
    with pytest.raises(InputError, match=says("another")):
        encode_embedded("test", autoencoder, tmp_path, "another")


def test_wrong_splits_and_grids_are_named(tmp_path):
    with pytest.raises(InputError, match=says("all", "train", "test")):
        load_fashion("all")
    with pytest.raises(InputError, match=says("4x4", "7x7", 7)):
        encode_embedded("test", PatchAutoencoder.small(4, 4, 32, 1).eval(), tmp_path, "untrained")
