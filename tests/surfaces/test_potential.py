"""What two clocks can gain: exact Gaussian surfaces, where the answer is known."""

import pytest
import torch

import lwd
from lwd.cli import main
from lwd.errors import InputError
from lwd.objective import FlowObjective
from lwd.surfaces.files import NAME, save_surfaces
from lwd.surfaces.integral import path_terms
from lwd.surfaces.potential import potential
from lwd.surfaces.table import SurfaceTable, grid_points
from messages import says

NAMES = ("texture", "semantic")


def table(covariance, error=1e-6, points=21):
    layout = lwd.Layout.of(texture=1, semantic=1)
    axis = torch.linspace(0, 1, points, dtype=torch.float64)
    times = grid_points(axis, 2)
    losses, energies = lwd.Gaussian(layout, torch.tensor(covariance)).surfaces(times)
    errors = torch.full_like(losses, error)
    return SurfaceTable(layout, times, losses, energies, errors, errors, 1000, axis)


def judged(covariance, error=1e-6, falling=None):
    one = table(covariance, error)
    return potential(one, FlowObjective(one.layout), falling)


COUPLED = [[0.15, 0.5], [0.5, 2.0]]
SWAPPED = [[2.0, 0.5], [0.5, 0.15]]


def test_independent_groups_have_nothing_to_gain():
    """Oracle: without coupling the flow loss is the same along every path."""
    found = judged([[0.3, 0.0], [0.0, 2.0]])
    assert found.word == "nothing"
    assert all(abs(gain.share) < 1e-3 for gain in found.gains.values())


def test_gains_are_those_of_the_exact_surfaces():
    exact = lwd.Gaussian(lwd.Layout.of(texture=1, semantic=1), torch.tensor(COUPLED))
    objective = FlowObjective(exact.layout)
    found = judged(COUPLED)
    sync = float(path_terms(lwd.Synchronous(NAMES), exact.surfaces, objective)[0])
    for lead, gain in found.gains.items():
        word, _, number = gain.curve.partition(" ")
        follower = next(name for name in NAMES if name != lead)
        curve = lwd.Offset(float(number), NAMES, lead) if word == "offset" else lwd.Cascade(NAMES, (lead, follower))
        assert gain.share == pytest.approx(1 - float(path_terms(curve, exact.surfaces, objective)[0]) / sync, abs=2e-3)


def test_swapping_the_groups_swaps_the_order():
    """Oracle: the covariance with its groups exchanged has the gains of the other order."""
    one, other = judged(COUPLED), judged(SWAPPED)
    assert {one.word, other.word} == {"gain", "other order"}
    for lead, twin in (("texture", "semantic"), ("semantic", "texture")):
        assert one.gains[lead].share == pytest.approx(other.gains[twin].share, abs=1e-6)
    facts = other if other.word == "other order" else one
    assert facts.other.lead in str(facts)
    assert f"{facts.other.share:.2%}" in str(facts)


def test_noise_is_not_taken_for_a_gain():
    assert judged([[0.3, 0.0], [0.0, 2.0]], error=0.2).word == "unclear"
    assert judged([[0.3, 0.0], [0.0, 2.0]], error=0.2, falling=0.05).word == "too short"
    assert judged([[0.3, 0.0], [0.0, 2.0]], falling=0.05).word == "too short"


def test_a_clear_gain_of_a_short_probe_is_said_with_a_warning():
    assert "12.0%" in str(judged(COUPLED, falling=0.12))
    assert "12.0%" not in str(judged(COUPLED))


def test_three_groups_are_refused():
    layout = lwd.Layout.of(texture=1, semantic=1, clip=1)
    points = torch.rand(40, 3, dtype=torch.float64)
    ones = torch.ones_like(points)
    with pytest.raises(InputError, match=says("two groups", "3")):
        potential(SurfaceTable(layout, points, ones, ones, ones, ones, 100), FlowObjective(layout))


def test_the_command_line_says_it(tmp_path, capsys):
    one = table(SWAPPED, points=11)
    facts = potential(one, FlowObjective(one.layout))
    save_surfaces(one, tmp_path / NAME, {"weights": {"texture": 1.0, "semantic": 1.0}, "reduction": "channels"})
    assert main(["surfaces", "show", str(tmp_path), "--out", str(tmp_path / "a.png")]) == 0
    text = capsys.readouterr().out
    assert f"{facts.usual.share:.2%}" in text
    assert f"{facts.other.share:.2%}" in text
