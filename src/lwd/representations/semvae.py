"""SemVAE: a small transformer VAE that compresses per-patch features into a few channels (SFD's semantic latents).

Two architectures share this file. "sefi" is the published one of SeFi-Image: exact GELU and no positions, so the grid
enters only through the features. "rotary" adds 2-D rotary positions; the patch autoencoder needs them.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, mse_loss

from lwd.errors import InputError
from lwd.io.files import atomic_directory
from lwd.io.tensors import mismatches, read_safetensors, write_safetensors
from lwd.models.layers import GELU, Attention, rotary_table
from lwd.representations.encoders import Origin, check_width
from lwd.representations.formats import Architecture, SemVAEConfig, SemVAEFile


@dataclass(frozen=True)
class SemVAELosses:
    """The total, and its terms before weighting: squared error, 1 - cosine, KL divergence per latent value."""

    total: Tensor
    mse: Tensor
    cosine: Tensor
    kl: Tensor


class SemVAE(nn.Module):
    """Encode features (b, d, h, w) to latents (b, c, h, w) and back, with one token per position."""

    def __init__(self, config: SemVAEConfig, architecture: Architecture = "rotary") -> None:
        super().__init__()
        self.config, self.architecture, d, width = config, architecture, config.features, config.width
        self.origin = Origin()
        self.statistics: tuple[Tensor, Tensor] | None = None
        """Mean and standard deviation of the latents (c), where published with the weights."""
        rotary = architecture == "rotary"
        if rotary and width % (4 * config.heads):
            raise InputError(f"width ({width}) must be a multiple of 4 x heads ({config.heads})", argument="width")
        approximate = "tanh" if rotary else "none"
        self.from_features = nn.Identity() if rotary and width == d else nn.Linear(d, width)
        self.encoder = nn.ModuleList(_Block(width, config.heads, approximate) for _ in range(config.depth))
        self.to_moments = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * config.channels))
        self.from_latents = nn.Linear(config.channels, width)
        self.decoder = nn.ModuleList(_Block(width, config.heads, approximate) for _ in range(config.depth))
        self.to_features = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, d))
        # Normalises the features, so that the network does not have to learn their scale.
        self.register_buffer("mean", torch.zeros(d))
        self.register_buffer("std", torch.ones(d))

    mean: Tensor
    std: Tensor

    @property
    def channels(self) -> int:
        return self.config.channels

    def set_scale(self, mean: Tensor, std: Tensor) -> None:
        """Set the per-channel mean and standard deviation of the features, before training."""
        self.mean.copy_(mean)
        self.std.copy_(std.clamp(min=1e-6))

    def moments(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log variance of the latents: two (b, c, h, w)."""
        check_width(features, self.config.features)
        tokens = ((features - self.mean[:, None, None]) / self.std[:, None, None]).flatten(2).transpose(1, 2)
        tokens = self._run(self.encoder, self.from_features(tokens), features)
        mean, logvar = _maps(self.to_moments(tokens), features).chunk(2, dim=1)
        return mean, logvar.clamp(-30, 20)

    def encode(self, features: Tensor) -> Tensor:
        """Return the mean of the latents."""
        return self.moments(features)[0]

    def decode(self, latents: Tensor) -> Tensor:
        """Return features (b, d, h, w)."""
        tokens = self._run(self.decoder, self.from_latents(latents.flatten(2).transpose(1, 2)), latents)
        return _maps(self.to_features(tokens), latents) * self.std[:, None, None] + self.mean[:, None, None]

    def losses(self, features: Tensor, noise: Tensor, cosine: float = 1.0, kl: float = 1e-6) -> SemVAELosses:
        """MSE (on the normalised scale) + cosine (1 - cos) + kl KL(q || N(0, I)); noise: (b, c, h, w)."""
        mean, logvar = self.moments(features)
        decoded = self.decode(mean + torch.exp(0.5 * logvar) * noise)
        scale = self.std[:, None, None]
        squared = mse_loss(decoded / scale, features / scale)
        direction = (1 - cosine_similarity(decoded, features, dim=1)).mean()
        divergence = kl_divergence(mean, logvar).mean() / mean[0].numel()
        return SemVAELosses(squared + cosine * direction + kl * divergence, squared, direction, divergence)

    def _run(self, blocks: nn.ModuleList, tokens: Tensor, like: Tensor) -> Tensor:
        rotary = None
        if self.architecture == "rotary":
            cos, sin = rotary_table(like.shape[2], like.shape[3], tokens.shape[-1] // self.config.heads)
            rotary = (cos.to(like.device), sin.to(like.device))
        for block in blocks:
            tokens = block(tokens, rotary)
        return tokens


def kl_divergence(mean: Tensor, logvar: Tensor) -> Tensor:
    """KL(q || N(0, I)) of each sample, summed over channels and positions: (b, c, h, w) -> (b,)."""
    return 0.5 * (mean.square() + logvar.exp() - 1 - logvar).flatten(1).sum(1)


class _Block(nn.Module):
    """Pre-norm attention (with or without 2-D rotary positions) and MLP."""

    def __init__(self, width: int, heads: int, approximate: str) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads, qk_norm=False)
        self.mlp = GELU(width, 4 * width, approximate)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor] | None) -> Tensor:
        x = x + self.attn(self.norm1(x), rotary)
        return x + self.mlp(self.norm2(x))


def _maps(tokens: Tensor, like: Tensor) -> Tensor:
    return tokens.transpose(1, 2).reshape(len(tokens), -1, *like.shape[2:])


def save_semvae(model: SemVAE, directory: str | os.PathLike[str], replace: bool = False) -> None:
    """Write config.json and model.safetensors atomically; a rotary SemVAE as version 1, which earlier lwd reads too."""
    old = model.architecture == "rotary"
    kind = {"version": 1} if old else {"version": 2, "architecture": model.architecture}
    with atomic_directory(directory, replace) as folder:
        write_safetensors(folder / "model.safetensors", model.state_dict())
        SemVAEFile(network=model.config, **kind, **model.origin.keys()).write(folder / "config.json")


def load_semvae(directory: str | os.PathLike[str]) -> SemVAE:
    """Read what `save_semvae` wrote, frozen and in eval mode."""
    record = SemVAEFile.read(Path(directory) / "config.json")
    origin = Origin(record.encoder, record.grid)
    return load_weights(Path(directory), record.network, origin, record.architecture or "rotary")


def load_weights(
    directory: Path, config: SemVAEConfig, origin: Origin, architecture: Architecture = "rotary"
) -> SemVAE:
    """Build a network of this shape with the weights in model.safetensors."""
    return build_semvae(config, architecture, read_safetensors(directory / "model.safetensors"), origin, directory)


def build_semvae(
    config: SemVAEConfig, architecture: Architecture, state: Mapping[str, Tensor], origin: Origin, where: Path
) -> SemVAE:
    """Build a network with these weights, frozen and in eval mode; errors name the file or directory `where`."""
    with torch.device("meta"):
        model = SemVAE(config, architecture)
    problems = mismatches({name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}, state)
    if problems:
        raise InputError(f"{where}: " + "; ".join(problems))
    # Weights may be stored in 16 bits, but these small networks always compute in 32.
    model.load_state_dict({name: tensor.float() for name, tensor in state.items()}, assign=True)
    model.origin = origin
    return model.requires_grad_(False).eval()
