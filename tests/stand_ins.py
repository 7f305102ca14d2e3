"""Small things in place of what commands read: networks, images, latents, models.

Run as a script it is `lwd` with the stand-ins, for tests of several processes.
"""

import shlex
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import adaptive_avg_pool2d

import lwd
from commands import name_of, smaller
from lwd.assets import AUTOENCODERS, MODELS
from lwd.checkpoints.published import PUBLISHED, RECIPES
from lwd.cli import main
from lwd.evaluation.features import POOL, SPATIAL
from lwd.images.cifar import CLASSES
from lwd.images.fashion import fashion_semantic, load_fashion
from lwd.images.sources import ArraySource
from lwd.io.files import write_json
from lwd.representations.encoders import CallableEncoder, load_encoder
from lwd.representations.ldm import autoencoder_from_ldm
from lwd.representations.pca import PCAFit, save_pca
from lwd.representations.texture import PatchAutoencoder, from_uint8
from lwd.surfaces.optimum import GlobalOptimum
from reference import busy_network, ldm, reference_state, small_config

SIDE, TEXTURE, SEMANTIC, FEATURES = 32, 16, 4, 18


def features(images: torch.Tensor) -> torch.Tensor:
    """An 'encoder' without weights: (b, 18, 8, 8)."""
    small = adaptive_avg_pool2d(images, 8)
    parts = [small, small - small.roll(1, 3), small - small.roll(1, 2), small.square(), small.abs(), small.sin()]
    return torch.cat(parts, 1)


def stand_in_encoder(spec: str, cache: Path | None = None) -> object:
    """In place of networks whose weights would be downloaded; what ships or lies in a directory is itself."""
    if spec == "fashion" or Path(spec).is_dir():
        return load_encoder(spec, cache)
    return CallableEncoder(features, f"a stand-in for {spec}")


