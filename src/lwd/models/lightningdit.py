"""LightningDiT with one clock per group: the paper's network, and its single-clock and DiT-style variants."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint as recompute

from lwd.errors import InputError, nearest
from lwd.groups import Group, Layout
from lwd.models.layers import (
    Block,
    ClockEmbedder,
    FinalLayer,
    LabelEmbedder,
    PatchEmbedder,
    position_table,
    rotary_table,
)

SIZES = {  # depth, width, heads
    "S": (12, 384, 6),
    "B": (12, 768, 12),
    "L": (24, 1024, 16),
    "XL": (28, 1152, 16),
    "1p0B": (24, 1536, 24),
    "1p6B": (28, 1792, 28),
}


LARGEST = {"depth": 1000, "classes": 2**31 - 2, "patch": 1024}
"""Bounds of a configuration, so that a damaged file cannot ask for a network that fills the memory; others: 2^20."""


@dataclass(frozen=True)
class LightningDiTConfig:
    """The network's architecture. `grid` is the height and width of the latents in training; others work too."""

    layout: Layout
    depth: int
    width: int
    heads: int
    classes: int = 1000
    null_row: bool = True
    """Whether the label table has a row for "any class" after the last class, as classifier-free guidance needs."""
    patch: int = 1
    grid: tuple[int, int] = (16, 16)
    mlp_width: int = 0
    """Hidden width of the MLP; 0 means LightningDiT's int(2/3 * 4 * width), or 4 * width for gelu."""
    norm: str = "rms"
    mlp: str = "swiglu"
    qk_norm: bool = True
    rotary: bool = True
    shift: bool = True
    learned_sigma: bool = False
    """DiT and SiT predict twice the channels; the second half is not part of the velocity."""
    tap: int = 0
    """The block (1 = first) whose output is used for alignment; 0 = no tap and no projector."""
    projector_width: int = 2048
    features: int = 768

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", tuple(self.grid))
        if not self.mlp_width:
            default = int(2 / 3 * 4 * self.width) if self.mlp == "swiglu" else 4 * self.width
            object.__setattr__(self, "mlp_width", default)
        counts = ("depth", "width", "heads", "classes", "patch", "mlp_width", "projector_width", "features")
        for name in counts:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST.get(name, 2**20):
                raise InputError(f"{name} must be an integer from 1 to {LARGEST.get(name, 2**20)}, got {value!r}")
        for name in ("null_row", "qk_norm", "rotary", "shift", "learned_sigma"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} must be true or false, got {getattr(self, name)!r}")
        for name, allowed in (("norm", ("rms", "layer")), ("mlp", ("swiglu", "gelu"))):
            if getattr(self, name) not in allowed:
                raise InputError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if self.width % self.heads or (self.rotary and self.width // self.heads % 4) or self.width % 4:
            raise InputError(f"width {self.width} must be a multiple of 4 x heads ({self.heads})")
        if isinstance(self.tap, bool) or not isinstance(self.tap, int) or not 0 <= self.tap <= self.depth:
            raise InputError(f"tap must be between 0 (none) and the depth {self.depth}, got {self.tap}")
        self.tokens(*self.grid)

    @classmethod
    def of(cls, name: str, layout: Layout, **changes: Any) -> "LightningDiTConfig":
        """Build a named size and patch, `LightningDiTConfig.of("XL/1", layout)`; keywords change single settings."""
        size, _, patch = name.partition("/")
        if size not in SIZES or patch not in ("1", "2"):
            names = [f"{size}/{patch}" for size in SIZES for patch in (1, 2)]
            raise InputError(f"there is no size {name!r}; {nearest(name, names)}")
        depth, width, heads = SIZES[size]
        return cls(layout, **{"depth": depth, "width": width, "heads": heads, "patch": int(patch)} | changes)

    def tokens(self, height: int, width: int) -> tuple[int, int]:
        """Return the rows and columns of tokens for a latent of this height and width."""
        valid = all(
            isinstance(side, int) and not isinstance(side, bool) and 1 <= side <= 2**14 for side in (height, width)
        )
        if not valid or height % self.patch or width % self.patch:
            raise InputError(f"a latent of {height}x{width} cannot be cut into patches of {self.patch}")
        return height // self.patch, width // self.patch

    def to_dict(self) -> dict[str, Any]:
        groups = {group.name: group.channels for group in self.layout}
        return asdict(self) | {"layout": groups, "grid": list(self.grid)}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "LightningDiTConfig":
        if not isinstance(value, Mapping):
            raise InputError(f"the network's configuration must be an object, got {str(value)[:40]}")
        known = [field.name for field in fields(cls)]
        for key in value:
            if key not in known:
                raise InputError(f"the network's configuration has no key {key!r}; {nearest(key, known)}")
        for key in ("layout", "depth", "width", "heads"):
            if key not in value:
                raise InputError(f"the network's configuration needs the key {key!r}, which is missing")
        groups, grid = value["layout"], value.get("grid", [16, 16])
        if not isinstance(groups, Mapping):
            raise InputError(f"layout must be an object such as {{'texture': 32, 'semantic': 16}}, got {groups!r}")
        if not isinstance(grid, (list, tuple)) or len(grid) != 2:
            raise InputError(f"grid must be two integers, got {grid!r}")
        layout = Layout(tuple(Group(name, channels) for name, channels in groups.items()))
        return cls(**{**value, "layout": layout, "grid": tuple(grid)})


class LightningDiT(nn.Module):
    """Velocity of the composite latent: `model(z, times, label)`; zero at initialisation (adaLN-zero).

    checkpoint: recompute blocks in the backward pass to save memory. compile: compile the blocks.
    """

    def __init__(self, config: LightningDiTConfig, checkpoint: bool = False, compile: bool = False) -> None:
        super().__init__()
        self.config, self.checkpoint = config, checkpoint
        c = config
        self.x_embedder = PatchEmbedder(c.layout.channels, c.patch, c.width)
        self.clocks = nn.ModuleDict(
            {clock_key(n): ClockEmbedder(width) for n, width in zip(c.layout.names, self._clock_widths(), strict=True)}
        )
        self.y_embedder = LabelEmbedder(c.classes + c.null_row, c.width)
        block = (c.width, c.heads, c.mlp_width, c.norm, c.mlp, c.qk_norm, c.shift)
        blocks = [Block(*block) for _ in range(c.depth)]
        for built in blocks:
            built.compiled = compile
        self.blocks = nn.ModuleList(blocks)
        out = c.patch**2 * c.layout.channels * (2 if c.learned_sigma else 1)
        self.final_layer = FinalLayer(c.width, out, c.norm)
        self.repa_projector = _projector(c) if c.tap else None
        self._tables: dict[tuple[int, int, torch.device], tuple[Tensor, tuple[Tensor, Tensor] | None]] = {}
        self.initialize()

    @property
    def layout(self) -> Layout:
        return self.config.layout

    @property
    def null_label(self) -> int:
        """The label that means "any class"."""
        if not self.config.null_row:
            raise InputError("this network was trained without a null label; classifier-free guidance needs one")
        return self.config.classes

    def forward(self, z: Tensor, times: Tensor, label: Tensor, features: bool = False) -> Any:
        """Velocity per unit local time; z (b, c, h, w), times (b, n), label (b,) -> (b, c, h, w).

        features: also return the projected features, like `with_features` (data-parallel wrappers only call `forward`).
        """
        if features:
            return self.with_features(z, times, label)
        self._check(z, times, label)
        return self._run(z, times, label)[0]

    def with_features(self, z: Tensor, times: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Return the velocity, and the projected features of block `tap` as a map (b, features, rows, columns)."""
        if self.repa_projector is None:
            raise InputError("this network has no feature tap; build it with tap=2 (the paper's block)")
        self._check(z, times, label)
        velocity, tokens = self._run(z, times, label)
        rows, columns = self.config.tokens(*z.shape[2:])
        return velocity, self.repa_projector(tokens).transpose(1, 2).unflatten(2, (rows, columns))

    def _run(self, z: Tensor, times: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        return self.run(z.to(self.x_embedder.proj.weight.dtype), times, label, *self.tables(z))

    def run(
        self, z: Tensor, times: Tensor, label: Tensor, positions: Tensor, rotary: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """Run the network on checked inputs: velocity, and the tokens after block `tap` (after the last block if 0)."""
        # In the dtype of the parameters: under autocast the residual stream stays float32, as in the reference.
        x = self.x_embedder(z) + positions.to(self.x_embedder.proj.weight.dtype)
        # The reference concatenates the semantic clock first: the reverse of the channel order.
        order = reversed(list(enumerate(self.layout.names)))
        c = torch.cat([self.clocks[clock_key(name)](times[:, i]) for i, name in order], dim=1) + self.y_embedder(label)
        tapped = x
        for depth, block in enumerate(self.blocks, start=1):
            if self.checkpoint and torch.is_grad_enabled():
                x = recompute(block, x, c, rotary, use_reentrant=False)
            else:
                x = block(x, c, rotary)
            if depth == self.config.tap or not self.config.tap:
                tapped = x
        return self._unpatch(self.final_layer(x, c), *z.shape[2:]), tapped

    def tables(self, z: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        """Position and rotary tables for latents of z's size, computed once."""
        (height, width), device = z.shape[2:], z.device
        key = (height, width, device)
        if key not in self._tables:
            rows, columns = self.config.tokens(height, width)
            # Not as inference tensors, even if the first call is in inference mode: training could not use them.
            with torch.inference_mode(False), torch.device("cpu"):
                rotary = None
                if self.config.rotary:
                    cos, sin = rotary_table(rows, columns, self.config.width // self.config.heads)
                    rotary = (cos.to(device), sin.to(device))
                self._tables[key] = (position_table(rows, columns, self.config.width).to(device), rotary)
        return self._tables[key]

    def initialize(self) -> None:
        """Initialise like the reference: Xavier for linear layers, zero for modulations and the output."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.xavier_uniform_(self.x_embedder.proj.weight.flatten(1))
        nn.init.zeros_(self.x_embedder.proj.bias)  # type: ignore[arg-type]
        nn.init.normal_(self.y_embedder.embedding_table.weight, std=0.02)
        for module in self.modules():
            if isinstance(module, ClockEmbedder):
                for weight in (p for p in module.parameters() if p.ndim == 2):
                    nn.init.normal_(weight, std=0.02)
            elif isinstance(module, (Block, FinalLayer)):
                for parameter in module.adaLN_modulation.parameters():
                    nn.init.zeros_(parameter)
        nn.init.zeros_(self.final_layer.linear.weight)

    def _clock_widths(self) -> list[int]:
        """Divide the width of the conditioning among the clocks: halves for two, as in the reference."""
        each, rest = divmod(self.config.width, len(self.layout))
        return [each + (i < rest) for i in range(len(self.layout))]

    def _unpatch(self, x: Tensor, height: int, width: int) -> Tensor:
        p, (rows, columns) = self.config.patch, self.config.tokens(height, width)
        x = x.reshape(len(x), rows, columns, p, p, -1).permute(0, 5, 1, 3, 2, 4)
        return x.reshape(len(x), -1, height, width)[:, : self.layout.channels]

    def _check(self, z: Tensor, times: Tensor, label: Tensor) -> None:
        self.layout.check(z)
        if z.ndim != 4:
            raise InputError(f"the network needs a state (b, c, h, w), got {tuple(z.shape)}")
        if times.shape != (len(z), len(self.layout)) or label.shape != (len(z),):
            raise InputError(
                f"a batch of {len(z)} needs times ({len(z)}, {len(self.layout)}) and label ({len(z)},), "
                f"got {tuple(times.shape)} and {tuple(label.shape)}"
            )
        rows = self.y_embedder.embedding_table.num_embeddings
        if label.is_floating_point() or label.is_complex():
            raise InputError(f"labels must be integers, got {label.dtype}")
        if label.device.type == "cpu" and ((label < 0) | (label >= rows)).any():  # on a GPU this would synchronise
            raise InputError(f"labels must be in 0..{rows - 1}, got {label.min()} to {label.max()}")


def clock_key(group: str) -> str:
    """Return the module name of a group's clock: torch reserves some names (keys, type, ...)."""
    return f"clock_{group}"


def _projector(config: LightningDiTConfig) -> nn.Sequential:
    inner = config.projector_width
    return nn.Sequential(
        nn.Linear(config.width, inner),
        nn.SiLU(),
        nn.Linear(inner, inner),
        nn.SiLU(),
        nn.Linear(inner, config.features),
    )


def parameter_count(model: nn.Module) -> int:
    """Count the trainable parameters."""
    return sum(math.prod(p.shape) for p in model.parameters() if p.requires_grad)
