"""Commands and 16-bit copies for the scripts that make the shipped models."""

import shutil
import subprocess
import sys
from pathlib import Path

import torch

from lwd.io.tensors import read_safetensors, write_safetensors


def lwd(*arguments: str) -> None:
    """Run a command of lwd, and stop if it fails."""
    print("lwd", *arguments, flush=True)
    subprocess.run([sys.executable, "-m", "lwd", *arguments], check=True)


def pack(weights: dict[str, torch.Tensor], path: Path) -> None:
    """Write weights in half precision, at half the size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
    write_safetensors(path, {name: tensor.contiguous() for name, tensor in half.items()})


def pack_directory(source: Path, target: Path) -> None:
    """Copy the description of a checkpoint or autoencoder, and write its weights in 16 bits; folders in it stay."""
    target.mkdir(parents=True, exist_ok=True)
    for path in target.iterdir():
        if path.is_file():
            path.unlink()
    for path in source.glob("*.json"):
        if path.name != "state.json":
            shutil.copy(path, target)
    pack(read_safetensors(source / "model.safetensors"), target / "model.safetensors")


def size(*folders: Path) -> float:
    """Megabytes of all files in the folders."""
    return sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file()) / 1e6
