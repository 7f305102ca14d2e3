"""The study of pairs: its curves, and a protocol that fits its encoders."""

import pytest
import torch

import lwd
from evidence import script

pairs = script("pairs")
PROTOCOL, lagged = pairs.PROTOCOL, pairs.lagged


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


def test_every_pair_has_encoders_and_schedules():
    for about in PROTOCOL["pairs"].values():
        groups = about["groups"]
        assert set(groups[1:]) <= set(PROTOCOL["encoders"])
        assert all(len(lags) == len(groups) for lags in PROTOCOL["schedules"][len(groups)].values())
