"""Make the colour model `cifar`: autoencoder, latents, a network for every schedule, its schedule, a weak partner.

Run once, by a maintainer, after `lwd data fetch` of cifar10 and resnet50; about two hours on one
core. Every stage resumes after an interruption; the results are packed in 16 bits into src/lwd/assets/cifar:

    python tools/make_cifar_model.py WORK --schedule offset:0.3

Not run to the end yet: docs/findings.md says how far, and what the network of the probe drew.
"""

import argparse
import shutil
from pathlib import Path

import numpy as np
from packing import lwd, pack_directory, size

from lwd.assets import FASHION
from lwd.checkpoints.directory import locate
from lwd.images.catalog import open_source
from lwd.images.sources import Subset
from lwd.latents.encode import encode
from lwd.latents.encoders import Encoders
from lwd.latents.settings import EncodeSettings
from lwd.representations.encoders import load_encoder
from lwd.representations.fit import fit_pca
from lwd.representations.settings import FitSettings

CIFAR = FASHION.parent / "cifar"
ENCODER = "resnet50:4@64"
IMAGES, FITTED = 25_000, 4_000
"""Images that are encoded, and those that the PCA is fitted to."""
SETTINGS = ("--preset", "cifar-coarse", "--set", "run.sample_every=0", "--set", "network.compile=true")


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
    parser.add_argument("--schedule", required=True, help="schedule to train for: offset:0.3, a file, ...")
    arguments = parser.parse_args()
    work: Path = arguments.work
    make_latents(work)
    probe = ("--method", "surface", *SETTINGS, "--steps", "1500", "--samples", "256")
    lwd("probe", f"{work}/latents", *probe, "--out", f"{work}/surface")
    train = (*SETTINGS, "--schedule", arguments.schedule)
    start = ("--init-from", f"{work}/surface", "--steps", "3000")
    lwd("train", f"{work}/latents", *train, *start, "--out", f"{work}/main")
    lwd("train", f"{work}/latents", *train, "--weak", "--steps", "1000", "--out", f"{work}/weak")
    for name, target in (("main", "model"), ("weak", "weak")):
        pack_directory(locate(work / name), CIFAR / target)
    pack_directory(work / "ae", CIFAR / "model" / "vae")
    lwd("schedule", "path", f"{work}/surface", "--out", f"{work}/path")
    (CIFAR / "surfaces").mkdir(exist_ok=True)
    for name in ("surface/surfaces.safetensors", "surface/surfaces.json", "path/path.json"):
        shutil.copy(work / name, CIFAR / "surfaces")
    print(f"model, autoencoder and weak partner: {size(CIFAR):.1f} MB")


if __name__ == "__main__":
    main()
