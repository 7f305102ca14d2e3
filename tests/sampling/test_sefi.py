"""The sampler of SeFi-Image's reference, and ours on the same network."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import lwd
from lwd.checkpoints.sefi import offset_of, schedule_of
from lwd.sampling.flow import Flow
from lwd.sampling.placement import place
from lwd.sampling.sefi import SeFiSettings, reference_levels, sample_sefi, solve_sefi
from messages import says
from sefi import LAYOUT, fixture, network, prompts, random_prompts

SIX = SeFiSettings(steps=6, shift=0.3)


def guided(scale=4.0):
    return lwd.ClassifierFree(network(), prompts("negative_embeds"), scale, LAYOUT)


def test_six_guided_steps():
    """Oracle: the texture after the reference's own loop."""
    tensors = fixture()[0]
    found = solve_sefi(guided(), schedule_of(0.1), LAYOUT, tensors["latents"], prompts(), SIX)
    assert_close(LAYOUT.split(found.z)["texture"], tensors["euler_texture"], atol=1e-4, rtol=0)
    assert found.nfe == 6


@pytest.mark.parametrize(("offset", "shift", "steps"), [(0.1, 0.3, 6), (0.0, 1.0, 4), (0.3, 2.5, 7), (1.0, 0.3, 5)])
def test_levels_follow_the_description(offset, shift, steps):
    """Oracle: the fixture's description of the loop, in NumPy's float32, with its table of levels."""
    table = fixture()[0]["scheduler_sigmas"].numpy()
    u = torch.linspace(0, 1, steps + 1).numpy()
    f = np.float32
    raw = f(shift) * u / (f(1) + f(shift - 1) * u) * f(1 + offset)
    lead = table[(np.minimum(raw, f(1)) * f(999)).astype(int)]
    follower = table[(np.clip(raw - f(offset), f(0), f(1)) * f(999)).astype(int)]
    ours = reference_levels(steps, offset, shift)
    assert ours[0].numpy().tolist() == lead.tolist()
    assert ours[1].numpy().tolist() == follower.tolist()
    assert ours[0][0] == ours[1][0] == 1


@pytest.mark.parametrize("steps", [8, 50])
def test_every_step_is_eulers(steps):
    """Oracle: for data at one point the velocity is exact, so the state is on the line to it at every level."""
    goal = torch.randn(1, 12, 1, 1, generator=torch.Generator().manual_seed(0))

    def velocity(z, times, label):
        del label
        return (goal - z) / (1 - LAYOUT.expand(times, z.ndim)).float()

    noise = torch.randn(3, 12, 1, 1, generator=torch.Generator().manual_seed(1))
    z = solve_sefi(velocity, schedule_of(0.2), LAYOUT, noise, torch.zeros(3), SeFiSettings(steps, 0.3)).z
    last = torch.tensor([level[-1] for level in reference_levels(steps, 0.2, 0.3)])
    wanted = torch.lerp(goal.expand_as(noise), noise, LAYOUT.expand(last[None], 4))
    assert_close(z, wanted, atol=1e-5, rtol=1e-4)


def test_continuous_euler_converges_to_the_reference(monkeypatch):
    """Oracle: the gap closes with more steps and levels; with 1,000 levels the last one, 0.001, remains."""
    layout, schedule = lwd.Layout.of(semantic=1, texture=1), schedule_of(0.1)
    data = lwd.Gaussian(layout, torch.tensor([[1.0, 0.6], [0.6, 0.7]]))
    noise, label = lwd.seeded_noise(range(8), (2, 1, 1)), torch.zeros(8, dtype=torch.int64)
    field, gaps = lwd.flow_field(data, schedule, layout, label), []
    for steps, levels in ((8, 1000), (32, 10_000), (128, 100_000), (128, 1000)):
        monkeypatch.setattr("lwd.sampling.sefi.LEVELS", levels)
        theirs = solve_sefi(data, schedule, layout, noise, label, SeFiSettings(steps)).z
        ours = lwd.solve(field, noise, method="euler", steps=steps, breakpoints=schedule.breakpoints).z
        gaps.append(float((ours - theirs).square().mean().sqrt()))
    assert gaps[0] > 2 * gaps[1] > 4 * gaps[2]
    assert gaps[2] < 1e-3
    assert gaps[3] < 3e-3


