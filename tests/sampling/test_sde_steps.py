"""The steps and the noise of the stochastic sampler: where it stops, what depends on the seed, what is refused."""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close

import lwd
from lwd.sampling.diffusion import Coefficient, LastStep
from lwd.sampling.sde import ReverseSDE, integrate, sde_steps, step_noise
from messages import says
from sampling.exact_sde import LAYOUT, SCHEDULES, reverse
from strategies import scalar_pair, small_mixture

SIT = "mean:0.04"


def test_a_group_that_stands_still_is_not_touched():
    """Oracle: under the cascade texture keeps its noise, bit for bit, until semantic has arrived, and then the reverse.

    The velocity is NaN for a group at the ends of its clock, where nobody may ask for its score.
    """

    def velocity(z, times, label):  # noqa: ARG001
        t = LAYOUT.expand(times)
        return torch.where((t == 1), torch.nan, 0.5 - z)

    sde = ReverseSDE(
        velocity,
        lwd.Cascade(),
        LAYOUT,
        torch.zeros(4, dtype=torch.int64),
        (Coefficient("constant"), Coefficient("constant")),
        LastStep(),
    )
    start = lwd.seeded_noise(range(4), (3, 2, 2))
    steps = sde_steps(sde, lwd.Cascade().breakpoints, "euler-maruyama", steps=12)
    states = {0.0: start}
    integrate(sde, start, steps, "euler-maruyama", lambda k: step_noise(range(4), k, (3, 2, 2)), states.__setitem__)
    assert all(z.isfinite().all() for z in states.values())
    for tau, z in states.items():
        if tau <= 0.5:
            assert torch.equal(z[:, :2], start[:, :2])
        else:
            assert torch.equal(z[:, 2:], states[0.5][:, 2:])
    assert not torch.equal(states[0.5][:, 2:], start[:, 2:])


def test_groups_have_their_own_coefficients():
    """Oracle: two independent scalars; semantic's is the ODE's own result where only texture has noise."""
    data = scalar_pair(0.0)
    run = {"seeds": range(6), "size": (1, 1), "dtype": torch.float64}
    mixed = lwd.sample_sde(data, lwd.Synchronous(), data.layout, diffusion={"texture": "constant:0.5"}, steps=40, **run)
    grid = [*(0.96 * k / 39 for k in range(40)), 1.0]
    ode = lwd.sample(data, lwd.Synchronous(), data.layout, method="euler", grid=grid, **run)
    assert_close(mixed.z[:, 1], ode.z[:, 1], atol=1e-12, rtol=0)
    assert (mixed.z[:, 0] - ode.z[:, 0]).abs().min() > 1e-3


@pytest.mark.parametrize("name", SCHEDULES)
def test_steps_stop_at_kinks_and_where_the_noise_of_a_group_ends(name):
    """Oracle: counting; tau of local time 1 - h for each group; after the last of these there is one step."""
    data, schedule = scalar_pair(), SCHEDULES[name]
    sde = reverse(data, schedule, "sigma", SIT)
    steps = sde_steps(sde, schedule.breakpoints, "euler-maruyama", steps=20)
    ends = [float(schedule.tau_of(group, 0.96).detach()) for group in schedule.groups]
    stops = [step.end for step in steps]
    assert len(steps) == 20
    for point in (*schedule.breakpoints, *ends):
        assert min(abs(point - stop) for stop in stops) < 1e-12
    assert steps[-1].start == pytest.approx(max(ends), abs=1e-12)
    for before, after in itertools.pairwise(steps):
        assert abs(before.end - after.start) < 1e-12
    given = sde_steps(sde, schedule.breakpoints, "sde-heun", grid=(0, 0.3, 0.99, 1))
    assert {0.3, 0.99, 1.0} <= {step.end for step in given}


def test_the_network_is_asked_for_scores_before_one():
    """Oracle: every local time with a score in it, by a coefficient that notes them; the velocity itself may see 1."""
    seen = []

    class Noted(Coefficient):
        def __call__(self, t):
            seen.append(t.detach())
            return super().__call__(t)

    data = scalar_pair()
    for schedule, method in itertools.product(SCHEDULES.values(), ("euler-maruyama", "sde-heun")):
        sde = ReverseSDE(
            data, schedule, data.layout, torch.zeros(1, dtype=torch.int64),
            (Noted("constant"), Noted("constant")), LastStep("mean", 0.1),
        )  # fmt: skip
        steps = sde_steps(sde, schedule.breakpoints, method, steps=12)
        integrate(sde, torch.zeros(1, 2, 1, 1), steps, method, lambda _: torch.zeros(1, 2, 1, 1))
    assert max(float(t.max()) for t in seen) <= 0.9 + 1e-9


