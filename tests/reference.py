"""The fixtures of the reference implementation, and small checkpoints in its form."""

import json
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import load_file

import lwd
from lwd.checkpoints.reference import infer_config, to_ours, to_reference
from lwd.models.lightningdit import LightningDiT, LightningDiTConfig

FIXTURES = Path(__file__).parent / "fixtures"
LAYOUT = lwd.Layout.of(texture=8, semantic=4)


@cache
def sfd():
    """Tensors, state dict (reference names) and description of sfd_tiny."""
    tensors = load_file(FIXTURES / "sfd_tiny.safetensors")
    state = {name.removeprefix("weights."): t for name, t in tensors.items() if name.startswith("weights.")}
    return tensors, state, json.loads((FIXTURES / "sfd_tiny.json").read_text())


@cache
def sfd_network():
    state = sfd()[1]
    config = infer_config(state, LAYOUT)
    network = LightningDiT(config)
    network.load_state_dict(to_ours(state, config))
    return network.requires_grad_(False).eval()


@cache
def ldm():
    tensors = load_file(FIXTURES / "ldm_vae_tiny.safetensors")
    state = {name.removeprefix("state_dict."): t for name, t in tensors.items() if name.startswith("state_dict.")}
    return tensors, state


def small_config(layout=LAYOUT, **changes):
    return LightningDiTConfig(layout, **{"depth": 2, "width": 48, "heads": 4, "classes": 5, "grid": (4, 4)} | changes)


def busy_network(config, seed=0):
    """A network whose every parameter is random: nothing is hidden by zero initialisation."""
    network = LightningDiT(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    return network.eval()


def reference_state(config, seed=0):
    return to_reference(busy_network(config, seed).state_dict(), config)
