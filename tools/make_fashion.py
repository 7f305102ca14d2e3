"""Make the embedded data set: a subset of Fashion-MNIST, and semantic latents for its images.

Run once, by a maintainer; the results are committed under src/lwd/assets/fashion. It needs Debian's package
`dataset-fashion-mnist` (MIT licence; unpack it anywhere) and the encoder `resnet50` in lwd's cache:

    apt-get download dataset-fashion-mnist && dpkg -x dataset-fashion-mnist*.deb fashion
    lwd data fetch resnet50
    python tools/make_fashion.py fashion/usr/share/datasets/fashion-mnist

Images: the first 1,200 of each class of the training set and the first 200 of each class of the test set, in their
original order. Semantic latents: ResNet-50 (ImageNet), stage 5 at 128 px, whose map is 4x4; exact PCA of the features
of the 12,000 training images to 8 channels; 8 bits per value, from the smallest to the largest value of each channel.
About ten minutes on two cores.
"""

import argparse
import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from lwd.images.fashion import COUNTS, FOLDER, IMAGES, LABELS, LATENTS, META, dequantise
from lwd.io.files import write_bytes
from lwd.representations.pca import PCAFit
from lwd.representations.resnet import load_resnet50
from lwd.representations.texture import from_uint8

STAGE, PIXELS, CHANNELS = 5, 128, 8
NAMES = {"train": "train", "test": "t10k"}


def read_idx(path: Path) -> np.ndarray[Any, Any]:
    """Read an idx.gz file of bytes: magic number, dimensions, content."""
    content = gzip.decompress(path.read_bytes())
    shape = [int.from_bytes(content[4 + 4 * i : 8 + 4 * i]) for i in range(content[3])]
    return np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)


def subset(folder: Path, split: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Select the first COUNTS[split] / 10 images of each class, in their original order."""
    images = read_idx(folder / f"{NAMES[split]}-images-idx3-ubyte.gz")
    labels = read_idx(folder / f"{NAMES[split]}-labels-idx1-ubyte.gz")
    keep = np.sort(np.concatenate([np.flatnonzero(labels == c)[: COUNTS[split] // 10] for c in range(10)]))
    return images[keep], labels[keep]


@torch.no_grad()
def features(images: np.ndarray[Any, Any]) -> torch.Tensor:
    """Compute stage-5 maps of grey images, with three equal channels."""
    network, parts = load_resnet50(STAGE, PIXELS), []
    for low in tqdm(range(0, len(images), 100), desc="ResNet-50"):
        grey = torch.from_numpy(images[low : low + 100].copy())[..., None].expand(-1, -1, -1, 3)
        parts.append(network(from_uint8(grey)).half())
    return torch.cat(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="directory of the idx.gz files")
    folder = parser.parse_args().folder
    parts = [subset(folder, split) for split in COUNTS]
    images, labels = (np.concatenate([part[i] for part in parts]) for i in range(2))
    maps = features(images)
    fit = PCAFit()
    for part in maps[: COUNTS["train"]].split(500):
        fit.update(part.float())
    pca = fit.finish(CHANNELS)
    latents = torch.cat([pca.encode(part.float()) for part in maps.split(500)]).numpy()
    low, high = latents.min((0, 2, 3)), latents.max((0, 2, 3))
    step = (high - low) / 255
    codes = np.round((latents - low[:, None, None]) / step[:, None, None]).astype(np.uint8)
    error = float(np.square(dequantise(codes, low, step) - latents).mean() / latents.var())
    meta = {
        "encoder": f"ResNet-50 (ImageNet), stage {STAGE}, {PIXELS} px",
        "compressor": f"PCA to {CHANNELS} channels, fitted on the 12,000 training images, 8 bits",
        "explained": pca.explained,
        "explained_held_out": pca.explained_on(maps[COUNTS["train"] :].float()),
        "quantisation_error": error,
        "low": low.tolist(),
        "step": step.tolist(),
    }
    write_bytes(FOLDER / IMAGES, lzma.compress(images.tobytes(), preset=9))
    write_bytes(FOLDER / LABELS, lzma.compress(labels.tobytes(), preset=9))
    # Channel by channel: similar values are then adjacent in the file, and compress better.
    write_bytes(FOLDER / LATENTS, lzma.compress(codes.transpose(1, 2, 3, 0).tobytes(), preset=9))
    write_bytes(FOLDER / META, (json.dumps(meta, indent=2) + "\n").encode())
    for name in (IMAGES, LABELS, LATENTS):
        print(f"{name}: {(FOLDER / name).stat().st_size / 1e6:.2f} MB")
    print(json.dumps({key: meta[key] for key in ("explained", "explained_held_out", "quantisation_error")}))


if __name__ == "__main__":
    main()
