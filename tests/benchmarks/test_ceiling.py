"""The ceiling of any schedule: texture drawn beside semantic latents that are known."""

import numpy as np
import pytest
import torch

import lwd
from evidence import script
from lwd.sampling.generator import open_generator
from lwd.sampling.settings import SampleSettings
from lwd.schedule.io import load_schedule

ceiling = script("ceiling")
LAYOUT = lwd.Layout.of(texture=1, semantic=1)
COVARIANCE = torch.tensor([[1.0, 0.8], [0.8, 2.0]], dtype=torch.float64)


@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
def test_texture_follows_the_conditional_distribution(level):
    """Oracle: the conditional of a Gaussian. Seen at level t, the semantic latent s is t s + (1 - t) noise."""
    noise = torch.randn(40_000, 2, 1, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    real = torch.full((40_000, 2, 1, 1), 1.5, dtype=torch.float64)
    labels, solver = torch.zeros(40_000).long(), {"method": "rk4", "steps": 64}
    z = ceiling.beside(lwd.Gaussian(LAYOUT, COVARIANCE), LAYOUT, real, level, noise, labels, solver)
    seen = level * real[:, 1].flatten() + (1 - level) * noise[:, 1].flatten()
    slope = level * 0.8 / (level**2 * 2.0 + (1 - level) ** 2)
    rest = z[:, 0].flatten() - slope * seen
    assert float(rest.mean()) == pytest.approx(0, abs=0.02)
    assert float(rest.var()) == pytest.approx(1 - slope * level * 0.8, abs=0.03)
    assert float((rest * (seen - seen.mean())).mean()) == pytest.approx(0, abs=0.02)
    assert torch.equal(z[:, 1:], real[:, 1:])


def test_shown_images_have_the_classes_of_the_samples_and_do_not_repeat():
    labels = torch.arange(300).flip(0) % 10
    picked = ceiling.shown_images(labels, 125)
    assert len(set(picked.tolist())) == 125
    assert labels[picked].tolist() == [i % 10 for i in range(125)]
    assert torch.equal(picked, ceiling.shown_images(labels, 125))


def test_a_network_for_texture_only_sees_clean_semantic_latents_at_the_chosen_times():
    """Oracle: the definition. 1% of the times are spent on the way to the clean latent."""
    tau = torch.linspace(0.01, 1, 1000, dtype=torch.float64)
    times = ceiling.texture_only(2).times(tau)
    assert torch.allclose(times[:, 0], ((tau - 0.01) / 0.99) ** 2, atol=1e-4)
    assert float(times[1:, 1].min()) == 1
    assert ceiling.texture_only(1).times(0.0).tolist() == [0, 0]


def test_samples_beside_real_latents_do_not_depend_on_the_batch(tmp_path):
    """Oracle: the same noises and latents in other batches; two samples differ."""
    real = torch.randn(5, 24, 4, 4, generator=torch.Generator().manual_seed(0))
    found = []
    for batch in (2, 5):
        settings = SampleSettings(count=5, solver="ab3", steps=2, batch=batch, threads=1)
        ceiling.draw_beside(open_generator("fashion", settings, None, None, "cpu"), real, 1.0, tmp_path / str(batch))
        found.append(np.load(tmp_path / str(batch) / "samples.npz")["arr_0"].astype(int))
    assert found[0].shape == (5, 28, 28, 3)
    assert abs(found[0] - found[1]).max() <= 1
    assert abs(found[0][0] - found[0][1]).mean() > 5


def test_an_arm_is_drawn_under_its_schedule(tmp_path, monkeypatch):
    """Oracle: the definition of tau^3."""
    drawn = []
    monkeypatch.setattr(ceiling, "generate", lambda generator, _: drawn.append(generator))
    monkeypatch.setattr(ceiling, "open_generator", lambda *given: load_schedule(given[-1]))
    samples = {"count": 3, "solver": "ab3", "steps": 2}
    ceiling.Bench({}, tmp_path, tmp_path).draw(tmp_path, samples, {"shares": [[0, 0, 1]]}, tmp_path / "arm")
    assert drawn[0].times(0.5).tolist() == pytest.approx([0.125, 0.5])
