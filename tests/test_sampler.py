import itertools

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import lwd
from lwd.sampler import field_breakpoints
from lwd.sampling.sde import step_noise
from messages import says
from strategies import random_gaussian, small_mixture

LAYOUT = lwd.Layout.of(texture=2, semantic=1)


def test_noise_is_a_function_of_the_seed_alone():
    """Oracle: equality across batch size, order and position."""
    four = lwd.seeded_noise([3, 1, 4, 1], (3, 5, 5))
    assert torch.equal(four[1], four[3])
    for row, seed in enumerate([3, 1, 4]):
        assert torch.equal(lwd.seeded_noise([seed], (3, 5, 5))[0], four[row])
    many = lwd.seeded_noise(range(2000), (3, 2, 2))
    assert torch.equal(lwd.seeded_noise(np.arange(3), (3, 2, 2)), many[:3])
    assert_close(many.mean(), torch.tensor(0.0), atol=0.02, rtol=0)
    assert_close(many.std(), torch.tensor(1.0), atol=0.02, rtol=0)
    for bad in (-1, 1.5, True, 2**63):
        with pytest.raises(lwd.InputError, match=says("seed", repr(bad))):
            lwd.seeded_noise([bad], (1,))


def test_all_bits_of_a_seed_count_and_small_seeds_keep_their_noise():
    """Oracle: torch's own generator for seeds of up to 32 bits, of which it keeps no more; for others inequality."""
    small = [0, 5, 2**31, 2**32 - 1]
    own = [torch.randn(4, 4, 4, generator=torch.Generator().manual_seed(seed)) for seed in small]
    assert torch.equal(lwd.seeded_noise(small, (4, 4, 4)), torch.stack(own))
    large = [2**32, 2**32 + 5, 2**33 + 5, 2**62, 2**63 - 1]
    rows = [*lwd.seeded_noise(large, (4, 4, 4)), *own, *step_noise(large, 0, (4, 4, 4))]
    assert not any(torch.equal(a, b) for i, a in enumerate(rows) for b in rows[:i])
    assert torch.equal(lwd.seeded_noise(large[2:3], (4, 4, 4))[0], rows[2])
    many = lwd.seeded_noise(range(2**40, 2**40 + 2000), (3, 2, 2))
    assert_close(many.mean(), torch.tensor(0.0), atol=0.02, rtol=0)
    assert_close(many.std(), torch.tensor(1.0), atol=0.02, rtol=0)
    assert_close(torch.corrcoef(many.flatten(1).T), torch.eye(12), atol=0.1, rtol=0)


@pytest.mark.parametrize("options", [{"method": "heun", "steps": 12}, {"adaptive": "sample"}])
def test_a_sample_is_a_function_of_its_seed_and_label(options):
    """Oracle: the same seeds one by one, reversed and together. The exact velocity is batched algebra: to rounding."""
    data = small_mixture([0, 1, 1])
    settings = {"size": (1, 1), "dtype": torch.float64, **options}
    seeds, labels = [5, 9, 2], [0, 1, 2]
    together = lwd.sample(data, lwd.Offset(0.3), LAYOUT, seeds=seeds, labels=labels, **settings).z
    backwards = lwd.sample(data, lwd.Offset(0.3), LAYOUT, seeds=seeds[::-1], labels=labels[::-1], **settings).z
    assert_close(backwards.flip(0), together, atol=1e-12, rtol=0)
    for row in range(3):
        alone = lwd.sample(data, lwd.Offset(0.3), LAYOUT, seeds=[seeds[row]], labels=labels[row], **settings).z[0]
        assert_close(alone, together[row], atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    "schedule", [lwd.Synchronous(), lwd.Offset(0.3), lwd.Cascade(), lwd.Polynomial([[0.0, 1, 0, 0, 2]])]
)
def test_samples_have_the_moments_of_the_data(schedule):
    """Oracle: mean and covariance of the mixture, within 5 standard errors of 4000 samples."""
    data = small_mixture()
    solution = lwd.sample(data, schedule, LAYOUT, seeds=range(4000), size=(1, 1), dtype=torch.float64, rtol=1e-5)
    z = solution.z.flatten(1)
    mean = (data.weights[:, None] * data.means).sum(0)
    second = data.covariances + data.means[:, :, None] * data.means[:, None, :]
    covariance = (data.weights[:, None, None] * second).sum(0) - mean[:, None] * mean
    assert_close(z.mean(0), mean, atol=5 * 1.2 / 4000**0.5, rtol=0)
    assert_close(z.T.cov(), covariance, atol=5 * 2.5 / 4000**0.5, rtol=0)


def test_labels_choose_the_class():
    """Oracle: class 0 is one Gaussian far away; its samples are all there, class 1's are not."""
    means = torch.tensor([[10.0, 10, 10], [0, 0, 0], [1, 0, 0]])
    data = lwd.GaussianMixture(LAYOUT, means, 0.1 * torch.eye(3).expand(3, 3, 3), labels=[0, 1, 1])
    z = lwd.sample(data, lwd.Offset(0.3), LAYOUT, seeds=range(20), labels=[0] * 10 + [1] * 10, size=(1, 1)).z
    assert z.dtype == torch.float32
    assert (z[:10] > 5).all()
    assert (z[10:] < 5).all()


