"""Texture autoencoders: images in [-1, 1] to latents and back.

Published ones use diffusers' AutoencoderKL (with attention blocks at the lowest resolution it equals the LDM
autoencoder). For small images lwd has its own, a transformer over patches that a CPU can train.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pixel_shuffle, pixel_unshuffle

from lwd.assets import AUTOENCODERS
from lwd.errors import InputError, import_extra
from lwd.io.files import cache_dir, read_json
from lwd.io.tensors import write_safetensors
from lwd.representations.encoders import Origin
from lwd.representations.formats import PatchAutoencoderFile, SemVAEConfig
from lwd.representations.semvae import SemVAE, SemVAELosses, load_weights


def locate_autoencoder(name: str | os.PathLike[str]) -> Path:
    """Return a directory, or that of the shipped or fetched autoencoder with this name."""
    if Path(name, "config.json").is_file():
        return Path(name)
    fetched = cache_dir() / "models" / Path(name).name
    if Path(name).name == str(name) and (fetched / "config.json").is_file():
        return fetched
    return AUTOENCODERS.get(str(name), Path(name))


class TextureAutoencoder(nn.Module, ABC):
    """The interface of texture autoencoders; `load` reads any of them."""

    channels: int
    factor: int
    """Pixels per latent position along each side."""

    @abstractmethod
    def moments(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log variance of the latents of images (b, 3, h, w) in [-1, 1]."""

    @abstractmethod
    def decode(self, latents: Tensor) -> Tensor:
        """Return images (b, 3, h, w), approximately in [-1, 1]."""

    @abstractmethod
    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write config.json and weights into an existing directory."""

    def encode(self, images: Tensor) -> Tensor:
        """Return the mean of the latents."""
        return self.moments(images)[0]

    @staticmethod
    def load(directory: str | os.PathLike[str]) -> "TextureAutoencoder":
        """Read a directory of lwd or diffusers, or the shipped autoencoder `fashion`."""
        directory = locate_autoencoder(directory)
        path = directory / "config.json"
        if not path.is_file():
            raise InputError(
                f"{directory} is not an autoencoder: it has no config.json; a published one is downloaded by lwd fetch"
            )
        value = read_json(path)
        if isinstance(value, Mapping) and value.get("format") == PatchAutoencoderFile.format_name():
            return PatchAutoencoder.read(Path(directory))
        if is_flux2(value):
            from lwd.representations.flux2 import Flux2Autoencoder  # a subclass

            return Flux2Autoencoder.read(Path(directory))
        return KLAutoencoder.read(Path(directory))


def is_flux2(config: Any) -> bool:
    """Whether a parsed config.json is that of Flux 2's autoencoder."""
    return isinstance(config, Mapping) and config.get("_class_name") == "AutoencoderKLFlux2"


class KLAutoencoder(TextureAutoencoder):
    """diffusers' AutoencoderKL."""

    def __init__(self, kl: Any) -> None:
        super().__init__()
        self.kl = kl
        self.channels = int(kl.config.latent_channels)
        self.factor = int(2 ** (len(kl.config.block_out_channels) - 1))

    def moments(self, images: Tensor) -> tuple[Tensor, Tensor]:
        posterior = self.kl.encode(images).latent_dist
        return posterior.mean, posterior.logvar

    def decode(self, latents: Tensor) -> Tensor:
        return self.kl.decode(latents).sample

    def save(self, directory: str | os.PathLike[str]) -> None:
        self.kl.save_pretrained(directory)

    @classmethod
    def read(cls, directory: Path) -> "KLAutoencoder":
        diffusers = import_extra("diffusers", "images", "decoding latents to images")
        _check_kl_config(directory / "config.json")
        safe = (directory / "diffusion_pytorch_model.safetensors").is_file()
        try:
            kl, info = diffusers.AutoencoderKL.from_pretrained(
                str(directory), local_files_only=True, output_loading_info=True, use_safetensors=safe
            )
        except Exception as error:  # diffusers raises errors of every kind on damaged files
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise InputError(f"{directory} is not a complete AutoencoderKL ({reason})") from error
        missing = sorted(info["missing_keys"])
        if missing:
            raise InputError(f"{directory} is not a complete AutoencoderKL: it lacks {', '.join(missing[:8])}")
        return cls(kl.eval())


