"""Tensor names of SFD, LightningDiT, SiT and DiT, and the configuration that their shapes imply.

Pure functions of state dicts: nothing here reads a file or needs a schedule.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.groups import Layout
from lwd.io.tensors import mismatches
from lwd.models.layers import position_table, rotary_table
from lwd.models.lightningdit import SIZES, LightningDiT, LightningDiTConfig, clock_key

TABLES = ("pos_embed", "feat_rope.freqs_cos", "feat_rope.freqs_sin")
"""Computed tensors: checked on import, written on export."""
CLOCKS = ("t_embedder_tex", "t_embedder_sem")
"""In channel order."""


def infer_config(
    state: Mapping[str, Tensor],
    layout: Layout | None = None,
    heads: int | None = None,
    grid: tuple[int, int] | None = None,
    tap: int | None = None,
    classes: int | None = None,
) -> LightningDiTConfig:
    """Infer the configuration from the shapes of a reference state dict; arguments add what shapes do not determine."""
    _need(state, "x_embedder.proj.weight", "y_embedder.embedding_table.weight", "final_layer.linear.weight")
    width, channels, patch, _ = _shape(state, "x_embedder.proj.weight", 4)
    layout = _layout(state, layout, channels)
    depth = _depth(state)
    swiglu = "blocks.0.mlp.w12.weight" in state
    mlp_key = "blocks.0.mlp.w3.weight" if swiglu else "blocks.0.mlp.fc2.weight"
    _need(state, mlp_key, "blocks.0.adaLN_modulation.1.weight")
    out = _shape(state, "final_layer.linear.weight", 2)[0]
    rows = _shape(state, "y_embedder.embedding_table.weight", 2)[0]
    if classes is not None and rows not in (classes, classes + 1):
        raise InputError(
            f"the label table has {rows} rows, which does not fit {classes} classes with or without a null label"
        )
    projector = "repa_projector.4.weight" in state
    return LightningDiTConfig(
        layout=layout,
        depth=depth,
        width=width,
        heads=_heads(state, depth, width, heads),
        classes=rows - 1 if classes is None else classes,
        null_row=classes is None or rows > classes,
        patch=patch,
        grid=_grid(state, patch, grid),
        mlp_width=_shape(state, mlp_key, 2)[1],
        norm="rms" if "blocks.0.norm1.weight" in state else "layer",
        mlp="swiglu" if swiglu else "gelu",
        qk_norm="blocks.0.attn.q_norm.weight" in state,
        rotary="feat_rope.freqs_cos" in state,
        shift=_shape(state, "blocks.0.adaLN_modulation.1.weight", 2)[0] == 6 * width,
        learned_sigma=out == 2 * channels * patch**2,
        tap=(2 if tap is None else tap) if projector else 0,
        projector_width=_shape(state, "repa_projector.0.weight", 2)[0] if projector else 2048,
        features=_shape(state, "repa_projector.4.weight", 2)[0] if projector else 768,
    )


def to_ours(state: Mapping[str, Tensor], config: LightningDiTConfig) -> dict[str, Tensor]:
    """Rename reference tensors to ours; an error lists all missing, unknown and misshapen tensors."""
    names = _names(config)
    with torch.device("meta"):
        shapes = {names[name]: tuple(tensor.shape) for name, tensor in LightningDiT(config).state_dict().items()}
    found = {name: tensor for name, tensor in state.items() if name not in TABLES}
    problems = [*mismatches(shapes, found), *_wrong_tables(state, config)]
    if problems:
        raise InputError("the weights do not fit the network: " + "; ".join(problems))
    return {ours: found[theirs] for ours, theirs in names.items()}


def to_reference(state: Mapping[str, Tensor], config: LightningDiTConfig) -> dict[str, Tensor]:
    """Rename our tensors to those of the reference, and add the computed tables that its loader expects."""
    names = _names(config)
    return {names[name]: tensor for name, tensor in state.items()} | reference_tables(config)


def reference_tables(config: LightningDiTConfig) -> dict[str, Tensor]:
    """Compute the position and rotary tables that the reference stores, for the configured grid."""
    rows, columns = config.tokens(*config.grid)
    tables = {"pos_embed": position_table(rows, columns, config.width).clone()}
    if config.rotary:
        cos, sin = rotary_table(rows, columns, config.width // config.heads)
        tables |= {
            "feat_rope.freqs_cos": cos,
            "feat_rope.freqs_sin": sin[:, 1::2].repeat_interleave(2, 1),  # ours has a sign
        }
    return tables


def _names(config: LightningDiTConfig) -> dict[str, str]:
    """Map our tensor names to those of the reference."""
    with torch.device("meta"):
        ours = list(LightningDiT(config).state_dict())
    groups = config.layout.names
    prefix = {name: f"t_embedder_{name}" for name in groups}
    if len(groups) == 1:
        prefix = {groups[0]: "t_embedder"}
    elif len(groups) == 2:
        prefix = dict(zip(groups, CLOCKS, strict=True))
    prefix = {clock_key(group): theirs for group, theirs in prefix.items()}
    return {name: re.sub(r"^clocks\.([^.]+)", lambda match: prefix[match[1]], name) for name in ours}


def _layout(state: Mapping[str, Tensor], layout: Layout | None, channels: int) -> Layout:
    two = any(key.startswith(CLOCKS) for key in state)
    if layout is None:
        if two:
            raise InputError(
                f"the network has two clocks and {channels} channels, but the shapes do not tell how many each group "
                "has; pass the groups, for SFD and LWD: texture=32,semantic=16"
            )
        return Layout.of(texture=channels)
    if layout.channels != channels:
        raise InputError(f"the groups {layout} have {layout.channels} channels, but the network has {channels}")
    if two and len(layout) != 2:
        raise InputError(f"the network has two clocks, texture and semantic, but {layout} has {len(layout)}")
    if two and set(layout.names) == {"texture", "semantic"} and layout.names[0] != "texture":
        raise InputError(
            f"the channels of the reference are texture first, then semantic; {layout} has the opposite order"
        )
    if "t_embedder.mlp.0.weight" in state and len(layout) != 1:
        raise InputError(f"the network has one clock, but {layout} has {len(layout)} groups; pass texture={channels}")
    return layout


def _depth(state: Mapping[str, Tensor]) -> int:
    """Count the blocks; they must be numbered 0, 1, 2, ... without a gap."""
    found = {match[1] for match in (re.match(r"blocks\.(\d+)\.", key) for key in state) if match}
    if not found:
        raise InputError("there are no tensors blocks.N.*: this is not a LightningDiT or DiT state dict")
    if found != {str(i) for i in range(len(found))}:
        raise InputError(f"blocks must be numbered 0 to {len(found) - 1}, got {', '.join(sorted(found))[:80]}")
    return len(found)


def _heads(state: Mapping[str, Tensor], depth: int, width: int, heads: int | None) -> int:
    if "blocks.0.attn.q_norm.weight" in state:
        head = _shape(state, "blocks.0.attn.q_norm.weight", 1)[0]
        found = width // max(head, 1)
        if heads not in (None, found):
            raise InputError(f"the qk-norm implies {found} heads, but {heads} were requested")
        return found
    named = {(d, w): h for d, w, h in SIZES.values()}
    if heads is None and (depth, width) not in named:
        raise InputError(
            f"without qk-norm the shapes ({depth} blocks of {width}) do not determine the number of heads; pass it",
            argument="heads",
        )
    return heads or named[depth, width]


def _grid(state: Mapping[str, Tensor], patch: int, grid: tuple[int, int] | None) -> tuple[int, int]:
    tables = [state[name] for name in TABLES if name in state]
    if not tables:
        if grid is None:
            raise InputError(
                "pos_embed is missing, so the grid of the latents is unknown; pass it, for example 16x16",
                argument="grid",
            )
        return grid
    if tables[0].ndim < 2:
        raise InputError(f"the position table must have at least 2 axes, got shape {tuple(tables[0].shape)}")
    count = tables[0].shape[-2]
    if grid is None:
        side = math.isqrt(count)
        if side * side != count:
            raise InputError(
                f"{count} positions are not a square; pass the grid of the latents, for example 16x32", argument="grid"
            )
        return side * patch, side * patch
    if grid[0] * grid[1] != count * patch**2:
        raise InputError(
            f"the tables have {count} positions with patch {patch}, which does not fit a grid of {grid[0]}x{grid[1]}"
        )
    return grid


def _wrong_tables(state: Mapping[str, Tensor], config: LightningDiTConfig) -> Iterable[str]:
    for name, table in reference_tables(config).items():
        if name in state and (
            state[name].shape != table.shape or not torch.allclose(state[name].float(), table, atol=1e-2)
        ):
            yield f"{name} is not the fixed table of a {config.grid[0]}x{config.grid[1]} latent"


def _shape(state: Mapping[str, Tensor], name: str, ndim: int) -> Any:
    if state[name].ndim != ndim:
        raise InputError(f"{name} must have {ndim} axes, got shape {tuple(state[name].shape)}")
    return tuple(state[name].shape)


def _need(state: Mapping[str, Tensor], *names: str) -> None:
    missing = [name for name in names if name not in state]
    if missing:
        some = ", ".join(list(state)[:5])
        raise InputError(
            f"this is not a LightningDiT or DiT state dict: {', '.join(missing)} missing (it has {some}, ...)"
        )
