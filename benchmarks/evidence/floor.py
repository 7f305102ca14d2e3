"""The floor of every distance: reconstructions of the texture autoencoder against the images themselves.

    python benchmarks/evidence/floor.py DIR [--inception]

No latent model can be expected below it. Uses the references and judges of the studies; results go to
results/floor.json. A minute on one core; with --inception, FID on 5,000 reconstructions against 12,000 images, about an
hour.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from study import RESULTS, Judge

from lwd.evaluation.evaluate import evaluate
from lwd.evaluation.settings import EvaluateSettings
from lwd.images.fashion import load_fashion
from lwd.io.files import read_json, write_json
from lwd.representations.texture import TextureAutoencoder, from_uint8

SEARCH = yaml.safe_load((Path(__file__).parent / "search.yaml").read_text())
COUNT, TEXTURE = 5000, "fashion"
FILE = RESULTS / "floor.json"


def reconstructions(out: Path) -> Path:
    """Decoded latents of training images, drawn at random, as an .npz in a folder of their own."""
    out.mkdir(parents=True, exist_ok=True)
    images = load_fashion("train").images
    images = images[np.random.default_rng(0).permutation(len(images))[:COUNT]]
    autoencoder, found = TextureAutoencoder.load(TEXTURE).eval(), []
    with torch.no_grad():
        for part in torch.split(torch.as_tensor(images), 500):
            decoded = autoencoder.decode(autoencoder.encode(from_uint8(part)))
            found.append((127.5 * decoded + 128).clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy())
    np.savez(out / "samples.npz", arr_0=np.concatenate(found))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--inception", action="store_true", help="FID as well")
    a = parser.parse_args()
    folder = reconstructions(a.out)
    found: dict[str, Any] = read_json(FILE) if FILE.is_file() else {"study": "floor", "count": COUNT}
    for judge, reference in ((SEARCH["judge"], SEARCH["reference"]), SEARCH["second"].values()):
        found[f"{judge}, {reference}"] = Judge(judge, reference, "", only_frechet=True)(folder, False)["frechet"]
    if a.inception:
        scores, _ = evaluate(folder / "samples.npz", "fashion/train", EvaluateSettings(threads=1), a.out / "fid.json")
        found["fid, fashion/train"] = {"value": scores.metrics["fid"].value, "error": scores.metrics["fid"].error}
    write_json(FILE, found)
    print(FILE.read_text())


if __name__ == "__main__":
    main()
