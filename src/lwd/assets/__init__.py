"""Data and models that ship with the package, by their command-line names."""

from pathlib import Path

FASHION, CIFAR = (Path(__file__).parent / name for name in ("fashion", "cifar"))
MODELS = {
    f"{folder.name}{suffix}": folder / kind
    for folder in (FASHION, CIFAR)
    for suffix, kind in (("", "model"), ("-weak", "weak"))
}
"""A small model of the embedded data, one of CIFAR-10, and their weak partners for AutoGuidance."""
AUTOENCODERS = {folder.name: folder / "model" / "vae" for folder in (FASHION, CIFAR)}
"""Their texture autoencoders: 16 channels of 28 px images and 32 of 32 px images, both on 4x4."""