class StandInInception:
    """Block means in place of FID's network."""

    identity = "a stand-in for Inception"
    scores = False

    def __init__(self, *_: object) -> None:
        pass

    def __call__(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        small = adaptive_avg_pool2d(images.permute(0, 3, 1, 2).float() / 255, 2).flatten(1)
        return {POOL: small, SPATIAL: small[:, :5]}


def few_fashion(split: str) -> ArraySource:
    """The first embedded images: all of them take ten seconds to encode."""
    whole = load_fashion(split)
    return ArraySource(whole.name, whole.classes, whole.images[:500], whole.labels[:500])


def few_semantic(split: str) -> torch.Tensor:
    return fashion_semantic(split)[:500]


coarse_optimum = partial(GlobalOptimum, columns=6, heights=21, doublings=1)
"""The floor of a lambda path in a tenth of a second; tests/surfaces/test_optimum.py tests the fine one."""


QUICK = {
    "lwd.latents.embedded.load_fashion": few_fashion,
    "lwd.latents.embedded.fashion_semantic": few_semantic,
    "lwd.surfaces.lambda_path.GlobalOptimum": coarse_optimum,
    "lwd.probing.surface.calibrate": lambda *_, **__: {"1": 1.0, "2": 1.0},  # tests/probing/test_surface.py measures it
}
"""For everything that starts from the embedded images, the demo and `lwd reproduce --scale tiny` among them."""


def quicken(setattr_: Callable[[str, object], object]) -> None:
    for place, value in QUICK.items():
        setattr_(place, value)


def stand_in(setattr_: Callable[[str, object], object] | None = None) -> None:
    """Put the stand-ins in place; setattr_: pytest's, which takes them away again."""
    places = QUICK | {
        "lwd.representations.encoders.load_encoder": stand_in_encoder,
        "lwd.evaluation.features.load_encoder": stand_in_encoder,
        "lwd.latents.encoders.load_encoder": stand_in_encoder,
        "lwd.evaluation.evaluate.InceptionNetwork": StandInInception,
    }
    for place, value in places.items():
        if setattr_ is not None:
            setattr_(place, value)
        else:
            module, _, name = place.rpartition(".")
            __import__(module)
            setattr(sys.modules[module], name, value)


SCHEDULE_WORDS = ("offset", "synchronous", "cascade", "polynomial", "bernstein")
SOURCE_WORDS = ("cifar10", "fashion")
READS = {
    "fit texture": {"source": "photos"},
    "fit semantic": {"source": "photos"},
    "encode": {"source": "photos", "texture": "ae", "compress": "pca"},
    "data verify": {"directory": "latents"},
    "data show": {"directory": "latents", "images": "photos", "texture": "ae"},
    "probe": {"data": "latents"},
    "sweep": {"data": "latents"},
    "train": {"data": "latents", "schedule": "schedule", "init_from": "surface", "decoder": "ae"},
    "runs show": {"run_dir": "run"},
    "surfaces show": {"surfaces": "surface", "schedules": "schedule"},
    "schedule show": {"schedule": "schedule"},
    "schedule plot": {"schedules": "schedule"},
    "schedule export": {"schedule": "schedule"},
    "schedule fit": {"surfaces": "surface"},
    "schedule path": {"surfaces": "surface"},
    "sample": {"model": "run", "guide": "run", "decoder": "ae", "schedule": "schedule"},
    "bench sampler": {"model": "run", "guide": "run", "decoder": "ae", "reference": "photos"},
    "evaluate": {"samples": "samples", "reference": "photos"},
    "compare": {"runs": "evaluated"},
    "convert": {"source": "weights"},
    "demo": {},
    "reproduce": {},
}


class Shop:
    """Makes each stand-in once, and hands out copies."""

    def __init__(self, root: Path) -> None:
        self.root, self.cache = root, root / "cache"
        rng = np.random.default_rng(0)
        for split, count in (("train", 60), ("test", 24)):
            (self.cache / "cifar10").mkdir(parents=True, exist_ok=True)
            images = rng.integers(0, 256, (count, SIDE, SIDE, 3), np.uint8)
            np.save(self.cache / "cifar10" / f"{split}_images.npy", images)
            np.save(self.cache / "cifar10" / f"{split}_labels.npy", np.arange(count) % len(CLASSES))
        write_json(self.cache / "cifar10" / "config.json", {"format": "lwd.images", "version": 1})

    def provide(self, a: Namespace, folder: Path) -> None:
        """Put under the command's names what it reads, unless lwd itself knows the name."""
        self.publish(a)
        for attribute, kind in READS[name_of(a)].items():
            given = getattr(a, attribute)
            for value in given if isinstance(given, list) else [given]:
                if value and not self.is_known(attribute, value, a) and not (folder / value).exists():
                    self.copy(self.kind(kind, value, a), folder / value)

    def publish(self, a: Namespace) -> None:
        """Small stand-ins in the cache for the published models that a command names."""
        recipe = RECIPES.get(getattr(a, "recipe", None) or "")
        named = [
            getattr(a, "model", None),
            getattr(a, "guide", None),
            *((recipe.model, recipe.guide) if recipe else ()),
        ]
        for name in PUBLISHED.keys() & named:
            if not (target := self.cache / "models" / name).exists():
                shutil.copytree(self.made("published"), target)

    def is_known(self, attribute: str, value: str, a: Namespace) -> bool:
        if attribute in ("schedule", "schedules"):
            return value.partition(":")[0] in SCHEDULE_WORDS
        if attribute in ("source", "images", "reference", "samples") and a.command != "convert":
            return value.partition("/")[0] in SOURCE_WORDS
        models = {**MODELS, **PUBLISHED}
        known = {"model": models, "guide": {**models, "null": None}, "decoder": AUTOENCODERS, "texture": AUTOENCODERS}
        return value in known.get(attribute, ())

    @staticmethod
    def kind(kind: str, value: str, a: Namespace) -> str:
        if kind == "ae" and "embedded" in (getattr(a, "semantic", None) or ()):
            return "ae7"
        if kind == "run" and a.command == "sample" and a.schedule and not a.other_schedule:
            return "surface"
        if kind == "weights":
            return {".pt": "sfd", ".ckpt": "vae"}.get(Path(value).suffix, "model")
        return "adm" if kind == "photos" and value.endswith(".npz") else kind

    def copy(self, kind: str, target: Path) -> None:
        source = self.made(kind)
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)

    def made(self, kind: str) -> Path:
        path = self.root / kind
        if not path.exists():
            getattr(self, f"make_{kind}")(path)
        return path

    def run(self, command: str) -> None:
        arguments = smaller(shlex.split(command))
        assert main(arguments) == 0, command

    def make_photos(self, path: Path) -> None:
        rng = np.random.default_rng(1)
        for i in range(36):
            (path / f"class-{i % 3}").mkdir(parents=True, exist_ok=True)
            picture = Image.fromarray(rng.integers(0, 256, (40, 48, 3), np.uint8))
            picture.save(path / f"class-{i % 3}" / f"{i:03}.png")

    def make_adm(self, path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, arr_0=np.random.default_rng(2).integers(0, 256, (24, SIDE, SIDE, 3), np.uint8))

    def make_ae(self, path: Path, patch: int = 8) -> None:
        torch.manual_seed(0)
        path.mkdir()
        PatchAutoencoder.small(channels=TEXTURE, patch=patch, width=32, depth=1).eval().save(path)

    def make_ae7(self, path: Path) -> None:
        self.make_ae(path, 7)

    def make_pca(self, path: Path) -> None:
        pixels = np.load(self.cache / "cifar10" / "train_images.npy")
        save_pca(PCAFit().update(features(from_uint8(torch.from_numpy(pixels)))).finish(SEMANTIC), path)

    def make_latents(self, path: Path) -> None:
        tools = f"--texture {self.made('ae')} --semantic resnet50:3@64 --compress {self.made('pca')}"
        self.run(f"encode cifar10/train {tools} --features --out {path}")

    def make_schedule(self, path: Path) -> None:
        lwd.save_schedule(lwd.Polynomial.from_shares([[0.5, 0.5]]), path)

    def make_run(self, path: Path) -> None:
        self.run(f"train {self.made('latents')} --preset cifar-small --schedule {self.made('schedule')} --out {path}")

    def make_surface(self, path: Path) -> None:
        self.run(f"probe {self.made('latents')} --preset cifar-small --method surface --out {path}")

    def make_samples(self, path: Path) -> None:
        decoder = self.made("ae")
        self.run(f"sample --model {self.made('run')} --decoder {decoder} --solver heun --steps 2 --out {path}")

    def make_evaluated(self, path: Path) -> None:
        shutil.copytree(self.made("samples"), path)
        self.run(f"evaluate {path} --reference cifar10/test")

    def make_model(self, path: Path) -> None:
        network = busy_network(small_config(lwd.Layout.of(texture=4, semantic=2)))
        lwd.save(lwd.Checkpoint(network, lwd.Offset(0.3)), path)

    def make_published(self, path: Path) -> None:
        network = busy_network(small_config(lwd.Layout.of(texture=4, semantic=2), classes=1000))
        lwd.LWDPipeline(lwd.Checkpoint(network, lwd.Offset(0.3)), autoencoder_from_ldm(ldm()[1])).save_pretrained(path)

    def make_sfd(self, path: Path) -> None:
        layout = lwd.Layout.of(texture=32, semantic=16)  # the published channels, which the pages name
        torch.save({"ema": reference_state(small_config(layout, classes=1000))}, path)

    def make_vae(self, path: Path) -> None:
        torch.save({"state_dict": ldm()[1]}, path)


if __name__ == "__main__":
    stand_in()
    sys.exit(main(sys.argv[1:]))