def _check_kl_config(path: Path) -> None:
    """Bound the numbers of a diffusers configuration: a damaged file must not ask for all of the memory."""
    value = read_json(path)
    if not isinstance(value, Mapping):
        raise InputError(f"{path} is not the configuration of an AutoencoderKL")
    for key, given in value.items():
        numbers = given if isinstance(given, list) else [given]
        if len(numbers) > 4096 or any(isinstance(n, int | float) and abs(n) > 2**16 for n in numbers):
            raise InputError(f"{path}: {key} is out of range, got {str(given)[:60]}")
    if type(value.get("layers_per_block", 1)) is not int or value.get("layers_per_block", 1) > 100:
        raise InputError(f"{path}: layers_per_block must be an integer up to 100")


class PatchAutoencoder(TextureAutoencoder):
    """A small KL autoencoder for images of 28 to 64 px: a transformer over patches, without convolutions."""

    def __init__(self, vae: SemVAE, patch: int = 4) -> None:
        super().__init__()
        if vae.config.features != 3 * patch**2:
            raise InputError(
                f"patches of {patch} px have {3 * patch**2} values, but the network has {vae.config.features} features"
            )
        self.vae, self.patch = vae, patch
        self.channels, self.factor = vae.channels, patch

    @classmethod
    def small(cls, channels: int = 16, patch: int = 4, width: int = 128, depth: int = 2) -> "PatchAutoencoder":
        """Build an untrained autoencoder with heads of width 32."""
        if patch < 1:
            raise InputError(f"a patch needs at least 1 pixel along each side, got {patch}")
        heads = max(1, width // 32)
        return cls(
            SemVAE(SemVAEConfig(features=3 * patch**2, channels=channels, width=width, depth=depth, heads=heads)), patch
        )

    def moments(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return self.vae.moments(self._patches(images))

    def _patches(self, images: Tensor) -> Tensor:
        if images.shape[-2] % self.patch or images.shape[-1] % self.patch:
            raise InputError(f"images of {tuple(images.shape[-2:])} cannot be cut into patches of {self.patch}")
        return pixel_unshuffle(images, self.patch)

    def decode(self, latents: Tensor) -> Tensor:
        return pixel_shuffle(self.vae.decode(latents), self.patch)

    def losses(self, images: Tensor, noise: Tensor, kl: float) -> SemVAELosses:
        """Squared error + kl KL; noise: (b, c, h, w)."""
        return self.vae.losses(self._patches(images), noise, cosine=0.0, kl=kl)

    def save(self, directory: str | os.PathLike[str]) -> None:
        write_safetensors(Path(directory) / "model.safetensors", self.vae.state_dict())
        PatchAutoencoderFile(network=self.vae.config, patch=self.patch).write(Path(directory) / "config.json")

    @classmethod
    def read(cls, directory: Path) -> "PatchAutoencoder":
        """Read what `save` wrote."""
        record = PatchAutoencoderFile.read(directory / "config.json")
        return cls(load_weights(directory, record.network, Origin()), record.patch).eval()


def to_uint8(images: Tensor) -> Tensor:
    """(b, 3, h, w) in [-1, 1] -> (b, h, w, 3) uint8, by clamp(127.5 x + 128, 0, 255)."""
    return torch.clamp(127.5 * images.float() + 128, 0, 255).permute(0, 2, 3, 1).to(torch.uint8)


def from_uint8(pixels: Tensor) -> Tensor:
    """(b, h, w, 3) uint8 -> (b, 3, h, w) float32 in [-1, 1]: x / 127.5 - 1."""
    return pixels.permute(0, 3, 1, 2).float() / 127.5 - 1


def psnr(images: Tensor, others: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB of each image, for images in [-1, 1] (peak to peak 2): (b,)."""
    error = (images.clamp(-1, 1) - others.clamp(-1, 1)).square().flatten(1).mean(1)
    return 10 * torch.log10(4 / error.clamp(min=1e-12))
