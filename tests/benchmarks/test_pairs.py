"""The study of pairs: its curves, and a protocol that fits its encoders."""

import pytest
import torch

import lwd
from evidence import script

pairs, patches = script("pairs"), script("patches")
lagged = pairs.lagged


@pytest.mark.parametrize("delta", [0.15, 0.3, 0.6])
def test_two_lagged_clocks_are_an_offset(delta):
    """Oracle: the library's Offset, in either order."""
    tau, names = torch.linspace(0, 1, 101, dtype=torch.float64), ("texture", "semantic")
    for lags, lead in (([delta, 0], "semantic"), ([0, delta], "texture")):
        expected = lwd.Offset(delta, names, lead).times(tau)
        assert torch.allclose(lagged(lags, names).times(tau), expected, atol=1e-12)


def test_three_lagged_clocks_move_at_one_speed():
    """Oracle: by hand, over 1.6 units of time."""
    found = lagged([0.6, 0.3, 0], ("texture", "r3", "r5")).times(torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64))
    assert torch.allclose(found, torch.tensor([[0, 0, 0], [0.2, 0.5, 0.8], [1, 1, 1]], dtype=torch.float64))


@pytest.mark.parametrize("study", ["pairs", "pairs-more"])
def test_every_pair_has_encoders_and_schedules(study):
    protocol = pairs.protocol_of(study)
    for about in protocol["pairs"].values():
        groups = about["groups"]
        assert set(groups[1:]) <= set(protocol["encoders"])
        curves = protocol["schedules"][len(groups)].values()
        assert all(isinstance(curve, str) or len(curve) == len(groups) for curve in curves)


def test_patches_lose_only_the_directions_that_are_left_out(tmp_path):
    """Oracle: with as many channels as a patch has values nothing is lost; with fewer, the sum of small variances."""
    images = torch.randn(40, 3, 4, 6, generator=torch.Generator().manual_seed(0)) * 0.3
    whole = patches.Patches.fit(images, 2, 12)
    assert torch.allclose(whole.decode(whole.encode(images)), images, atol=1e-5)
    some = patches.Patches.fit(images, 2, 8)
    assert some.encode(images).shape == (40, 8, 2, 3)
    lost = (some.decode(some.encode(images)) - images).square().sum() / (40 * 6 - 1)
    assert float(lost) == pytest.approx(float(whole.pca.variances[8:].sum()), rel=1e-4)
    some.save(tmp_path / "patches")
    again = patches.Patches.read(tmp_path / "patches", 2)
    assert torch.equal(again.encode(images), some.encode(images))


def test_a_global_latent_is_the_same_at_every_position():
    """Oracle: the mean over positions."""
    features = torch.randn(2, 5, 4, 4, generator=torch.Generator().manual_seed(0))
    found = pairs._mean(lambda _: features, torch.zeros(2, 3, 8, 8))
    assert found.shape == features.shape
    assert torch.allclose(found[:, :, 3, 1], features.mean((2, 3)))
