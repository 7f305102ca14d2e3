"""SeFi-Image's network against the reference's numbers, and against diffusers' own forward pass."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import lwd
from lwd.models.sefi import SCALES, Prompts, SeFiConfig, SeFiNetwork, grid_positions, scale_settings
from messages import says
from sefi import LAYOUT, fixture, network, prompts, random_prompts


def levels():
    tensors = fixture()[0]
    return 1 - torch.stack([tensors["sigma_sem"], tensors["sigma_tex"]], 1).double()


def test_the_velocity_is_minus_the_references_prediction():
    """Oracle: the fixture's output at two pairs of noise levels."""
    tensors = fixture()[0]
    assert_close(network()(tensors["latents"], levels(), prompts()), -tensors["prediction"], atol=1e-5, rtol=0)


def test_positions_are_the_references():
    """Oracle: the fixture's ids of text and image tokens."""
    tensors = fixture()[0]
    assert torch.equal(grid_positions(tensors["latents"]), tensors["latent_ids"][0])
    assert torch.equal(Prompts.of(tensors["prompt_embeds"]).positions, tensors["text_ids"][0])


@pytest.mark.parametrize(("height", "width", "tokens"), [(1, 1, 1), (5, 3, 7), (2, 9, 24)])
def test_any_grid_and_length(height, width, tokens):
    """Oracle: diffusers' own forward pass, with the two noise levels as its time and guidance."""

    class Levels(nn.Module):
        def forward(self, timestep, guidance):
            return network().dual_time_embed(torch.stack([timestep, guidance], 1) / 1000, torch.float32)

    flux, condition = network().backbone, random_prompts(2, tokens)
    z = torch.randn(2, 12, height, width, generator=torch.Generator().manual_seed(1))
    times = torch.tensor([[0.7, 0.25], [0.4, 0.4]])
    flux.time_guidance_embed = Levels()
    theirs = flux(
        z.flatten(2).mT, condition.embeddings, 1 - times[:, 0], grid_positions(z), condition.positions, 1 - times[:, 1]
    ).sample
    flux.time_guidance_embed = nn.Identity()
    assert_close(network()(z, times, condition), -theirs.mT.reshape(z.shape), atol=1e-5, rtol=0)


def test_a_sample_does_not_depend_on_its_batch():
    """Oracle: rows one by one; also through selection and repetition of rows."""
    tensors, both = fixture()[0], prompts()
    together = network()(tensors["latents"], levels(), both)
    for i in range(2):
        alone = network()(tensors["latents"][i : i + 1], levels()[i : i + 1], both[torch.tensor([i])])
        assert_close(alone[0], together[i], atol=1e-6, rtol=1e-5)


def test_the_clock_is_not_rounded_in_bfloat16():
    """Oracle: two times that bfloat16 cannot tell apart give different embeddings."""
    embedding = network().dual_time_embed
    close = torch.tensor([[0.0005, 0.5], [0.0015, 0.5]], dtype=torch.float64)
    assert (1 - close).bfloat16().unique().numel() == 2
    one, two = embedding(1 - close, torch.float32)
    assert (one - two).abs().max() > 1e-3


@pytest.mark.parametrize("scale", SCALES)
def test_published_scales(scale):
    """Oracle: their names say how many billions of parameters they have, roughly."""
    with torch.device("meta"):
        found = SeFiNetwork(SeFiConfig(lwd.Layout.of(semantic=16, texture=128), scale_settings(scale)))
    count = sum(weight.numel() for weight in found.parameters()) / 1e9
    assert count == pytest.approx(float(scale[:-1].replace("p", ".")), rel=0.35)


def test_bad_conditions():
    """Oracle: the message names what was given and what is needed."""
    z, times = fixture()[0]["latents"], levels()
    with pytest.raises(lwd.InputError, match=says("Prompts", "Tensor")):
        network()(z, times, torch.zeros(2))
    with pytest.raises(lwd.InputError, match=says(24, 7)):
        network()(z, times, Prompts.of(torch.zeros(2, 5, 7)))
    with pytest.raises(lwd.InputError, match=says(3)):
        network()(z, times, random_prompts(3))
    with pytest.raises(lwd.InputError, match=says(5, 4)):
        Prompts(torch.zeros(2, 5, 24), torch.zeros(3, 4))
    with pytest.raises(lwd.InputError, match=says("positions")):
        Prompts(torch.zeros(2, 5, 24), torch.rand(2, 5, 4))
    with pytest.raises(lwd.InputError, match=says("semantic", "texture")):
        SeFiConfig(lwd.Layout.of(texture=8, semantic=4), {})
    assert len(LAYOUT) == 2