def test_noise_is_a_function_of_seed_and_step_alone():
    """Oracle: equality across batch and order; no two of 2000 (seed, step) alike; mean and deviation of a normal."""
    three = step_noise([3, 2**62, 3], 5, (2, 2, 2))
    assert torch.equal(three[0], three[2])
    assert torch.equal(step_noise([2**62], 5, (2, 2, 2))[0], three[1])
    many = torch.stack([step_noise(range(100), k, (3, 2, 2)) for k in range(20)]).reshape(2000, -1)
    assert len({tuple(row) for row in many.tolist()}) == 2000
    assert not torch.equal(step_noise([0], 0, (2, 2, 2)), lwd.seeded_noise([0], (2, 2, 2)))
    assert not torch.equal(step_noise([0], 1, (2, 2, 2)), step_noise([1], 0, (2, 2, 2)))
    assert abs(float(many.mean())) < 5 / many.numel() ** 0.5
    assert abs(float(many.std()) - 1) < 5 / many.numel() ** 0.5


@pytest.mark.parametrize("method", ["euler-maruyama", "sde-heun"])
def test_a_sample_is_a_function_of_its_seed_and_label(method):
    """Oracle: the same seeds one by one, reversed and together. The exact velocity is batched algebra: to rounding."""
    data = small_mixture([0, 1, 1])
    settings = {"size": (1, 1), "dtype": torch.float64, "method": method, "steps": 12}
    seeds, labels = [5, 9, 2], [0, 1, 2]
    together = lwd.sample_sde(data, lwd.Offset(0.3), LAYOUT, seeds=seeds, labels=labels, **settings).z
    backwards = lwd.sample_sde(data, lwd.Offset(0.3), LAYOUT, seeds=seeds[::-1], labels=labels[::-1], **settings).z
    assert_close(backwards.flip(0), together, atol=1e-12, rtol=0)
    for row in range(3):
        alone = lwd.sample_sde(data, lwd.Offset(0.3), LAYOUT, seeds=[seeds[row]], labels=labels[row], **settings)
        assert_close(alone.z[0], together[row], atol=1e-12, rtol=0)
        assert len(alone.z) == len(alone.nfe_per_sample) == 1


def test_coefficients_by_hand():
    """Oracle: SiT's forms at t = 0, 1/2 and 1, with their scale."""
    t = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    for text, expected in (
        ("none", (0, 0, 0)),
        ("constant:0.5", (0.5, 0.5, 0.5)),
        ("sigma", (1, 0.5, 0)),
        ("sigma:2", (2, 1, 0)),
        ("decreasing", (1, 0.25, 0)),
        ("increasing-decreasing", (0, 1, 0)),
    ):
        assert_close(Coefficient.parse(text)(t), torch.tensor(expected, dtype=torch.float64), atol=1e-15, rtol=0)


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"method": "euler"}, ("euler", "euler-maruyama", "sde-heun")),
        ({"steps": None}, ("euler-maruyama", "steps")),
        ({"steps": 0}, ("steps", 0)),
        ({"steps": 2}, ("steps=2", "breakpoints")),
        ({"grid": (0, 1)}, ("steps", "grid")),
        ({"rtol": 1e-3}, ("rtol", "diffusion", "last_step")),
        ({"diffusion": "sgima"}, ("sgima", "sigma")),
        ({"diffusion": "SBDM"}, ("SBDM", "sigma")),
        ({"diffusion": "sigma:-1"}, "sigma:-1"),
        ({"diffusion": "sigma:nan"}, "sigma:nan"),
        ({"diffusion": "sigma:much"}, "sigma:much"),
        ({"diffusion": "none:2"}, "none:2"),
        ({"diffusion": {"depth": "sigma"}}, ("depth", "texture", "semantic")),
        ({"diffusion": 3}, 3),
        ({"last_step": "mean:0"}, "mean:0"),
        ({"last_step": "mean:1"}, "mean:1"),
        ({"last_step": "tweedie"}, ("tweedie", "mean", "ode")),
        ({"seeds": []}, "seed"),
        ({"seeds": [-1]}, ("seed", -1)),
        ({"seeds": [1.5]}, ("seed", 1.5)),
    ],
)
def test_what_does_not_fit_is_refused(options, facts):
    data = small_mixture()
    with pytest.raises(lwd.InputError, match=says(facts)):
        lwd.sample_sde(data, lwd.Offset(0.3), LAYOUT, **{"seeds": [0], "size": (1, 1), "steps": 9} | options)


def test_other_groups_and_infinite_states_are_refused():
    data = small_mixture()
    with pytest.raises(lwd.InputError, match=says("semantic, texture", "texture, semantic")):
        lwd.sample_sde(data, lwd.Offset(0.3, ("semantic", "texture")), LAYOUT, seeds=[0], steps=9)
    with pytest.raises(lwd.SolveError, match=says("euler-maruyama", 9)):
        lwd.sample_sde(lambda z, *_: z * math.nan, lwd.Offset(0.3), LAYOUT, seeds=[0], size=(1, 1), steps=9)
