import pytest
import torch
from torch.testing import assert_close

import lwd
from lwd.models.lightningdit import parameter_count
from lwd.representations.pca import PCAFit
from lwd.representations.semvae import SemVAE, SemVAEConfig, load_semvae, save_semvae
from messages import says

SMALL = SemVAEConfig(features=32, channels=4, depth=1, heads=2)


def features(count=16, seed=0):
    """Curved features: 32 channels that are smooth functions of 4 hidden numbers per position."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(count, 4, 4, 4, generator=generator)
    mix = torch.randn(32, 4, generator=torch.Generator().manual_seed(9))
    return torch.sin(torch.einsum("dk,bkhw->bdhw", mix, hidden)) + 0.5


def test_size_at_dinov2_b():
    """Oracle: the paper's 29M parameters at 768 features and 16 channels."""
    with torch.device("meta"):
        count = parameter_count(SemVAE(SemVAEConfig()))
    assert abs(count - 29e6) < 0.5e6


def test_losses_by_hand():
    """Oracle: each term written out, with the scale that was set; the total is their weighted sum."""
    torch.manual_seed(0)
    model, data = SemVAE(SMALL), features()
    mean, std = data.mean((0, 2, 3)), data.std((0, 2, 3))
    model.set_scale(mean, std)
    noise = torch.randn(16, 4, 4, 4)
    losses = model.losses(data, noise, cosine=0.5, kl=0.01)
    m, logvar = model.moments(data)
    decoded = model.decode(m + (0.5 * logvar).exp() * noise)
    error = ((decoded - data) / std[:, None, None]).square().mean()
    dot = (decoded * data).sum(1) / decoded.norm(dim=1) / data.norm(dim=1)
    posterior = torch.distributions.Normal(m, (0.5 * logvar).exp())
    divergence = torch.distributions.kl_divergence(posterior, torch.distributions.Normal(0.0, 1.0)).mean()
    assert_close(losses.mse, error)
    assert_close(losses.cosine, (1 - dot).mean())
    assert_close(losses.kl, divergence, atol=1e-5, rtol=1e-5)
    assert_close(losses.total, error + 0.5 * (1 - dot).mean() + 0.01 * divergence)


@pytest.mark.parametrize(("steps", "share"), [(60, 2.0), pytest.param(400, 0.8, marks=pytest.mark.slow)])
def test_it_learns_and_beats_pca_on_curved_features(steps, share):
    """Oracle: held-out squared error against exact PCA with as many channels, which cannot bend: soon near it, then
    below it."""
    torch.manual_seed(0)
    model = SemVAE(SMALL)
    train, held_out = features(256), features(64, seed=5)
    model.set_scale(train.mean((0, 2, 3)), train.std((0, 2, 3)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        batch = train[torch.randperm(256, generator=generator)[:64]]
        loss = model.losses(batch, torch.randn(64, 4, 4, 4, generator=generator)).total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * (1 - step / steps)
    pca = PCAFit().update(train).finish(4)
    with torch.no_grad():
        ours = (model.decode(model.encode(held_out)) - held_out).square().mean()
    assert ours < share * (pca.decode(pca.encode(held_out)) - held_out).square().mean()


def test_shapes_positions_and_grids():
    """Oracle: any grid works; attention sees positions, so moving a patch is not the same as relabelling it."""
    torch.manual_seed(0)
    model, data = SemVAE(SMALL).eval(), features(2)
    assert model.encode(data).shape == (2, 4, 4, 4)
    assert model.decode(torch.zeros(1, 4, 3, 7)).shape == (1, 32, 3, 7)
    swapped = data.flip(3)
    assert (model.encode(swapped).flip(3) - model.encode(data)).abs().max() > 1e-5
    assert_close(model.encode(data[:1]), model.encode(data)[:1], atol=1e-5, rtol=1e-5)


def test_files(tmp_path):
    torch.manual_seed(0)
    model, data = SemVAE(SMALL).eval(), features(2)
    model.set_scale(torch.rand(32), torch.rand(32) + 0.5)
    save_semvae(model, tmp_path / "v")
    again = load_semvae(tmp_path / "v")
    assert torch.equal(again.encode(data), model.encode(data))
    assert not any(p.requires_grad for p in again.parameters())
    for text, facts in (
        ("{}", ("config.json", "lwd.semvae")),
        ('{"format": "lwd.semvae", "version": 1}', ("config.json", "network")),
        ('{"format": "lwd.semvae", "version": 1, "network": {"chanels": 4}}', ("chanels", "channels")),
        ('{"format": "lwd.semvae", "version": 1, "network": {"features": 48, "heads": 2}}', ("(32,)", "(48,)")),
    ):
        (tmp_path / "v" / "config.json").write_text(text)
        with pytest.raises(lwd.InputError, match=says(facts)):
            load_semvae(tmp_path / "v")
    with pytest.raises(lwd.InputError, match=says("width", "heads")):
        SemVAE(SemVAEConfig(features=30, heads=2))
    with pytest.raises(lwd.InputError, match=says("channels")):
        SemVAEConfig(channels=0)
