"""Settings of fits; importing them does not load torch."""

from typing import Annotated

from pydantic import Field, model_validator

from lwd.errors import InputError
from lwd.io.records import Record

MAX_SEED = 2**31 - 1
EPOCHS = 4
"""Default passes of a SemVAE over its images."""


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

    steps: Annotated[int, Field(ge=0)] = 0
    """Training steps, instead of epochs (default: as many as the epochs take)."""
    epochs: Annotated[int, Field(ge=0)] = 0
    """Passes over the training images (default 4, unless steps are given)."""
    limit: Annotated[int, Field(ge=0)] = 0
    """Fit to at most this many images, with their features in memory as float16; 0 = stream all images."""
    lr: Annotated[float, Field(gt=0)] = 1e-3
    """Learning rate."""
    kl: Annotated[float, Field(ge=0)] = 1e-6
    """Weight of the KL term, summed over the channels and positions of an image."""
    loaders: Annotated[int, Field(ge=1)] = 4
    """Threads that read images ahead of training."""
    width: Annotated[int, Field(ge=0)] = 0
    """Width of the transformer; 0 = width of the features."""
    depth: Annotated[int, Field(ge=1)] = 2
    """Blocks in the encoder, and in the decoder."""
    heads: Annotated[int, Field(ge=1)] = 8
    """Attention heads."""

    @model_validator(mode="after")
    def _one_length(self) -> "SemVAESettings":
        if self.steps and self.epochs:
            raise InputError(f"set steps ({self.steps}) or epochs ({self.epochs}), not both", argument="epochs")
        return self

    def with_steps(self, images: int) -> "SemVAESettings":
        """Return the same settings with steps in place of epochs, for so many training images."""
        steps = self.steps or -(-(self.epochs or EPOCHS) * images // self.batch)
        return self.changed(steps=steps, epochs=0)
