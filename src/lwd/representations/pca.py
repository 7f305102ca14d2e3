"""Exact PCA of feature maps in one pass over the data."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from lwd.compute.moments import Moments
from lwd.errors import InputError
from lwd.io.files import atomic_directory
from lwd.io.tensors import mismatches, read_safetensors, write_safetensors
from lwd.representations.encoders import Origin, check_width
from lwd.representations.formats import PCAFile

TENSORS = ("mean", "components", "variances", "total")


@dataclass(frozen=True)
class PCA:
    """Principal directions of per-position features: mean (d,), components (k, d), variances (k,), total variance."""

    mean: Tensor
    components: Tensor
    variances: Tensor
    total: Tensor
    origin: Origin = field(default_factory=Origin)

    @property
    def channels(self) -> int:
        return len(self.components)

    @property
    def explained(self) -> float:
        """Explained share of the variance of the fitted data."""
        return float(self.variances.sum() / self.total)

    def encode(self, features: Tensor) -> Tensor:
        """(b, d, h, w) -> (b, k, h, w)."""
        check_width(features, len(self.mean))
        centred = features - self.mean.to(features)[:, None, None]
        return torch.einsum("kd,bdhw->bkhw", self.components.to(features), centred)

    def decode(self, latents: Tensor) -> Tensor:
        """(b, k, h, w) -> (b, d, h, w)."""
        features = torch.einsum("kd,bkhw->bdhw", self.components.to(latents), latents)
        return features + self.mean.to(latents)[:, None, None]

    def explained_on(self, features: Tensor) -> float:
        """Explained share of the variance of other features (around the fitted mean), for held-out data."""
        centred = features - self.mean.to(features)[:, None, None]
        lost = features - self.decode(self.encode(features))
        return float(1 - lost.square().sum() / centred.square().sum())


class PCAFit(Moments):
    """Streaming mean and covariance in float64; call `update` with any chunks of feature maps, then `finish`."""

    def update(self, features: Tensor) -> Self:
        """Add features (b, d, h, w); every position counts as one vector."""
        rows = features.detach().transpose(0, 1).flatten(1).T
        if not torch.isfinite(rows).all():
            raise InputError("features contain NaN or infinity; the encoder failed on some image")
        return super().update(rows)

    def finish(self, channels: int) -> PCA:
        """Return the first `channels` directions, each with its largest entry positive to fix the sign."""
        if not 1 <= channels <= len(self.mean):
            raise InputError(
                f"PCA of features of {len(self.mean)} channels has 1 to {len(self.mean)} directions, got {channels}"
            )
        if self.count <= channels:
            raise InputError(f"{channels} directions need more than {channels} vectors, got {self.count}")
        values, vectors = torch.linalg.eigh(self.covariance)
        components = vectors.T.flip(0)[:channels]
        largest = components.gather(1, components.abs().argmax(1, keepdim=True))
        variances = values.flip(0)[:channels].clamp(min=0)
        return PCA(self.mean, components * largest.sign(), variances, values.sum())


def save_pca(pca: PCA, directory: str | os.PathLike[str], replace: bool = False) -> None:
    """Write config.json and pca.safetensors atomically."""
    with atomic_directory(directory, replace) as folder:
        tensors = {name: getattr(pca, name).contiguous() for name in TENSORS}
        write_safetensors(folder / "pca.safetensors", tensors)
        numbers: dict[str, Any] = {"features": len(pca.mean), "channels": pca.channels, "explained": pca.explained}
        PCAFile(**numbers, **pca.origin.keys()).write(folder / "config.json")


def load_pca(directory: str | os.PathLike[str]) -> PCA:
    """Read what `save_pca` wrote."""
    record = PCAFile.read(Path(directory) / "config.json")
    d, k = record.features, record.channels
    tensors = read_safetensors(Path(directory) / "pca.safetensors")
    problems = mismatches({"mean": (d,), "components": (k, d), "variances": (k,), "total": ()}, tensors)
    if problems:
        raise InputError(f"{directory}: " + "; ".join(problems))
    return PCA(**tensors, origin=Origin(record.encoder, record.grid))
