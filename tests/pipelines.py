"""Small pipelines of random networks, for tests of sampling and of what is built on it."""

import torch

import lwd
from lwd import LWDPipeline
from lwd.representations.ldm import autoencoder_from_ldm
from lwd.representations.texture import PatchAutoencoder
from reference import busy_network, ldm, small_config

LAYOUT = lwd.Layout.of(texture=4, semantic=2)


def three_classes(seed=0, schedule=None):
    """A busy network of three classes, with a decoder to 8x8 pixels."""
    config = small_config(LAYOUT, classes=3)
    torch.manual_seed(1)
    autoencoder = PatchAutoencoder.small(channels=4, patch=2, width=32, depth=1).eval()
    return LWDPipeline(lwd.Checkpoint(busy_network(config, seed), schedule or lwd.Offset(0.3)), autoencoder)


def with_statistics(seed=0, autoencoder=True, schedule=None):
    """A busy network of five classes with normalised latents and the decoder of the LDM fixture."""
    config = small_config(LAYOUT, grid=(4, 4))
    statistics = lwd.Statistics(
        {"texture": torch.full((4,), 0.5), "semantic": torch.zeros(2)},
        {"texture": torch.full((4,), 2.0), "semantic": torch.ones(2)},
    )
    point = lwd.Checkpoint(busy_network(config, seed), schedule or lwd.Offset(0.3), statistics)
    return LWDPipeline(point, autoencoder_from_ldm(ldm()[1]) if autoencoder else None)
