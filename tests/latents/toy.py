"""Pictures of noise, encoders without weights, and the `lwd encode` command that uses them."""

import numpy as np
import pytest
import torch
from PIL import Image

from lwd.images.sources import ArraySource
from lwd.latents.encoders import Encoders, Semantic
from lwd.latents.settings import EncodeSettings
from lwd.representations.encoders import CallableEncoder
from lwd.representations.pca import PCAFit, save_pca
from lwd.representations.texture import PatchAutoencoder, from_uint8

SETTINGS = EncodeSettings(shard_size=10, batch=4)


def gradients(images):
    """A semantic 'encoder' without weights: local averages and differences on an 8x8 grid."""
    small = torch.nn.functional.avg_pool2d(images, images.shape[-1] // 8)
    return torch.cat([small, small - small.roll(1, 3), small.square()], 1)


def pictures(count=37, size=16, seed=0):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, size, size, 3), np.uint8)
    return ArraySource("pictures", ("a", "b", "c"), images, np.arange(count) % 3)


def encoders(pca=None):
    torch.manual_seed(0)
    features = gradients(from_uint8(torch.from_numpy(pictures().images)))
    pca = pca or PCAFit().update(features).finish(2)
    autoencoder = PatchAutoencoder.small(channels=4, width=32, depth=1).eval()
    found = {"semantic": Semantic(CallableEncoder(gradients, "gradients"), pca)}
    return Encoders(autoencoder, found, record={"texture": "random", "semantic": "toy"})


def content(directory):
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def folder(root, count=11):
    for i in range(count):
        path = root / f"class{i % 2}" / f"{i:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pictures(count, size=20 + i % 2).images[i]).save(path)
    return root


def prepared(tmp_path):
    """Everything that the command needs, in directories."""
    root = folder(tmp_path / "images", 24)
    tools = encoders()
    (tmp_path / "ae").mkdir()
    tools.autoencoder.save(tmp_path / "ae")
    dino = pytest.importorskip("transformers")
    config = dino.Dinov2Config(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=7, intermediate_size=32
    )
    torch.manual_seed(1)
    dino.Dinov2Model(config).save_pretrained(tmp_path / "dino")
    save_pca(
        PCAFit().update(torch.randn(40, 16, 4, 4, generator=torch.Generator().manual_seed(2))).finish(3),
        tmp_path / "pca",
    )
    return [
        "encode", str(root), "--texture", str(tmp_path / "ae"), "--semantic", f"{tmp_path / 'dino'}@28",
        "--compress", str(tmp_path / "pca"), "--size", "16", "--shard-size", "2", "--batch", "2",
    ]  # fmt: skip
