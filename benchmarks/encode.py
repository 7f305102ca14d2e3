"""Images per second of `lwd encode` as a share of the same networks in a bare loop on preloaded tensors.

    python benchmarks/encode.py [--json] [--images 400] [--resolution 64]

ResNet-50 and the small patch autoencoder with random weights (speed does not depend on them), 32 px images, original
and mirrored, PCA to 16 channels. Both loops alternate in one process.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from lwd.images.sources import ArraySource
from lwd.latents.encode import encode
from lwd.latents.encoders import Encoders
from lwd.latents.settings import EncodeSettings
from lwd.representations.encoders import resize_map
from lwd.representations.pca import PCAFit
from lwd.representations.resnet import ResNet50
from lwd.representations.texture import PatchAutoencoder, from_uint8

BATCH = 50


def tools(resolution: int) -> Encoders:
    """Build untrained networks of the real sizes."""
    torch.manual_seed(0)
    resnet = ResNet50(3, resolution).requires_grad_(False).eval()
    autoencoder = PatchAutoencoder.small().requires_grad_(False).eval()
    pca = PCAFit().update(torch.randn(40, resnet.features, 4, 4)).finish(16)
    return Encoders.of(autoencoder, resnet, pca)


@torch.no_grad()
def bare(networks: Encoders, images: torch.Tensor) -> float:
    """Return the seconds for the networks alone."""
    start = time.perf_counter()
    for batch in torch.split(images, BATCH):
        for view in (batch, batch.flip(3)):
            texture = networks.autoencoder.encode(view)
            semantic = networks.semantics["semantic"]
            semantic.compressor.encode(resize_map(semantic.encoder(view), *texture.shape[2:]))
    return time.perf_counter() - start


def full(networks: Encoders, source: ArraySource) -> float:
    """Return the seconds for shards on disk, with checksums and manifest."""
    with tempfile.TemporaryDirectory() as directory:
        start = time.perf_counter()
        encode(source, Path(directory) / "s", networks, EncodeSettings(shard_size=200, batch=BATCH))
        return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the ratios as one JSON object on the last line")
    parser.add_argument("--images", type=int, default=400, help="number of images (default 400)")
    parser.add_argument("--resolution", type=int, default=64, help="resolution of ResNet-50 (default 64)")
    arguments = parser.parse_args()
    pixels = np.random.default_rng(0).integers(0, 256, (arguments.images, 32, 32, 3), np.uint8)
    source = ArraySource("noise", ("a",), pixels, np.zeros(len(pixels), np.int64))
    networks, tensors = tools(arguments.resolution), from_uint8(torch.from_numpy(pixels))
    bare(networks, tensors[:BATCH])
    rounds = [(bare(networks, tensors), full(networks, source)) for _ in range(5)]
    shares = sorted(alone / total for alone, total in rounds)
    print(
        f"bare loop: {len(pixels) / rounds[0][0]:.0f} images/s; lwd encode: {len(pixels) / rounds[0][1]:.0f} images/s"
    )
    print(f"share: {shares[2]:.2f} (median of 5 alternating rounds, {shares[0]:.2f} to {shares[-1]:.2f})")
    if arguments.json:
        print(json.dumps({"encode over bare loop": round(shares[2], 3)}))


if __name__ == "__main__":
    main()
