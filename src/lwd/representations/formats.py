"""config.json of compressors, autoencoders and downloaded encoders."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from lwd.errors import InputError
from lwd.io.records import FileRecord, Record

Count = Annotated[int, Field(ge=1, le=2**20)]
Architecture = Literal["sefi", "rotary"]
"""sefi: the published SemVAE of SeFi-Image. rotary: with 2-D rotary positions, lwd's own before version 2."""


class CompressorFile(FileRecord):
    """Fields of all compressors: the features they were fitted to."""

    encoder: str = ""
    """Identity of the encoder whose features it was fitted to; `lwd encode` checks it if present."""
    grid: tuple[Count, Count] | None = None
    """Rows and columns of those features."""


class PCAFile(CompressorFile):
    """config.json next to pca.safetensors (float64: mean, components, variances, total)."""

    format: Literal["lwd.pca"] = "lwd.pca"
    version: Literal[1] = 1
    features: Count
    """Width of the features."""
    channels: Count
    """Latent channels."""
    explained: float
    """Explained share of the fitted variance."""

    what: ClassVar[str] = "a PCA"


class SemVAEConfig(Record):
    """Shape of a SemVAE; by default about 29M parameters for DINOv2-B (768 features) and 16 channels."""

    features: Count = 768
    """Width of the features."""
    channels: Count = 16
    """Latent channels."""
    width: Count = 0
    """Width of the transformer; 0 = width of the features."""
    depth: Annotated[int, Field(ge=1, le=1000)] = 2
    """Blocks in the encoder, and in the decoder."""
    heads: Count = 12
    """Attention heads."""

    @model_validator(mode="before")
    @classmethod
    def _full_width(cls, value: Any) -> Any:
        if isinstance(value, dict) and not value.get("width"):
            return value | {"width": value.get("features", 768)}
        return value

    @model_validator(mode="after")
    def _heads_fit(self) -> "SemVAEConfig":
        if self.width % self.heads:
            raise InputError(f"width ({self.width}) must be a multiple of heads ({self.heads})", argument="width")
        return self


class SemVAEFile(CompressorFile):
    """config.json next to model.safetensors (the network's parameters, and the mean and std of the features)."""

    format: Literal["lwd.semvae"] = "lwd.semvae"
    version: Literal[1, 2] = 2
    architecture: Architecture | None = None
    """Since version 2; files of version 1 are rotary."""
    network: SemVAEConfig
    """Shape of the network."""

    what: ClassVar[str] = "a SemVAE"

    @model_validator(mode="after")
    def _names_its_architecture(self) -> "SemVAEFile":
        if (self.version == 1) != (self.architecture is None):
            raise InputError(f"version {self.version} must {'not ' if self.version == 1 else ''}name an architecture")
        return self


class PatchAutoencoderFile(CompressorFile):
    """config.json of the small texture autoencoder: a SemVAE over patches of pixels."""

    format: Literal["lwd.patch_autoencoder"] = "lwd.patch_autoencoder"
    version: Literal[1] = 1
    network: SemVAEConfig
    """Shape of the network; `features` is 3 x patch²."""
    patch: Count
    """Pixels per latent position along each side."""

    what: ClassVar[str] = "a patch autoencoder"


class ResNetFile(FileRecord):
    """config.json of the downloaded ResNet-50 in the cache."""

    format: Literal["lwd.resnet50"] = "lwd.resnet50"
    version: Literal[1] = 1
    source: str
    """The package it came from."""

    what: ClassVar[str] = "a ResNet-50"


class EfficientNetFile(FileRecord):
    """config.json of a downloaded EfficientNet-Lite in the cache."""

    format: Literal["lwd.efficientnet"] = "lwd.efficientnet"
    version: Literal[1] = 1
    variant: str
    """efficientnet-lite0, -lite1 or -lite2."""
    source: str
    """The package it came from."""

    what: ClassVar[str] = "an EfficientNet-Lite"
