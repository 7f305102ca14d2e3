"""Layers of LightningDiT: norms, attention with 2-D rotary embedding, gated MLPs, embedders, adaLN-zero blocks."""

import math
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

FREQUENCIES = 256
"""Width of the sinusoidal time embedding."""
MAX_PERIOD = 10_000.0
BACKEND = "inductor"
"""Backend of torch.compile."""


class RMSNorm(nn.Module):
    """x / sqrt(mean x^2 + eps) * weight, computed in float32."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype in (torch.float16, torch.bfloat16):
            return rms_norm(x.float(), self.weight.shape, self.weight.float(), self.eps).to(x.dtype)
        # Sharded weights may be bf16 beside a float32 residual stream.
        return rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


def make_norm(kind: str, width: int) -> nn.Module:
    """Build a norm: "rms" has a weight; "layer" is DiT's LayerNorm, which has no parameters."""
    return RMSNorm(width) if kind == "rms" else nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)


class Attention(nn.Module):
    """Multi-head self-attention, optionally with normalised queries and keys and rotary embedding."""

    def __init__(self, width: int, heads: int, qk_norm: bool) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.q_norm = RMSNorm(width // heads) if qk_norm else nn.Identity()
        self.k_norm = RMSNorm(width // heads) if qk_norm else nn.Identity()
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor] | None) -> Tensor:
        """x: (b, n, d); rotary: cosines and sines (n, head)."""
        b, n, d = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = self.q_norm(q), self.k_norm(k)
        if rotary is not None:
            q, k = rotate(q, *rotary), rotate(k, *rotary)
        out = scaled_dot_product_attention(q, k, v)
        return self.proj(out.transpose(1, 2).reshape(b, n, d))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (x_2i, x_2i+1) by its angle: (..., n, head) with (n, head) tables of `rotary_table`.

    Pairs are exchanged as a block instead of read with a stride: on a GPU a strided read takes twice the traffic.
    """
    exchanged = x.reshape(*x.shape[:-1], -1, 2).flip(-1).flatten(-2)
    return torch.addcmul(x * cos.to(x.dtype), exchanged, sin.to(x.dtype))


class SwiGLU(nn.Module):
    """w3(silu(a) * b) with a, b = w12(x)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.w12 = nn.Linear(width, 2 * hidden)
        self.w3 = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.w12(x).chunk(2, dim=-1)
        return self.w3(silu(gate) * value)


class GELU(nn.Module):
    """DiT's MLP: fc2(gelu_tanh(fc1(x))); approximate="none" is the exact GELU."""

    def __init__(self, width: int, hidden: int, approximate: str = "tanh") -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.act = nn.GELU(approximate)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class Block(nn.Module):
    """Attention and MLP, each shifted, scaled and gated by the conditioning (adaLN-zero)."""

    compiled: bool = False

    def __init__(self, width: int, heads: int, hidden: int, norm: str, mlp: str, qk_norm: bool, shift: bool) -> None:
        super().__init__()
        self.shift = shift
        self.norm1, self.norm2 = make_norm(norm, width), make_norm(norm, width)
        self.attn = Attention(width, heads, qk_norm)
        self.mlp: nn.Module = SwiGLU(width, hidden) if mlp == "swiglu" else GELU(width, hidden)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, (6 if shift else 4) * width))

    def forward(self, x: Tensor, c: Tensor, rotary: tuple[Tensor, Tensor] | None) -> Tensor:
        run = compiled_block(BACKEND) if self.compiled else Block.run
        return run(self, x, c, rotary)

    def run(self, x: Tensor, c: Tensor, rotary: tuple[Tensor, Tensor] | None) -> Tensor:
        parts = self.adaLN_modulation(c)[:, None].chunk(6 if self.shift else 4, dim=-1)
        if self.shift:
            shift1, scale1, gate1, shift2, scale2, gate2 = parts
        else:
            (scale1, gate1, scale2, gate2), shift1, shift2 = parts, None, None
        x = torch.addcmul(x, gate1, self.attn(modulate(self.norm1(x), shift1, scale1), rotary))
        return torch.addcmul(x, gate2, self.mlp(modulate(self.norm2(x), shift2, scale2)))