def test_continuous_euler_on_the_network():
    """Oracle: the reference's loop with as many steps in the same places, up to its rounding of levels."""
    noise, schedule = fixture()[0]["latents"], schedule_of(0.1)
    theirs = solve_sefi(network(), schedule, LAYOUT, noise, prompts(), SeFiSettings(24, 0.3)).z
    flow = Flow(network(), schedule, LAYOUT, (4, 6), (0, 1), prompts=prompts())
    grid = place("shift:0.3", 24, "euler", flow)
    ours = lwd.solve(lwd.flow_field(network(), schedule, LAYOUT, prompts()), noise, method="euler", grid=grid).z
    moved = float((theirs - noise).square().mean().sqrt())
    assert float((ours - theirs).square().mean().sqrt()) < 0.02 * moved


def test_rows_and_seeds():
    """Oracle: a sample of a padded batch is that of its seed alone; negative prompts are for all, or one each."""
    both = random_prompts(3)
    null = random_prompts(1, tokens=3, seed=5)  # another length: the two passes share nothing
    velocity = lwd.ClassifierFree(network(), null, 2.0, LAYOUT)
    for draw, options in ((sample_sefi, {"steps": 3}), (lwd.sample, {"method": "heun", "steps": 4})):
        where = {"size": (2, 3), "rows": 8, **options}
        many = draw(velocity, schedule_of(0.1), LAYOUT, seeds=[4, 5, 6], labels=both, **where)
        one = draw(velocity, schedule_of(0.1), LAYOUT, seeds=[5], labels=both[torch.tensor([1])], **where)
        assert torch.equal(many.z[1], one.z[0])
        assert many.z.shape == (3, 12, 2, 3)
    each = lwd.ClassifierFree(network(), null[torch.zeros(3, dtype=torch.int64)], 2.0, LAYOUT)
    again = sample_sefi(each, schedule_of(0.1), LAYOUT, seeds=[4, 5, 6], labels=both, size=(2, 3), steps=3)
    first = sample_sefi(velocity, schedule_of(0.1), LAYOUT, seeds=[4, 5, 6], labels=both, size=(2, 3), steps=3)
    assert torch.equal(again.z, first.z)
    with pytest.raises(lwd.InputError, match=says(2, 3)):
        sample_sefi(network(), schedule_of(0.1), LAYOUT, seeds=[1, 2, 3], labels=both[torch.arange(2)], size=(2, 3))
    wrong = lwd.ClassifierFree(network(), both[torch.arange(2)], 2.0, LAYOUT)
    with pytest.raises(lwd.InputError, match=says(2, 3)):
        sample_sefi(wrong, schedule_of(0.1), LAYOUT, seeds=[1, 2, 3], labels=both, size=(2, 3), steps=1)


def test_autoguidance_with_prompts():
    """Oracle: guided by itself, a model is unchanged."""
    z, times = fixture()[0]["latents"], torch.tensor([[0.5, 0.4]] * 2)
    alone = network()(z, times, prompts())
    assert_close(lwd.AutoGuidance(network(), network(), 3.0, LAYOUT)(z, times, prompts()), alone)


def test_offsets_and_schedules():
    """Oracle: each is the inverse of the other."""
    for offset in (0.0, 0.1, 0.75, 1.0):
        assert offset_of(schedule_of(offset)) == offset
        assert schedule_of(offset).groups == LAYOUT.names
        half = schedule_of(offset).times(0.5)
        assert half[0] >= half[1]
    assert offset_of(lwd.Polynomial([[0.0, 1.0]], LAYOUT.names)) is None


def test_what_the_solver_refuses():
    """Oracle: the message names the setting."""
    where = {"seeds": [0], "labels": random_prompts(1), "size": (2, 2)}
    curve = lwd.Polynomial([[0.0, 1.0]], LAYOUT.names).freeze()
    for schedule, options, facts in (
        (curve, {}, ("sefi", "polynomial")),
        (schedule_of(0.1), {"steps": 0}, ("sefi", 0)),
        (schedule_of(0.1), {"shift": -1.0}, ("shift", "-1.0")),
        (schedule_of(0.1), {"rtol": 1e-3}, ("sefi", "rtol")),
        (schedule_of(0.1), {"breakpoints": ()}, ("sefi", "breakpoints")),
    ):
        with pytest.raises(lwd.InputError, match=says(*facts)):
            sample_sefi(network(), schedule, LAYOUT, **where, **options)
