"""SeFi-Image's network: diffusers' Flux 2 transformer with one clock for each of two groups, semantic and texture.

The reference predicts noise - data at noise levels from 1 (noise) to 0; here it is a `Velocity`: data - noise at local
times from 0 (noise) to 1.
"""

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu
from torch.utils.checkpoint import checkpoint

from lwd.errors import InputError, import_extra
from lwd.groups import Group, Layout

SCALES = {  # heads of width 128, blocks with two streams, blocks with one stream, width of the prompt embeddings
    "0p5b": (12, 3, 10, 6144),
    "1b": (16, 4, 12, 6144),
    "2b": (20, 4, 16, 6144),
    "3b": (22, 5, 18, 7680),
    "4b": (24, 5, 20, 7680),
    "5b": (26, 6, 21, 7680),
    "6b": (28, 6, 22, 7680),
    "8b": (30, 7, 24, 7680),
    "9b": (32, 8, 24, 12288),
}
FREQUENCIES = 256
"""Width of the sinusoids of a noise level, if the configuration does not say."""


def scale_settings(scale: str) -> dict[str, int]:
    """Return the settings of Flux 2's transformer at a published scale."""
    heads, double, single, text = SCALES[scale]
    sizes = {"attention_head_dim": 128, "num_attention_heads": heads, "num_layers": double, "num_single_layers": single}
    return sizes | {"joint_attention_dim": text}


@dataclass(frozen=True)
class Prompts:
    """Prompt embeddings (b, tokens, width), and the positions (tokens, 4) of their tokens, the same for all prompts.

    A condition of a `Velocity`, as class labels are: pass it as `labels` of `lwd.sample`.
    """

    embeddings: Tensor
    positions: Tensor

    def __post_init__(self) -> None:
        if self.embeddings.ndim != 3 or not self.embeddings.is_floating_point():
            raise InputError(f"prompt embeddings must be (prompts, tokens, width), got {tuple(self.embeddings.shape)}")
        places = self.positions
        if places.ndim == 3:  # one table for each prompt, as the reference stores them
            if len(places) > 1 and not torch.equal(places, places[:1].expand_as(places)):
                raise InputError("all prompts of a batch must have the same positions")
            places = places[0]
        if places.shape != (self.embeddings.shape[1], 4):
            raise InputError(
                f"{self.embeddings.shape[1]} tokens need positions ({self.embeddings.shape[1]}, 4), "
                f"got {tuple(self.positions.shape)}"
            )
        object.__setattr__(self, "positions", places)

    @classmethod
    def of(cls, embeddings: Tensor) -> "Prompts":
        """Tokens at positions 0, 1, ... of the fourth axis, as the reference numbers them."""
        places = torch.zeros(embeddings.shape[1], 4, device=embeddings.device)
        places[:, 3] = torch.arange(embeddings.shape[1])
        return cls(embeddings, places)

    def __len__(self) -> int:
        return len(self.embeddings)

    def __getitem__(self, rows: Any) -> "Prompts":
        return Prompts(self.embeddings[rows], self.positions)

    def to(self, device: torch.device | str) -> "Prompts":
        embeddings = self.embeddings.to(device, non_blocking=self.embeddings.is_pinned())
        return Prompts(embeddings, self.positions.to(device))

    def where(self, keep: Tensor, other: "Prompts") -> "Prompts":
        """These prompts where `keep` (b,) is true, and those of `other` elsewhere; both have the same length."""
        if other.embeddings.shape[1:] != self.embeddings.shape[1:]:
            raise InputError(
                f"prompts of {tuple(self.embeddings.shape[1:])} and {tuple(other.embeddings.shape[1:])} do not fit"
            )
        return Prompts(
            torch.where(keep[:, None, None], self.embeddings, other.to(keep.device).embeddings), self.positions
        )


@dataclass(frozen=True)
class SeFiConfig:
    """The network's architecture. `grid` is the height and width of the latents that it was trained on."""

    layout: Layout
    backbone: Mapping[str, Any] = field(default_factory=dict)
    """Settings of diffusers' Flux2Transformer2DModel; others than these are ignored."""
    grid: tuple[int, int] = (64, 64)

    def __post_init__(self) -> None:
        if self.layout.names != ("semantic", "texture"):
            raise InputError(f"SeFi-Image has the groups semantic, texture, got {', '.join(self.layout.names)}")
        object.__setattr__(self, "backbone", dict(self.backbone))

    @property
    def text_width(self) -> int:
        """Width of the prompt embeddings."""
        return int(self.backbone["joint_attention_dim"])

    def to_dict(self) -> dict[str, Any]:
        groups = {group.name: group.channels for group in self.layout}
        return {"layout": groups, "backbone": dict(self.backbone), "grid": list(self.grid)}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "SeFiConfig":
        groups, backbone, grid = (value.get(key) for key in ("layout", "backbone", "grid"))
        if not isinstance(groups, Mapping) or not isinstance(backbone, Mapping):
            raise InputError("the configuration of SeFi-Image's network needs layout and backbone, both objects")
        if type(backbone.get("joint_attention_dim")) is not int:
            raise InputError("backbone has no joint_attention_dim (the width of prompt embeddings)")
        if not isinstance(grid, list) or len(grid) != 2 or not all(type(n) is int and n > 0 for n in grid):
            raise InputError(f"grid must be two integers, got {grid!r}")
        return cls(Layout(tuple(Group(name, count) for name, count in groups.items())), backbone, (grid[0], grid[1]))


