"""Make the colour model `cifar`: autoencoder, latents, a network for every schedule, its schedule, a weak partner.

Run once, by a maintainer, after `lwd data fetch` of cifar10, resnet50 and efficientnet-lite0; about two hours on one
core. Every stage resumes after an interruption; the results are packed in 16 bits into src/lwd/assets/cifar:

    python tools/make_cifar_model.py WORK

The schedule is chosen by samples: the network of the surface probe draws 1,000 images under each of CANDIDATES, and the
one with the lowest Fréchet distance to the test images (EfficientNet-Lite, which did not make the latents) is trained
for. docs/findings.md has the evidence for this rule. FID is measured afterwards, on other seeds, by Inception.
"""

import argparse
import json
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
from lwd.schedule.io import save_schedule
from lwd.schedule.learned import Polynomial

ENCODER = "resnet50:4@64"
IMAGES, FITTED = 25_000, 4_000
"""Images that are encoded, and those that the PCA is fitted to."""
CANDIDATES = ("synchronous", "offset:0.15", "offset:0.3", "offset:0.45", "square")
"""`square`: texture at tau^2 when semantic is at tau, learned for Fashion-MNIST at its weakest stable lambda."""
JUDGE = "efficientnet-lite0:4@96"
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


def choose(work: Path) -> str:
    """The candidate whose samples, by the probe's network, are closest to the test images."""
    scores = {}
    square = work / "square.json"
    save_schedule(Polynomial.from_shares([[0, 1]], ("texture", "semantic")), square)
    for name in CANDIDATES:
        spec = str(square) if name == "square" else name
        folder = work / "choice" / name.replace(":", "-")
        draw = ("--schedule", spec, "--solver", "ab3", "--steps", "16", "--count", "1000", "--batch", "100")
        draw = (*draw, "--decoder", f"{work}/ae", "--format", "npz", "--threads", "1", "--seed", "5000000")
        lwd("sample", "--model", f"{work}/surface", *draw, "--out", str(folder))
        against = ("--reference", "cifar10/test", "--encoder", JUDGE, "--skip-inception", "--threads", "1")
        lwd("evaluate", str(folder), *against)
        scores[name] = json.loads((folder / "evaluation.json").read_text())["metrics"]["frechet"]["value"]
    (work / "choice.json").write_text(json.dumps(scores, indent=1))
    print(scores, flush=True)
    best = min(scores, key=lambda name: scores[name])
    return str(square) if best == "square" else best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    work: Path = parser.parse_args().work
    make_latents(work)
    probe = ("--method", "surface", *SETTINGS, "--steps", "1500", "--samples", "256")
    lwd("probe", f"{work}/latents", *probe, "--out", f"{work}/surface")
    train = (*SETTINGS, "--schedule", choose(work))
    start = ("--init-from", f"{work}/surface", "--steps", "3000")
    lwd("train", f"{work}/latents", *train, *start, "--out", f"{work}/main")
    lwd("train", f"{work}/latents", *train, "--weak", "--steps", "1000", "--out", f"{work}/weak")
    for name, target in (("main", "model"), ("weak", "weak")):
        pack_directory(locate(work / name), CIFAR / target)
    pack_directory(work / "ae", CIFAR / "model" / "vae")
    lwd("schedule", "path", f"{work}/surface", "--out", f"{work}/path")
    (CIFAR / "surfaces").mkdir(exist_ok=True)
    for name in ("surface/surfaces.safetensors", "surface/surfaces.json", "path/path.json", "choice.json"):
        shutil.copy(work / name, CIFAR / "surfaces")
    print(f"model, autoencoder and weak partner: {size(CIFAR):.1f} MB")


if __name__ == "__main__":
    main()
