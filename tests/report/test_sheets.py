"""Latents in colours: the leading directions, scaled, in place."""

import numpy as np
import torch

from lwd.report.sheets import colours


def test_colours_follow_the_leading_direction():
    """Oracle: latents that differ in one direction only: red falls or rises with it, and nothing else moves."""
    ramp = torch.linspace(-1, 1, 64).reshape(1, 1, 8, 8)
    latents = ramp * torch.tensor([3.0, 0, 0, 4.0])[:, None, None] + 1e-6 * torch.randn(1, 4, 8, 8)
    red = colours(latents)[0, :, :, 0].reshape(-1).astype(int)
    assert abs(np.corrcoef(red, np.arange(64))[0, 1]) > 0.99
    assert red.min() == 0
    assert red.max() == 255


def test_one_and_two_channels_have_colours_too():
    for channels in (1, 2, 3):
        assert colours(torch.randn(2, channels, 4, 4)).shape == (2, 4, 4, 3)