@cache
def compiled_block(backend: str) -> Callable[..., Tensor]:
    """Return the compiled block, shared by all blocks of all networks: compiling takes the time of one.

    A function of the block, not a bound method: a deep copy (such as an EMA) must use its own weights. Hooks of DDP
    and FSDP2 stay outside.
    """
    return torch.compile(Block.run, fullgraph=True, backend=backend)


class FinalLayer(nn.Module):
    """Norm, modulation and the linear map from tokens to patches."""

    def __init__(self, width: int, out: int, norm: str) -> None:
        super().__init__()
        self.norm_final = make_norm(norm, width)
        self.linear = nn.Linear(width, out)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 2 * width))

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        shift, scale = self.adaLN_modulation(c)[:, None].chunk(2, dim=-1)
        return self.linear(modulate(self.norm_final(x), shift, scale))


def modulate(x: Tensor, shift: Tensor | None, scale: Tensor) -> Tensor:
    """x (1 + scale) + shift."""
    return x * (1 + scale) if shift is None else torch.addcmul(shift, x, 1 + scale)


class ClockEmbedder(nn.Module):
    """A group's local time in [0, 1] as a vector: sinusoids (cosines first), then a small MLP."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(FREQUENCIES, width), nn.SiLU(), nn.Linear(width, width))

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def forward(self, t: Tensor) -> Tensor:
        """t: (b,) -> (b, width)."""
        half = FREQUENCIES // 2
        steps = torch.arange(half, dtype=torch.float32, device=t.device)
        angles = t.float()[:, None] * torch.exp(-math.log(MAX_PERIOD) * steps / half)
        return self.mlp(torch.cat([angles.cos(), angles.sin()], dim=-1).to(self.dtype))


class PatchEmbedder(nn.Module):
    """Non-overlapping patches to tokens: (b, c, h, w) -> (b, n, width), row by row."""

    def __init__(self, channels: int, patch: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, width, patch, stride=patch)

    def forward(self, z: Tensor) -> Tensor:
        if self.proj.kernel_size == (1, 1):  # use a matrix product: convolutions are slow on CPUs
            return linear(z.flatten(2).transpose(1, 2), self.proj.weight.flatten(1), self.proj.bias)
        return self.proj(z).flatten(2).transpose(1, 2)


class LabelEmbedder(nn.Module):
    """Class labels as vectors; the last row of the table is the null label, if there is one."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.embedding_table = nn.Embedding(rows, width)

    def forward(self, label: Tensor) -> Tensor:
        return self.embedding_table(label)


def position_table(height: int, width: int, channels: int) -> Tensor:
    """MAE's fixed 2-D sine-cosine embedding: (1, height * width, channels); first half by column, second by row."""
    quarter = channels // 4
    omega = 1 / MAX_PERIOD ** (torch.arange(quarter, dtype=torch.float64) / quarter)
    rows, columns = torch.meshgrid(
        torch.arange(height, dtype=torch.float64), torch.arange(width, dtype=torch.float64), indexing="ij"
    )
    parts = []
    for coordinate in (columns, rows):
        angles = coordinate.reshape(-1, 1) * omega
        parts += [angles.sin(), angles.cos()]
    return torch.cat(parts, dim=1).float()[None]


def rotary_table(height: int, width: int, head: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines (height * width, head): half of the pairs rotate by row, the other half by column.

    Both values of a pair have the same cosine; the sine of the first is negative, as `rotate` needs it.
    """
    quarter = head // 4
    omega = 1 / MAX_PERIOD ** (torch.arange(quarter, dtype=torch.float32) * 2 / (head // 2))
    by_row = torch.arange(height, dtype=torch.float32)[:, None, None] * omega
    by_column = torch.arange(width, dtype=torch.float32)[None, :, None] * omega
    angles = torch.cat([by_row.expand(height, width, -1), by_column.expand(height, width, -1)], dim=-1)
    angles = angles.reshape(height * width, head // 2)
    cos, sin = angles.cos(), angles.sin()
    return torch.stack([cos, cos], -1).flatten(-2), torch.stack([-sin, sin], -1).flatten(-2)