class NoiseLevels(nn.Module):
    """The embedding of two noise levels: half of the width each."""

    def __init__(self, frequencies: int, width: int) -> None:
        super().__init__()
        self.frequencies = frequencies
        self.semantic_embedder = _Embedder(frequencies, width // 2)
        self.texture_embedder = _Embedder(frequencies, width - width // 2)

    def forward(self, levels: Tensor, dtype: torch.dtype) -> Tensor:
        """levels (b, 2), 1 = noise -> (b, width)."""
        half = self.frequencies // 2
        # float32, as in the reference: the fastest sinusoid turns 1000 / 2 pi times.
        steps = torch.arange(half, dtype=torch.float32, device=levels.device)
        angles = 1000 * levels.float()[..., None] * torch.exp(-math.log(10000) * steps / half)
        waves = torch.cat([angles.cos(), angles.sin()], -1).to(dtype)
        return torch.cat([self.semantic_embedder(waves[:, 0]), self.texture_embedder(waves[:, 1])], -1)


class _Embedder(nn.Module):
    def __init__(self, frequencies: int, width: int) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(frequencies, width, bias=False)
        self.linear_2 = nn.Linear(width, width, bias=False)

    def forward(self, waves: Tensor) -> Tensor:
        return self.linear_2(silu(self.linear_1(waves)))


class SeFiNetwork(nn.Module):
    """Flux 2 with two clocks as a `Velocity` of (semantic, texture); conditions are `Prompts`. Any grid and length.

    recompute: compute blocks again in the backward pass, to save memory. compile: compile the blocks.
    """

    def __init__(self, config: SeFiConfig, recompute: bool = False, compile: bool = False) -> None:
        super().__init__()
        self.config, self.recompute = config, recompute
        self.backbone = _flux2(config)
        width, frequencies = int(self.backbone.inner_dim), config.backbone.get("timestep_guidance_channels")
        self.dual_time_embed = NoiseLevels(int(frequencies or FREQUENCIES), width)
        for block in self.blocks if compile else ():
            block.compile()

    @property
    def blocks(self) -> list[nn.Module]:
        """All blocks; data-parallel training shards the network by them."""
        return [*self.backbone.transformer_blocks, *self.backbone.single_transformer_blocks]

    def _block(self, block: nn.Module, *inputs: Any) -> Any:
        if self.recompute and torch.is_grad_enabled():
            return checkpoint(block, *inputs, use_reentrant=False)
        return block(*inputs)

    @property
    def layout(self) -> Layout:
        return self.config.layout

    def forward(self, z: Tensor, times: Tensor, label: Prompts) -> Tensor:
        """z (b, c, h, w), times (b, 2), prompts (b) -> velocity (b, c, h, w)."""
        if not isinstance(label, Prompts):
            raise InputError(f"SeFi-Image takes prompts (lwd.Prompts), got {type(label).__name__}", argument="prompts")
        self.layout.check(z)
        if len(label) != len(z) or label.embeddings.shape[2] != self.config.text_width:
            found, wanted = tuple(label.embeddings.shape), (len(z), "tokens", self.config.text_width)
            raise InputError(f"prompt embeddings must be ({', '.join(map(str, wanted))}), got {found}")
        levels = self.dual_time_embed((1 - times).to(z.device), self.dtype)
        tokens = self._transformer(z.flatten(2).mT.to(self.dtype), levels, label.to(z.device), grid_positions(z))
        return -tokens.mT.reshape(z.shape).to(z.dtype)

    def _transformer(self, image: Tensor, levels: Tensor, prompts: Prompts, places: Tensor) -> Tensor:
        flux = self.backbone
        image, text = flux.x_embedder(image), flux.context_embedder(prompts.embeddings.to(image.dtype))
        # Each axis separately: cosines and sines of text and image tokens in one sequence.
        parts = zip(flux.pos_embed(prompts.positions), flux.pos_embed(places), strict=True)
        rotary = tuple(torch.cat(pair) for pair in parts)
        of_image, of_text = flux.double_stream_modulation_img(levels), flux.double_stream_modulation_txt(levels)
        of_both, count = flux.single_stream_modulation(levels), text.shape[1]
        for block in flux.transformer_blocks:
            text, image = self._block(block, image, text, of_image, of_text, rotary)
        both = torch.cat([text, image], 1)
        for block in flux.single_transformer_blocks:
            both = self._block(block, both, None, of_both, rotary)
        return flux.proj_out(flux.norm_out(both[:, count:], levels))

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype


def grid_positions(z: Tensor) -> Tensor:
    """Positions (h w, 4) of the image tokens of z (b, c, h, w): row and column on the second and third axis."""
    height, width = z.shape[2:]
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    zeros = torch.zeros_like(rows)
    return torch.stack([zeros, rows, columns, zeros], -1).reshape(-1, 4).to(z.device, torch.float32)


def _flux2(config: SeFiConfig) -> Any:
    """Build diffusers' transformer for the channels of the layout, without its own embedding of the time."""
    diffusers = import_extra("diffusers", "text", "SeFi-Image's network")
    kind = getattr(diffusers, "Flux2Transformer2DModel", None)
    if kind is None:
        raise InputError(
            f"diffusers {diffusers.__version__} has no Flux 2; install a newer one with: pip install 'lwd[text]'"
        )
    known = inspect.signature(kind.__init__).parameters
    settings = {name: value for name, value in config.backbone.items() if name in known}
    channels = config.layout.channels
    settings |= {"in_channels": channels, "out_channels": channels, "guidance_embeds": False, "patch_size": 1}
    try:
        network = kind(**settings)
    except (TypeError, ValueError, ZeroDivisionError, RuntimeError, AttributeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"the configuration does not fit Flux 2's transformer ({reason})") from error
    network.time_guidance_embed = nn.Identity()
    return network
