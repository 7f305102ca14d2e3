"""LDM-style KL autoencoders (SD-VAE, VA-VAE): tensor names, and the configuration that shapes imply."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lwd.errors import InputError, import_extra
from lwd.io.tensors import mismatches
from lwd.representations.texture import KLAutoencoder

NORM_GROUPS = 32
KEPT = ("encoder.", "decoder.", "quant_conv.", "post_quant_conv.")
DROPPED = ("loss.", "discriminator.", "foundation_model.", "linear_proj.", "model_ema.")
"""Parts used only in training: discriminator, perceptual networks, VA-VAE's aligned encoder."""


def is_ldm(state: Mapping[str, Tensor]) -> bool:
    """Whether a state dict is that of an LDM autoencoder."""
    return "encoder.conv_in.weight" in state and "decoder.conv_in.weight" in state


def autoencoder_from_ldm(state: Mapping[str, Tensor]) -> KLAutoencoder:
    """Build diffusers' AutoencoderKL from an LDM state dict; no tensor may be unknown, missing or misshapen."""
    diffusers = import_extra("diffusers", "images", "the texture autoencoder")
    unknown = [name for name in state if not name.startswith(KEPT + DROPPED)]
    if unknown:
        raise InputError(f"the autoencoder has unknown tensors: {', '.join(sorted(unknown))}")
    kept = {name: tensor for name, tensor in state.items() if name.startswith(KEPT)}
    config = infer_ldm_config(kept)
    with torch.device("meta"):
        kl = diffusers.AutoencoderKL(**config)
    levels = len(config["block_out_channels"])
    renamed = {diffusers_name(name, levels): _squeezed(name, tensor) for name, tensor in kept.items()}
    problems = mismatches({name: tuple(t.shape) for name, t in kl.state_dict().items()}, renamed)
    if problems:
        raise InputError("the weights do not fit the autoencoder: " + "; ".join(problems))
    kl.load_state_dict({name: tensor.float() for name, tensor in renamed.items()}, assign=True)
    return KLAutoencoder(kl.eval())


def infer_ldm_config(state: Mapping[str, Tensor]) -> dict[str, Any]:
    """Infer the arguments of AutoencoderKL from the shapes of an LDM state dict."""
    need = ("encoder.conv_in.weight", "decoder.conv_in.weight", "quant_conv.weight", "post_quant_conv.weight")
    missing = [name for name in need if name not in state]
    if missing:
        raise InputError(f"this is not an LDM autoencoder: {', '.join(missing)} missing")
    levels = _count(state, r"encoder\.down\.(\d+)\.")
    blocks = _count(state, r"encoder\.down\.0\.block\.(\d+)\.")
    widths = [_out(state, f"encoder.down.{i}.block.0.conv1.weight") for i in range(levels)]
    uneven = [width for width in widths if width % NORM_GROUPS]
    if uneven:
        raise InputError(f"a block has {uneven[0]} channels; its norms need a multiple of {NORM_GROUPS}")
    latent, embed = _in(state, "decoder.conv_in.weight"), _in(state, "post_quant_conv.weight")
    if latent != embed:
        raise InputError(f"z has {latent} channels, but its embedding {embed}; AutoencoderKL needs the same number")

    def attends(side: str, level: int) -> bool:
        return f"{side}.{level}.attn.0.norm.weight" in state

    down = ["AttnDownEncoderBlock2D" if attends("encoder.down", i) else "DownEncoderBlock2D" for i in range(levels)]
    up = ["AttnUpDecoderBlock2D" if attends("decoder.up", i) else "UpDecoderBlock2D" for i in reversed(range(levels))]
    return {
        "in_channels": _in(state, "encoder.conv_in.weight"),
        "out_channels": _out(state, "decoder.conv_out.weight"),
        "down_block_types": down,
        "up_block_types": up,
        "block_out_channels": widths,
        "layers_per_block": blocks,
        "latent_channels": latent,
        "norm_num_groups": NORM_GROUPS,
        "scaling_factor": 1.0,
    }


def diffusers_name(name: str, levels: int) -> str:
    """Convert a tensor name from LDM's to diffusers' convention."""
    for pattern, replacement in (
        (r"^encoder\.down\.(\d+)\.block\.", r"encoder.down_blocks.\1.resnets."),
        (r"^encoder\.down\.(\d+)\.attn\.", r"encoder.down_blocks.\1.attentions."),
        (r"^encoder\.down\.(\d+)\.downsample\.", r"encoder.down_blocks.\1.downsamplers.0."),
        (r"^decoder\.up\.(\d+)\.block\.", r"decoder.up_blocks.\1.resnets."),
        (r"^decoder\.up\.(\d+)\.attn\.", r"decoder.up_blocks.\1.attentions."),
        (r"^decoder\.up\.(\d+)\.upsample\.", r"decoder.up_blocks.\1.upsamplers.0."),
        (r"\.mid\.attn_1\.", r".mid_block.attentions.0."),
        (r"\.norm_out\.", r".conv_norm_out."),
        (r"\.nin_shortcut\.", r".conv_shortcut."),
        (r"(attentions\.\d+)\.norm\.", r"\1.group_norm."),
        (r"(attentions\.\d+)\.(q|k|v)\.", r"\1.to_\2."),
        (r"(attentions\.\d+)\.proj_out\.", r"\1.to_out.0."),
    ):
        name = re.sub(pattern, replacement, name)
    name = re.sub(r"\.mid\.block_(\d+)\.", lambda m: f".mid_block.resnets.{int(m[1]) - 1}.", name)
    # LDM counts the decoder's levels from the highest resolution, diffusers from the lowest.
    return re.sub(r"up_blocks\.(\d+)", lambda m: f"up_blocks.{levels - 1 - int(m[1])}", name)


def _squeezed(name: str, tensor: Tensor) -> Tensor:
    """Flatten 1x1 convolutions of LDM's attention to the linear layers of diffusers."""
    is_map = re.search(r"attn(_1|\.\d+)\.(q|k|v|proj_out)\.weight$", name)
    return tensor.flatten(1) if is_map and tensor.ndim == 4 and tensor.shape[2:] == (1, 1) else tensor


def _count(state: Mapping[str, Tensor], pattern: str) -> int:
    """Count the indices 0, 1, 2, ... that the names have at this place."""
    found = {match[1] for match in (re.match(pattern, name) for name in state) if match}
    if not found or found != {str(i) for i in range(len(found))}:
        raise InputError(f"this is not an LDM autoencoder: names {pattern} must be numbered 0, 1, 2, ...")
    return len(found)


def _out(state: Mapping[str, Tensor], name: str) -> int:
    if name not in state or state[name].ndim != 4:
        raise InputError(f"this is not an LDM autoencoder: {name} is missing or not a convolution")
    return state[name].shape[0]


def _in(state: Mapping[str, Tensor], name: str) -> int:
    _out(state, name)
    return state[name].shape[1]
