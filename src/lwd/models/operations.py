"""Operations and parameters of a LightningDiT, from its configuration alone."""

from functools import cache

import torch

from lwd.models.lightningdit import LightningDiT, LightningDiTConfig, parameter_count


def forward_operations(c: LightningDiTConfig) -> float:
    """Multiplications and additions of one image's forward pass: matrices, attention, modulation, projector, ends."""
    rows, columns = c.tokens(*c.grid)
    tokens, d, m, channels = rows * columns, c.width, c.mlp_width, c.layout.channels * c.patch**2
    mlp = 3 * d * m if c.mlp == "swiglu" else 2 * d * m
    blocks = c.depth * (2 * tokens * (4 * d**2 + mlp) + 4 * tokens**2 * d + 2 * 6 * d**2)
    each, rest = divmod(d, len(c.layout))
    clocks = sum(2 * w * (256 + w) for w in (each + (i < rest) for i in range(len(c.layout))))
    ends = 2 * tokens * d * channels * (3 if c.learned_sigma else 2) + 2 * 2 * d**2 + clocks
    p = c.projector_width
    projector = 2 * tokens * (d * p + p**2 + p * c.features) if c.tap else 0
    return float(blocks + ends + projector)


@cache
def parameters(c: LightningDiTConfig) -> int:
    """Trainable parameters, counted without allocating them."""
    with torch.device("meta"):
        return parameter_count(LightningDiT(c))
