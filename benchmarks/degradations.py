"""FID of CIFAR-10 test images against the other half of the test set: unchanged, blurred, noised, JPEG-compressed.

    python benchmarks/degradations.py [--reference 5000] [--samples 500] [--json]

Reference: the first half of the test set. Samples: images of the second half, so that no image is in both sets. Needs
`lwd data fetch cifar10` and `lwd data fetch inception`. Resumes after an interruption: features are cached. All
degraded rows have the same number of samples, because FID decreases with it.
"""

import argparse
import io
import json
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from PIL import Image, ImageFilter

from lwd.evaluation.features import InceptionNetwork, extract
from lwd.evaluation.score import Reference, score
from lwd.images.cifar import load_cifar10
from lwd.images.pictures import SourcePictures
from lwd.images.sources import ArraySource


def blur(pixels: np.ndarray, number: int, radius: float) -> np.ndarray:
    del number
    return np.asarray(Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(radius)))


def noise(pixels: np.ndarray, number: int, sigma: float) -> np.ndarray:
    """Add normal noise of `sigma` grey levels, different for each image."""
    drawn = np.random.default_rng(number).normal(0, sigma, pixels.shape)
    return np.clip(pixels + drawn, 0, 255).round().astype(np.uint8)


def jpeg(pixels: np.ndarray, number: int, quality: int) -> np.ndarray:
    del number
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=quality)
    return np.asarray(Image.open(buffer))


DEGRADATIONS: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "as they are": lambda pixels, _: pixels,
    **{f"blur, radius {radius}": partial(blur, radius=radius) for radius in (0.5, 1.0, 2.0)},
    **{f"noise, sigma {sigma}": partial(noise, sigma=sigma) for sigma in (5, 10, 20)},
    **{f"JPEG, quality {quality}": partial(jpeg, quality=quality) for quality in (75, 40, 10)},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=int, default=5000, help="images of the first half (default 5000)")
    parser.add_argument("--samples", type=int, default=500, help="images of the second half in each row (default 500)")
    parser.add_argument("--json", action="store_true", help="print the numbers as one JSON object on the last line")
    arguments = parser.parse_args()
    source = load_cifar10("test")
    network, device = InceptionNetwork(torch.device("cpu")), "cpu"
    seen = partial(extract, networks=[network], device=device)

    def images(name: str, rows: range, change: Callable[[np.ndarray, int], np.ndarray]) -> SourcePictures:
        pixels = np.stack([change(source.image(i), i) for i in rows])
        return SourcePictures(ArraySource(name, source.classes, pixels, source.labels[list(rows)]))

    half = len(source) // 2
    plain = DEGRADATIONS["as they are"]
    reference = Reference.of(seen(images("first half", range(arguments.reference), plain)), {}, "first half")
    rows = [(f"second half, {half} images", half, plain)]
    rows += [(name, arguments.samples, change) for name, change in DEGRADATIONS.items()]
    numbers = {}
    print("| samples | images | FID | sFID | KID x 1000 | precision | recall |\n|" + " --- |" * 7)
    for name, count, change in rows:
        m = score(seen(images(name, range(half, half + count), change)), reference).metrics
        numbers[name] = {key: metric.value for key, metric in m.items()}
        cells = [f"{m['fid'].value:.2f} ± {m['fid'].error:.2f}", f"{m['sfid'].value:.2f} ± {m['sfid'].error:.2f}"]
        cells += [f"{1000 * m['kid'].value:.2f} ± {1000 * m['kid'].error:.2f}"]
        cells += [f"{m[key].value:.3f}" for key in ("precision", "recall")]
        print(f"| {name} | {count} | " + " | ".join(cells) + " |", flush=True)
    if arguments.json:
        print(json.dumps(numbers))


if __name__ == "__main__":
    main()
