"""Schedules at another tempo: the same path, the density that was asked for."""

import pytest
import torch

import lwd
from evidence import script
from lwd.schedule.learned import Polynomial
from messages import says

retimed = script("retime").retimed
TAU = torch.linspace(0, 1, 401, dtype=torch.float64)
GROUPS = ("texture", "semantic")
SQUARE = Polynomial.from_shares([[0, 1]], GROUPS)


def texture(curve):
    return curve.times(TAU)[:, 0]


def test_one_clock_at_power_two_has_both_groups_at_tau_squared():
    found = retimed(lwd.Synchronous(GROUPS), "texture", 2).times(TAU)
    assert torch.allclose(found, (TAU**2)[:, None].expand(-1, 2), atol=1e-5)


def test_the_square_at_power_one_has_semantic_at_the_root():
    """Oracle: texture = tau^2, semantic = tau is the path texture = u, semantic = sqrt(u)."""
    found = retimed(SQUARE, "texture", 1).times(TAU)
    assert torch.allclose(found[:, 0], TAU, atol=1e-5)
    assert torch.allclose(found[20:, 1], TAU[20:].sqrt(), atol=1e-4)


def test_its_own_tempo_changes_nothing():
    assert torch.allclose(retimed(SQUARE, "texture", 2).times(TAU), SQUARE.times(TAU), atol=1e-5)
    offset = lwd.Offset(0.3, GROUPS)
    assert torch.allclose(retimed(offset, "texture", 1).times(TAU), offset.times(TAU), atol=1e-3)


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_an_offset_keeps_its_path_and_takes_the_tempo(power):
    """Oracle: semantic = min(texture + 0.3, 1) once texture moves, and texture is the power of its own time."""
    found = retimed(lwd.Offset(0.3, GROUPS), "texture", power).times(TAU)
    start = 0.3 / 1.3
    own = ((TAU - start) / (1 - start)).clamp(0, 1)
    assert torch.allclose(found[:, 0], own**power, atol=1e-3)
    moving = found[:, 0] > 0.01
    assert torch.allclose(found[moving, 1], (found[moving, 0] + 0.3).clamp(max=1), atol=2e-3)


def test_a_group_that_does_not_arrive_last_is_rejected():
    with pytest.raises(lwd.InputError, match=says("semantic")):
        retimed(lwd.Offset(0.3, GROUPS), "semantic", 2)
