"""The texture autoencoder: images in [-1, 1] to latents and back.

It is diffusers' AutoencoderKL: with attention blocks at the lowest resolution it is the LDM autoencoder exactly.
"""

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lwd.errors import InputError, import_extra


class TextureAutoencoder(nn.Module):
    """A KL autoencoder behind three methods: `moments`, `encode`, `decode`."""

    def __init__(self, kl: Any) -> None:
        super().__init__()
        self.kl = kl

    @property
    def channels(self) -> int:
        return int(self.kl.config.latent_channels)

    @property
    def factor(self) -> int:
        """Pixels per latent position along each side."""
        return int(2 ** (len(self.kl.config.block_out_channels) - 1))

    def moments(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance of the latents of images (b, 3, h, w) in [-1, 1]."""
        posterior = self.kl.encode(images).latent_dist
        return posterior.mean, posterior.logvar

    def encode(self, images: Tensor) -> Tensor:
        """The latents' mean."""
        return self.moments(images)[0]

    def decode(self, latents: Tensor) -> Tensor:
        """Images (b, 3, h, w), about in [-1, 1]."""
        images: Tensor = self.kl.decode(latents).sample
        return images

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write diffusers' own form: config.json and diffusion_pytorch_model.safetensors."""
        self.kl.save_pretrained(directory)

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> "TextureAutoencoder":
        """Read a directory in diffusers' form, ours or anyone's."""
        diffusers = import_extra("diffusers", "images", "decoding latents to images")
        if not (Path(directory) / "config.json").is_file():
            raise InputError(f"{directory} is not an autoencoder: it has no config.json")
        try:
            kl = diffusers.AutoencoderKL.from_pretrained(str(directory), local_files_only=True)
        except (OSError, ValueError, RuntimeError, TypeError) as error:
            raise InputError(f"{directory} is not a whole AutoencoderKL ({str(error).splitlines()[0]})") from error
        return cls(kl.eval())


def to_uint8(images: Tensor) -> Tensor:
    """(b, 3, h, w) in [-1, 1] -> (b, h, w, 3) uint8, by clamp(127.5 x + 128, 0, 255)."""
    return torch.clamp(127.5 * images.float() + 128, 0, 255).permute(0, 2, 3, 1).to(torch.uint8)