def test_a_group_that_stands_still_has_field_zero_even_where_the_network_is_undefined():
    """Oracle: a velocity that is NaN at the ends of a group's clock, under the cascade that rests there."""

    def velocity(z, times, label):  # noqa: ARG001
        t = LAYOUT.expand(times)
        return torch.where((t == 0) | (t == 1), torch.nan, torch.ones_like(z))

    field = lwd.flow_field(velocity, lwd.Cascade(), LAYOUT, torch.zeros(1, dtype=torch.int64))
    z = torch.zeros(1, 3, 1, 1)
    assert_close(field(z, torch.tensor([0.25])).flatten(), torch.tensor([0.0, 0, 2]))
    assert_close(field(z, torch.tensor([0.75])).flatten(), torch.tensor([2.0, 2, 0]))


def test_the_velocity_sees_local_times_in_float64_and_its_label():
    seen = []

    def velocity(z, times, label):
        seen.append((times, label))
        return torch.zeros_like(z)

    lwd.sample(velocity, lwd.Offset(0.3), LAYOUT, seeds=[1, 2], labels=[7, 8], size=(2, 2), method="euler", steps=4)
    times = torch.stack([times for times, _ in seen])
    assert times.dtype == torch.float64
    assert (times >= 0).all()
    assert (times <= 1).all()
    assert all(torch.equal(label, torch.tensor([7, 8])) for _, label in seen)


def test_ignoring_breakpoints_gives_the_references_equal_steps():
    """Oracle: SFD's Euler on its own clock s in [0, 1 + delta] with a channel mask, written out."""
    data, delta, n = random_gaussian(("texture", "semantic"), seed=2), 0.3, 25
    ours = lwd.sample(
        data, lwd.Offset(delta), data.layout, seeds=range(3), size=(1, 1), dtype=torch.float64,
        method="euler", steps=n, breakpoints=(),
    )  # fmt: skip
    z = lwd.seeded_noise(range(3), (4, 1, 1)).double()
    clock = torch.linspace(0, 1 + delta, n + 1, dtype=torch.float64)
    for s, following in itertools.pairwise(clock):
        times = torch.stack([(s - delta).clamp(0, 1), s.clamp(0, 1)]).expand(3, 2)
        mask = data.layout.expand(torch.tensor([[s >= delta, s <= 1]])).double()
        z = z + (following - s) * mask * data(z, times, torch.zeros(3, dtype=torch.int64))
    assert_close(ours.z, z, atol=1e-12, rtol=0)


def test_guidance_intervals_become_breakpoints():
    """Oracle: tau where the group's local time crosses the edge; accuracy at a cost that restarting makes possible."""
    data = small_mixture([0, 1, 1])
    guided = lwd.ClassifierFree(data, data.null_label, {"texture": 2.0}, LAYOUT, interval={"texture": (0.2, 0.7)})
    schedule = lwd.Polynomial([[0.0, 1, 0, 0, 2]])
    points = field_breakpoints(guided, schedule)
    assert_close(
        schedule.times(torch.tensor(points))[:, 0].detach(), torch.tensor([0.2, 0.7]).double(), atol=1e-6, rtol=0
    )
    settings = {"seeds": range(4), "size": (1, 1), "dtype": torch.float64, "rtol": 1e-6}
    fine = lwd.sample(guided, schedule, LAYOUT, **settings | {"rtol": 1e-10, "max_nfe": 50_000})
    aware = lwd.sample(guided, schedule, LAYOUT, **settings)
    blind = lwd.sample(guided, schedule, LAYOUT, breakpoints=(), **settings)
    assert aware.nfe < blind.nfe
    assert (aware.z - fine.z).abs().max() < 1e-4


def test_an_interval_that_ends_on_a_kink_of_the_schedule():
    """Oracle: the edge moved by 1e-7; in Offset(0.55) semantic arrives when texture is at 0.45."""
    layout = lwd.Layout.of(texture=1, semantic=1)
    main = lwd.Gaussian(layout, torch.tensor([[1.0, 0.6], [0.6, 1.0]]))
    weak = lwd.Gaussian(layout, torch.tensor([[2.0, 0.2], [0.2, 2.0]]))
    run = {"seeds": range(8), "size": (1, 1), "dtype": torch.float64}
    for low, high in ((0.0, 0.45), (0.45, 1.0)):
        results = []
        for shift in (0.0, 1e-7):
            interval = (low + shift if low else low, high - shift if high < 1 else high)
            guided = lwd.AutoGuidance(main, weak, {"texture": 2.0}, layout, {"texture": interval})
            results.append(lwd.sample(guided, lwd.Offset(0.55), layout, method="rk4", steps=60, **run).z)
        assert_close(results[0], results[1], atol=1e-5, rtol=0)


def test_what_does_not_fit_is_refused():
    data = small_mixture()
    with pytest.raises(lwd.InputError, match=says("semantic, texture", "texture, semantic")):
        lwd.sample(data, lwd.Offset(0.3, ("semantic", "texture")), LAYOUT, seeds=[0])
    with pytest.raises(lwd.InputError, match=says("labels", "float32")):
        lwd.sample(data, lwd.Offset(0.3), LAYOUT, seeds=[0, 1], labels=[0.9, 1.9])
    with pytest.raises(lwd.InputError, match=says("size=(1, 1)")):
        lwd.sample(data, lwd.Offset(0.3), LAYOUT, seeds=[0])
    with pytest.raises(lwd.InputError, match=says("seed")):
        lwd.sample(data, lwd.Offset(0.3), LAYOUT, seeds=[])
    with pytest.raises(lwd.InputError, match=says(2, "(3,)")):
        lwd.sample(data, lwd.Offset(0.3), LAYOUT, seeds=[0, 1], labels=[1, 2, 3])
