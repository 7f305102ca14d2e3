"""Make the latents of the studies on CIFAR-10: one texture and several semantic groups of the same images.

    python benchmarks/evidence/latents.py DIR [--coarse] [--images 10000] [--fit 3000]

Writes DIR/ae, one PCA for each encoder, and DIR/latents with the groups texture, r3 and r5 (ResNet-50 at 64 px, stages
3 and 5) on 8x8 positions; a study picks a pair with `groups`. About 40 minutes on one core. With --coarse, texture and
semantic (stage 4) on 4x4 positions, as for the shipped model `cifar`, with its autoencoder. What is there is kept.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from lwd.images.cifar import load_cifar10
from lwd.latents.encode import encode
from lwd.latents.encoders import Encoders
from lwd.latents.settings import EncodeSettings
from lwd.representations.encoders import load_encoder
from lwd.representations.fit import fit_pca, fit_texture
from lwd.representations.settings import FitSettings, TextureSettings

ENCODERS = {"r3": "resnet50:3@64", "r5": "resnet50:5@64"}
COARSE = {"semantic": "resnet50:4@64"}
CHANNELS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--coarse", action="store_true", help="4x4 positions, with the autoencoder of the model cifar")
    parser.add_argument("--images", type=int, default=10_000, help="images to encode (default 10000)")
    parser.add_argument("--fit", type=int, default=3000, help="images that the PCAs are fitted to (default 3000)")
    a = parser.parse_args()
    source = load_cifar10("train")
    encoders, grid, texture = (COARSE, (4, 4), "cifar") if a.coarse else (ENCODERS, (8, 8), str(a.out / "ae"))
    if not a.coarse and not (a.out / "ae" / "config.json").is_file():
        fit_texture(source, a.out / "ae", TextureSettings(channels=CHANNELS, steps=1500))
    few = replace(source, images=source.images[: a.fit], labels=source.labels[: a.fit])
    for name, encoder in encoders.items():
        if not (a.out / name / "config.json").is_file():
            fit_pca(few, load_encoder(encoder), grid, a.out / name, FitSettings(channels=CHANNELS, batch=100))
            print(f"fitted {a.out / name}", flush=True)
    some = replace(source, images=source.images[: a.images], labels=source.labels[: a.images])
    loaded = Encoders.load(texture, encoders, {name: str(a.out / name) for name in encoders})
    encode(some, a.out / "latents", loaded, EncodeSettings(batch=100, dtype="float16", threads=1))


if __name__ == "__main__":
    main()
