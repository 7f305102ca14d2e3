"""A linear texture autoencoder: PCA of patches of pixels. It needs no training, and loses only small directions.

The library has none because a trained one is better for its size; the studies use it as the simplest texture latent.
"""

import os
from pathlib import Path

from torch import Tensor
from torch.nn.functional import pixel_shuffle, pixel_unshuffle

from lwd.representations.pca import PCA, PCAFit, load_pca, save_pca
from lwd.representations.texture import TextureAutoencoder


class Patches(TextureAutoencoder):
    """Images (b, 3, h, w) -> principal components of their patches, (b, channels, h / pixels, w / pixels)."""

    def __init__(self, pca: PCA, pixels: int) -> None:
        super().__init__()
        self.pca, self.factor, self.channels = pca, pixels, pca.channels

    @classmethod
    def fit(cls, images: Tensor, pixels: int, channels: int) -> "Patches":
        return cls(PCAFit().update(pixel_unshuffle(images, pixels)).finish(channels), pixels)

    def moments(self, images: Tensor) -> tuple[Tensor, Tensor]:
        mean = self.pca.encode(pixel_unshuffle(images, self.factor))
        return mean, mean.new_full(mean.shape, -30.0)

    def decode(self, latents: Tensor) -> Tensor:
        return pixel_shuffle(self.pca.decode(latents), self.factor)

    def save(self, directory: str | os.PathLike[str]) -> None:
        save_pca(self.pca, directory)

    @classmethod
    def read(cls, directory: Path, pixels: int) -> "Patches":
        return cls(load_pca(directory), pixels)
