"""Published models and sampling recipes by name: where the files are, how they are converted, what FID to expect.

Every fact comes from the repository of SFD (github: yuemingPAN/SFD, commit cde82a6: README and configs) and from stored
pages of the hub. The hub's pages give 15.4 GB in all for SFD-Project/SFD, which is exactly two XL, two 1.0B and three B
networks in float32, averaged weights only. The files themselves have not been downloaded here.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lwd.checkpoints.formats import SamplingDefaults
from lwd.errors import InputError, nearest
from lwd.io.files import cache_dir
from lwd.io.records import Record

SFD = "SFD-Project/SFD"
LATENTS = "sdvae_f16d32_semvaebasech16_repadinov2_vitb14_reg/imagenet_train_256"


class HubFile(Record):
    """A file of a repository on the hub."""

    repository: str
    """owner/name."""
    folder: str = ""
    """The folder that must hold it."""
    path: str
    """Its path in that folder; if it is not there, the only file of the same name in the folder."""
    revision: str | None = None
    """The commit to download; null: not known, so the newest, and the one that was downloaded is recorded."""


class Published(Record):
    """What every entry has."""

    about: str
    """One line for the list."""
    gigabytes: float
    """Size of the download, about."""

    def files(self) -> dict[str, HubFile]:
        """Return the files of the entry, by their role."""
        raise NotImplementedError


class PublishedAutoencoder(Published):
    """An LDM-style autoencoder, converted to diffusers' form."""

    weights: HubFile
    channels: int
    """Latent channels."""

    def files(self) -> dict[str, HubFile]:
        return {"weights": self.weights}


class PublishedStatistics(Published):
    """Mean and standard deviation of each group's latents."""

    groups: dict[str, int]
    """Channels by group, in order."""
    statistics: dict[str, HubFile]
    """The file of each group."""

    def files(self) -> dict[str, HubFile]:
        return dict(self.statistics)


class PublishedNetwork(Published):
    """A LightningDiT in SFD's form, converted to a model directory with its statistics and autoencoder."""

    weights: HubFile
    size: str
    """XL/1, 1p0B/1 or B/1: what the shapes of the weights must say."""
    groups: dict[str, int]
    """Channels by group, in order."""
    schedule: str
    """What it was trained under."""
    statistics: dict[str, HubFile]
    """The file of each group."""
    autoencoder: str
    """The published autoencoder that decodes its texture latents."""
    classes: int = 1000
    grid: tuple[int, int] = (16, 16)

    def files(self) -> dict[str, HubFile]:
        return {"weights": self.weights, **self.statistics}


