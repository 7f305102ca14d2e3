"""Make the colour model `cifar`: autoencoder, latents, a surface probe, its schedule, the network, a weak partner.

Run once, by a maintainer, after `lwd data fetch` of cifar10 and resnet50; about an hour on two cores. Every stage
resumes after an interruption; the results are packed in 16 bits into src/lwd/assets/cifar:

    python tools/make_cifar_model.py WORK
"""

import argparse
import shutil
from pathlib import Path

import numpy as np
from packing import lwd, pack_directory, size

from lwd.assets import CIFAR
from lwd.checkpoints.directory import locate
from lwd.images.catalog import open_source
from lwd.images.sources import Subset
from lwd.latents.encode import encode
from lwd.latents.encoders import Encoders
from lwd.latents.settings import EncodeSettings
from lwd.representations.encoders import load_encoder
from lwd.representations.fit import fit_pca
from lwd.representations.settings import FitSettings

ENCODER = "resnet50:4@64"
IMAGES, FITTED = 25_000, 4_000
"""Images that are encoded, and those that the PCA is fitted to."""
SETTINGS = ("--preset", "cifar-coarse", "--set", "run.sample_every=0", "--set", "network.compile=true")
RULE = ("--steps", "20", "--tolerance", "0.02")
"""The schedule: the weakest lambda for which the predicted error of 20 Heun steps is at most 0.02, as for `fashion`."""


def make_latents(work: Path) -> None:
    """Fit the autoencoder and the PCA, and encode."""
    if not (work / "ae" / "config.json").exists():
        fit = ("--patch", "8", "--channels", "32", "--steps", "3000", "--kl", "1e-4")
        lwd("fit", "texture", "cifar10/train", *fit, "--out", f"{work}/ae")
    source = open_source("cifar10/train")
    if not (work / "pca" / "config.json").exists():
        few = Subset(source, np.arange(FITTED))
        fit_pca(few, load_encoder(ENCODER), (4, 4), work / "pca", FitSettings(channels=16, batch=50))
    encoders = Encoders.load(str(work / "ae"), {"semantic": ENCODER}, {"semantic": str(work / "pca")})
    some = Subset(source, np.arange(IMAGES))
    encode(some, work / "latents", encoders, EncodeSettings(batch=50, dtype="float16", threads=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    work: Path = parser.parse_args().work
    make_latents(work)
    lwd("probe", f"{work}/latents", "--method", "surface", *SETTINGS, "--out", f"{work}/surface")
    lwd("schedule", "path", f"{work}/surface", *RULE, "--out", f"{work}/path")
    train = (*SETTINGS, "--schedule", f"{work}/path/chosen.json")
    lwd("train", f"{work}/latents", *train, "--weak", "--out", f"{work}/weak")
    lwd("train", f"{work}/latents", *train, "--init-from", f"{work}/surface", "--out", f"{work}/main")
    for name, target in (("main", "model"), ("weak", "weak")):
        pack_directory(locate(work / name), CIFAR / target)
    pack_directory(work / "ae", CIFAR / "model" / "vae")
    (CIFAR / "surfaces").mkdir(exist_ok=True)
    for name in ("surface/surfaces.safetensors", "surface/surfaces.json", "path/path.json"):
        shutil.copy(work / name, CIFAR / "surfaces")
    print(f"model, autoencoder and weak partner: {size(CIFAR):.1f} MB")


if __name__ == "__main__":
    main()
