"""Settings of fits; importing them does not load torch."""

from typing import Annotated

from pydantic import Field

from lwd.io.records import Record

MAX_SEED = 2**31 - 1


class FitSettings(Record):
    """Settings of all fits."""

    channels: Annotated[int, Field(ge=1)] = 16
    """Latent channels."""
    steps: Annotated[int, Field(ge=1)] = 2000
    """Training steps (PCA has none)."""
    batch: Annotated[int, Field(ge=1)] = 64
    """Images per batch."""
    lr: Annotated[float, Field(gt=0)] = 2e-3
    """Learning rate."""
    kl: Annotated[float, Field(ge=0)] = 1e-6
    """Weight of the KL term."""
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 0
    """Random seed."""
    held_out: Annotated[int, Field(ge=1)] = 500
    """Images held out of the fit, for the report."""
    size: Annotated[int, Field(ge=0)] = 0
    """Crop and scale images to this many pixels; 0 = keep their size."""
    skip_bad: bool = False
    """Skip images that cannot be read instead of stopping."""
    device: str = "cpu"
    """Device to compute on."""


class TextureSettings(FitSettings):
    """Settings of a texture autoencoder."""

    patch: Annotated[int, Field(ge=1)] = 4
    """Pixels per latent position along each side."""
    width: Annotated[int, Field(ge=1)] = 128
    """Width of the transformer."""
    depth: Annotated[int, Field(ge=1)] = 2
    """Blocks in the encoder, and in the decoder."""


class SemVAESettings(FitSettings):
    """Settings of a SemVAE."""

    limit: Annotated[int, Field(ge=1)] = 4000
    """Largest number of images to fit to; their features are kept in memory as float16."""
    width: Annotated[int, Field(ge=0)] = 0
    """Width of the transformer; 0 = width of the features."""
    depth: Annotated[int, Field(ge=1)] = 2
    """Blocks in the encoder, and in the decoder."""
    heads: Annotated[int, Field(ge=1)] = 8
    """Attention heads."""
