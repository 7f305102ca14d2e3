"""Make the latents of the studies on CIFAR-10: one texture and several semantic groups of the same images.

    python benchmarks/evidence/latents.py DIR [--images 10000] [--fit 3000]

Writes DIR/ae, one PCA for each encoder, and DIR/latents with the groups texture, r3 and r5 (ResNet-50 at 64 px, stages
3 and 5); a study picks a pair with `groups`. About 40 minutes on one core. What is there is kept.
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
GRID, CHANNELS = (8, 8), 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--images", type=int, default=10_000, help="images to encode (default 10000)")
    parser.add_argument("--fit", type=int, default=3000, help="images that the PCAs are fitted to (default 3000)")
    a = parser.parse_args()
    source = load_cifar10("train")
    if not (a.out / "ae" / "config.json").is_file():
        fit_texture(source, a.out / "ae", TextureSettings(channels=CHANNELS, steps=1500))
    few = replace(source, images=source.images[: a.fit], labels=source.labels[: a.fit])
    for name, encoder in ENCODERS.items():
        if not (a.out / name / "config.json").is_file():
            fit_pca(few, load_encoder(encoder), GRID, a.out / name, FitSettings(channels=CHANNELS, batch=100))
            print(f"fitted {a.out / name}", flush=True)
    some = replace(source, images=source.images[: a.images], labels=source.labels[: a.images])
    encoders = Encoders.load(str(a.out / "ae"), ENCODERS, {name: str(a.out / name) for name in ENCODERS})
    encode(some, a.out / "latents", encoders, EncodeSettings(batch=100, dtype="float16", threads=1))


if __name__ == "__main__":
    main()
