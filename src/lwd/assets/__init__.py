"""Data and models that ship with the package, by their command-line names."""

from pathlib import Path

FASHION = Path(__file__).parent / "fashion"
MODELS = {"fashion": FASHION / "model", "fashion-weak": FASHION / "weak"}
"""A small model of the embedded data, and its weak partner for AutoGuidance."""
AUTOENCODERS = {"fashion": FASHION / "model" / "vae"}
"""The texture autoencoder of the embedded images: 16 channels on 4x4."""
