"""SeFi-Image at other sizes, offsets, shifts and scales than the fixture's, against a second implementation."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import lwd
import sefi
from lwd.checkpoints.sefi import load_sefi, schedule_of
from lwd.models.sefi import SCALES, SeFiConfig, SeFiNetwork, scale_settings
from lwd.sampling.sefi import SeFiSettings, sample_sefi, solve_sefi
from sefi_reference import Reference


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def both(semantic=4, texture=8, **changes):
    """The same random weights in our network and in the other one."""
    backbone = sefi.fixture()[2]["backbone"] | changes
    backbone |= {"in_channels": semantic + texture, "out_channels": semantic + texture}
    torch.manual_seed(semantic)
    ours = SeFiNetwork(SeFiConfig(lwd.Layout.of(semantic=semantic, texture=texture), backbone))
    return ours.requires_grad_(False).eval(), Reference(backbone, ours.state_dict(), semantic)


def test_the_other_implementation_is_right():
    """Oracle: the fixture's prediction and six steps, which the reference itself computed."""
    tensors, state, about = sefi.fixture()
    other = Reference(about["backbone"], state, 4)
    levels = [float(tensors[name][0]) for name in ("sigma_sem", "sigma_tex")]
    found = other.predict(tensors["latents"][:1], *levels, tensors["prompt_embeds"][:1])
    assert_close(found, tensors["prediction"][:1], atol=1e-5, rtol=0)
    z = other.sample(tensors["latents"], tensors["prompt_embeds"], tensors["negative_embeds"], 6, 0.1, 0.3, 4.0)
    assert_close(z[:, 4:], tensors["euler_texture"], atol=1e-4, rtol=0)


PAIR = {}


@settings(max_examples=12, deadline=None)
@given(
    grid=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    tokens=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    steps=st.integers(1, 5),
    offset=st.sampled_from([0.0, 0.05, 0.1, 0.37, 1.0]),
    shift=st.sampled_from([0.3, 1.0, 2.5]),
    scale=st.sampled_from([1.0, 2.5, 4.0]),
)
def test_any_size_offset_shift_and_scale(grid, tokens, steps, offset, shift, scale):
    """Oracle: the other implementation, for all channels; prompt and negative prompt may have different lengths."""
    ours, other = PAIR.setdefault("pair", both())
    noise, prompts, negative = normal(1, 2, 12, *grid), normal(2, 2, tokens[0], 24), normal(3, 2, tokens[1], 24)
    velocity = ours
    if scale != 1:
        velocity = lwd.ClassifierFree(ours, lwd.Prompts.of(negative), scale, sefi.LAYOUT)
    found = solve_sefi(
        velocity, schedule_of(offset), sefi.LAYOUT, noise, lwd.Prompts.of(prompts), SeFiSettings(steps, shift)
    )
    wanted = other.sample(noise, prompts, negative, steps, offset, shift, scale)
    assert_close(found.z, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("semantic", "texture", "changes"),
    [
        (2, 4, {"num_attention_heads": 1, "num_layers": 2, "num_single_layers": 1}),
        (6, 12, {"attention_head_dim": 24, "axes_dims_rope": [4, 4, 8, 8], "joint_attention_dim": 10}),
        (3, 5, {"mlp_ratio": 2.0, "timestep_guidance_channels": 16, "rope_theta": 500}),
    ],
)
def test_any_architecture(semantic, texture, changes):
    """Oracle: the other implementation with the same weights and seeds' noise."""
    ours, other = both(semantic, texture, **changes)
    layout, width = ours.layout, changes.get("joint_attention_dim", 24)
    prompts, where = normal(2, 2, 4, width), {"seeds": [3, 4], "size": (2, 4), "steps": 3, "shift": 0.3}
    found = sample_sefi(ours, schedule_of(0.2), layout, labels=lwd.Prompts.of(prompts), **where)
    noise = lwd.seeded_noise([3, 4], (layout.channels, 2, 4))
    assert_close(found.z, other.sample(noise, prompts, None, 3, 0.2, 0.3, 1), atol=1e-4, rtol=1e-4)


def test_a_directory_with_other_settings(tmp_path):
    """Oracle: the other implementation with the offset, shift, scale, steps and rotary widths of the files."""
    ours, other = both(2, 8, num_single_layers=1, axes_dims_rope=[8, 4, 2, 2], rope_theta=100)
    overrides = {key: ours.config.backbone[key] for key in sefi.SIZES} | {"mlp_ratio": 3.0}
    model = {"semantic_channels": 2, "transformer_overrides": overrides}
    chosen = {"steps": 4, "delta_t": 0.25, "timestep_shift_alpha": 0.6, "guidance_scale": 2.5}
    root = sefi.write_model(tmp_path, 2, ours.state_dict(), model=model, inference=chosen)
    path = root / "transformer" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"axes_dims_rope": [8, 4, 2, 2], "rope_theta": 100}))
    pipe = lwd.LWDPipeline.from_pretrained(root)
    prompts, negative = normal(2, 1, 5, 24), normal(3, 1, 5, 24)
    found = pipe(lwd.Prompts.of(prompts), lwd.Prompts.of(negative), seed=9, size=(48, 32)).solution.z
    noise = lwd.seeded_noise([9], (10, 3, 2))
    assert_close(found, other.sample(noise, prompts, negative, 4, 0.25, 0.6, 2.5), atol=1e-4, rtol=1e-4)
    assert load_sefi(root).layout == lwd.Layout.of(semantic=2, texture=8)


@pytest.mark.parametrize("scale", SCALES)
def test_parameters_of_the_published_scales(scale):
    """Oracle: the sum of all matrices, written out for width d, t text channels and 144 latent channels."""
    given = scale_settings(scale)
    d, t = 128 * given["num_attention_heads"], given["joint_attention_dim"]
    double, single = given["num_layers"], given["num_single_layers"]
    ends = 144 * d + t * d + d * 144 + 2 * d * d
    clocks = 2 * (256 * d // 2 + (d // 2) ** 2)
    modulations = (6 + 6 + 3) * d * d
    # Attention of two streams, each with its MLP of width 3 d (gated); one stream with both in one matrix.
    blocks = double * (8 * d * d + 2 * 9 * d * d + 4 * 128) + single * (9 * d * d + 4 * d * d + 2 * 128)
    with torch.device("meta"):
        found = SeFiNetwork(SeFiConfig(lwd.Layout.of(semantic=16, texture=128), given))
    assert sum(weight.numel() for weight in found.parameters()) == ends + clocks + modulations + blocks
    assert t in (3 * 2048, 3 * 2560, 3 * 4096)  # three hidden layers of Qwen3-VL 2B, 4B or 8B
