"""Images that are made here, and a small network in Inception's place."""

import numpy as np
from PIL import Image

from lwd.evaluation.features import POOL, SPATIAL
from lwd.images.pictures import SourcePictures
from lwd.images.sources import ArraySource

PIXELS = 12


def images(count, seed=0, shift=0):
    """Random pictures whose mean colour depends on a class that goes round three."""
    generator = np.random.default_rng(seed)
    base = generator.integers(0, 200, (count, PIXELS, PIXELS, 3)) + 20 * (np.arange(count) % 3)[:, None, None, None]
    return np.clip(base + shift, 0, 255).astype(np.uint8)


class Colours:
    """A network whose features can be checked by hand: block means; its classifier is a softmax of three of them."""

    identity = "colours"
    calls = 0

    def __init__(self, head=True):
        self.head = head

    def __call__(self, pixels):
        type(self).calls += len(pixels)
        small = pixels.float().unfold(1, 6, 6).unfold(2, 6, 6).mean((-1, -2)).flatten(1)
        found = {POOL: small / 64, SPATIAL: small[:, :5] / 32}
        return found | ({"probabilities": (small[:, :3] / 20).softmax(1)} if self.head else {})


def manifest(count, step=100, nfe=20.0):
    """manifest.json as `lwd sample` writes it."""
    about = {"format": "lwd.samples", "version": 1, "settings": {"solver": "heun"}, "device": "cpu"}
    about |= {"model": {"step": step}, "solver": {}, "size": [PIXELS, PIXELS], "labels": [0] * count}
    cost = {"mean": nfe, "min": int(nfe), "max": int(nfe)}
    return about | {"order": list(range(count)), "nfe": cost, "files": {}, "versions": {}}


def source(pixels, name="made"):
    return SourcePictures(ArraySource(name, ("a",), pixels, np.zeros(len(pixels), np.int64)))


def folder(path, pixels):
    path.mkdir(parents=True, exist_ok=True)
    for i, picture in enumerate(pixels):
        Image.fromarray(picture).save(path / f"{i:04}.png")
    return path
