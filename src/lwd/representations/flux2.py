"""The texture autoencoder of Flux 2 (diffusers' AutoencoderKLFlux2): 2 x 2 latent pixels as channels, normalised.

Its batch-norm statistics normalise the latents; those of Stable Diffusion and Flux 1, which SeFi-Image also reads, have
a scale and a shift instead. All of them encode to the mean, as the reference does.
"""

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pixel_shuffle, pixel_unshuffle

from lwd.errors import InputError, import_extra, nearest
from lwd.representations.texture import TextureAutoencoder

PATCH = 2
CLASS = "AutoencoderKLFlux2"
KINDS = {"flux2": CLASS, "flux1": "AutoencoderKL", "sd1.5": "AutoencoderKL"}


class Flux2Autoencoder(TextureAutoencoder):
    """A KL autoencoder with 2 x 2 patches as channels and normalised latents."""

    mean: Tensor
    std: Tensor

    def __init__(self, kl: Any) -> None:
        super().__init__()
        self.kl = kl
        self.channels = PATCH**2 * int(kl.config.latent_channels)
        self.factor = PATCH * int(2 ** (len(kl.config.block_out_channels) - 1))
        mean, std = _statistics(kl, self.channels)
        self.register_buffer("mean", mean.reshape(-1, 1, 1), persistent=False)
        self.register_buffer("std", std.reshape(-1, 1, 1), persistent=False)

    def moments(self, images: Tensor) -> tuple[Tensor, Tensor]:
        if images.shape[-2] % self.factor or images.shape[-1] % self.factor:
            size = "x".join(map(str, images.shape[-2:]))
            raise InputError(f"height and width must be multiples of {self.factor}, got {size}", argument="size")
        posterior = self.kl.encode(images.to(self.kl.dtype)).latent_dist
        mean, spread = (pixel_unshuffle(part.float(), PATCH) for part in (posterior.mean, posterior.logvar))
        return (mean - self.mean) / self.std, spread - 2 * self.std.log()

    def decode(self, latents: Tensor) -> Tensor:
        raw = pixel_shuffle(latents.float() * self.std + self.mean, PATCH)
        return self.kl.decode(raw.to(self.kl.dtype)).sample

    def save(self, directory: str | os.PathLike[str]) -> None:
        self.kl.save_pretrained(directory)

    @classmethod
    def read(cls, directory: Path, kind: str = "flux2", dtype: torch.dtype | None = None) -> "Flux2Autoencoder":
        """Read a directory of diffusers; kind: flux2, flux1 or sd1.5."""
        if kind not in KINDS:
            raise InputError(f"there is no texture autoencoder {kind!r}; {nearest(kind, KINDS)}")
        diffusers = import_extra("diffusers", "text", "decoding latents to images")
        network = getattr(diffusers, KINDS[kind], None)
        if network is None:
            raise InputError(f"diffusers {diffusers.__version__} is too old for {kind}; pip install 'lwd[text]'")
        options: dict[str, Any] = {"local_files_only": True, "output_loading_info": True, "use_safetensors": True}
        try:
            kl, info = network.from_pretrained(str(directory), torch_dtype=dtype or torch.float32, **options)
        except (OSError, ValueError, RuntimeError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise InputError(f"{directory} is not a complete {KINDS[kind]} ({reason})") from error
        if missing := sorted(info["missing_keys"]):
            raise InputError(f"{directory} is not a complete {KINDS[kind]}: it lacks {', '.join(missing[:8])}")
        return cls(kl.eval())


def _statistics(kl: Any, channels: int) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the patched latents, (channels,) each."""
    norm = getattr(kl, "bn", None)
    if norm is not None:
        return norm.running_mean.float(), torch.sqrt(norm.running_var.float() + float(kl.config.batch_norm_eps))
    scale, shift = float(kl.config.scaling_factor), float(getattr(kl.config, "shift_factor", None) or 0.0)
    if not scale > 0:
        raise InputError(f"the scaling_factor of the autoencoder must be positive, got {scale}")
    return torch.full((channels,), shift), torch.full((channels,), 1 / scale)