class Recipe(SamplingDefaults):
    """How the samples of a published row were drawn, and their FID; `guide` is a published network, or empty."""

    model: str
    """A published network."""
    atol: float | None = 1e-6
    rtol: float | None = 1e-3
    count: int | None = 50_000
    fid: dict[str, float]
    """FID by the hardware that drew the samples."""

    def fill(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of the recipe, replaced where given; its tolerances belong to its own solver."""
        own = {name: value for name, value in self.model_dump(exclude={"fid"}).items() if value not in (None, "")}
        chosen = {name: value for name, value in given.items() if value is not None}
        if chosen.get("solver", self.solver) != self.solver:
            own = {name: value for name, value in own.items() if name not in ("steps", "atol", "rtol")}
        return own | chosen


def _statistics() -> dict[str, HubFile]:
    names = {"texture": "latents_stats.pt", "semantic": "latents_sv_stats.pt"}
    place = {"repository": SFD, "folder": "imagenet1k-latents"}
    return {group: HubFile(path=f"{LATENTS}/{name}", **place) for group, name in names.items()}


def _network(folder: str, step: str, size: str, gigabytes: float, about: str) -> PublishedNetwork:
    return PublishedNetwork(
        about=about,
        gigabytes=gigabytes,
        weights=HubFile(repository=SFD, folder=f"model_weights/{folder}", path=f"checkpoints/{step}.pt"),
        size=size,
        groups={"texture": 32, "semantic": 16},
        schedule="offset:0.3",
        statistics=_statistics(),
        autoencoder="sd-vae-f16d32",
    )


def _weak(step: str, about: str) -> PublishedNetwork:
    return _network("sfd_autoguidance_b", step, "B/1", 0.55, about)


PUBLISHED: dict[str, Published] = {
    "sfd-xl": _network("sfd_xl", "4000000", "XL/1", 2.73, "SFD-XL, 675M, 800 epochs (4M steps)"),
    "sfd-xl-80": _network("sfd_xl", "0400000", "XL/1", 2.73, "SFD-XL, 675M, 80 epochs (400K steps)"),
    "sfd-xl-weak": _weak("0070000", "guide of sfd-xl and sfd-xl-80: B at 70K steps"),
    "sfd-xxl": _network("sfd_1p0", "4000000", "1p0B/1", 4.15, "SFD-XXL, 1.0B, 800 epochs (4M steps)"),
    "sfd-xxl-80": _network("sfd_1p0", "0400000", "1p0B/1", 4.15, "SFD-XXL, 1.0B, 80 epochs (400K steps)"),
    "sfd-xxl-weak": _weak("0120000", "guide of sfd-xxl: B at 120K steps"),
    "sfd-xxl-80-weak": _weak("0060000", "guide of sfd-xxl-80: B at 60K steps"),
    "sd-vae-f16d32": PublishedAutoencoder(
        about="texture autoencoder of SFD: 32 channels, 1/16 of the pixels along each side",
        gigabytes=0.35,
        weights=HubFile(
            repository="hustvl/va-vae-imagenet256-experimental-variants",
            path="ldm-imagenet256-f16d32-50ep.ckpt",
            revision="462ccc823bc7532704f0df4f25adbf085a4ad235",
        ),
        channels=32,
    ),
    "sfd-statistics": PublishedStatistics(
        about="mean and standard deviation of SFD's ImageNet latents",
        gigabytes=0.0,
        groups={"texture": 32, "semantic": 16},
        statistics=_statistics(),
    ),
}


def _fid(npu: float, gpu: float) -> dict[str, float]:
    return {"16 NPUs": npu, "8 A100 GPUs": gpu}


RECIPES: dict[str, Recipe] = {
    "sfd-xl-80-unguided": Recipe(model="sfd-xl-80", fid=_fid(3.43, 3.50)),
    "sfd-xl-80-autoguidance": Recipe(model="sfd-xl-80", guide="sfd-xl-weak", scale=1.6, fid=_fid(1.30, 1.29)),
    "sfd-xl-800-unguided": Recipe(model="sfd-xl", fid=_fid(2.54, 2.66)),
    "sfd-xl-800-autoguidance": Recipe(model="sfd-xl", guide="sfd-xl-weak", scale=1.5, fid=_fid(1.06, 1.03)),
    "sfd-xxl-80-unguided": Recipe(model="sfd-xxl-80", fid=_fid(2.84, 2.92)),
    "sfd-xxl-80-autoguidance": Recipe(model="sfd-xxl-80", guide="sfd-xxl-80-weak", scale=1.5, fid=_fid(1.19, 1.20)),
    "sfd-xxl-800-unguided": Recipe(model="sfd-xxl", fid=_fid(2.38, 2.36)),
    "sfd-xxl-800-autoguidance": Recipe(model="sfd-xxl", guide="sfd-xxl-weak", scale=1.5, fid=_fid(1.04, 1.04)),
}
"""The rows of SFD's README; the guide is a B network, and guidance acts at all times."""


def find_published(name: str) -> Published:
    """Return an entry of the catalog."""
    if name not in PUBLISHED:
        raise InputError(f"there is no published model {name!r}; {nearest(name, PUBLISHED)}", argument="name")
    return PUBLISHED[name]


def find_recipe(name: str) -> Recipe:
    """Return a recipe by name."""
    if name not in RECIPES:
        raise InputError(f"there is no recipe {name!r}; {nearest(name, RECIPES)}", argument="recipe")
    return RECIPES[name]


def sampling_of(model: str) -> SamplingDefaults:
    """How SFD draws from a published network: solver, tolerances, guide and scale; the count is the user's."""
    own = [recipe for recipe in RECIPES.values() if recipe.model == model]
    chosen = next((recipe for recipe in own if recipe.guide), Recipe(model=model, fid={}))
    values = {name: getattr(chosen, name) for name in ("solver", "atol", "rtol", "guide", "scale")}
    return SamplingDefaults(**{name: value for name, value in values.items() if value not in (None, "")})


def fetched_directory(name: str | os.PathLike[str]) -> Path:
    """Return the directory of a published model in the cache, whether it is fetched or not."""
    return cache_dir() / "models" / str(name)


def locate_published(name: str) -> Path:
    """Return the directory of a published network; if it is not fetched yet, the error says how to."""
    directory = fetched_directory(name)
    if not isinstance(find_published(name), PublishedNetwork):
        raise InputError(f"{name} is not a model that draws samples ({PUBLISHED[name].about})")
    if not (directory / "config.json").is_file():
        raise InputError(f"{name} is published, but not in the cache yet; download it with: lwd fetch {name}")
    return directory
