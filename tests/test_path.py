import pytest
import torch
from torch.testing import assert_close

from lwd import InputError, Layout, interpolate
from messages import says

LAYOUT = Layout.of(texture=2, semantic=1)


def test_interpolant_is_the_papers_and_exact_at_both_ends():
    """Oracle: Eq. component-interpolant, (1 - t) x0 + t x1, by group; == at t = 0 and t = 1."""
    data, noise = torch.randn(2, 3, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    times = torch.tensor([[0.2, 0.9], [0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    z, target = interpolate(data, noise, times, LAYOUT)
    assert torch.equal(target, data - noise)
    assert_close(z[0, :2], 0.8 * noise[0, :2] + 0.2 * data[0, :2])
    assert_close(z[0, 2:], 0.1 * noise[0, 2:] + 0.9 * data[0, 2:])
    assert torch.equal(z[1, :2], noise[1, :2])
    assert torch.equal(z[1, 2:], data[1, 2:])
    assert torch.equal(z[2, :2], data[2, :2])


def test_the_target_is_the_derivative_by_local_time():
    """Oracle: autograd of z by t."""
    data, noise = torch.randn(2, 1, 3, 2, 2, dtype=torch.float64)
    for column, name in enumerate(LAYOUT.names):

        def at(t, column=column):
            times = torch.full((1, 2), 0.3, dtype=torch.float64)
            times = times.index_put((torch.tensor(0), torch.tensor(column)), t)
            return interpolate(data, noise, times, LAYOUT)[0]

        slope = torch.autograd.functional.jacobian(at, torch.tensor(0.3, dtype=torch.float64))
        assert_close(slope[:, LAYOUT.slice(name)], (data - noise)[:, LAYOUT.slice(name)])


def test_float64_times_keep_the_states_dtype():
    z, target = interpolate(torch.ones(1, 3, 1, 1), torch.zeros(1, 3, 1, 1), torch.full((1, 2), 0.5).double(), LAYOUT)
    assert z.dtype == target.dtype == torch.float32


def test_shapes_that_do_not_fit_are_refused():
    good = torch.zeros(2, 3, 1, 1)
    with pytest.raises(InputError, match=says("(1, 3, 1, 1)", "(2, 3, 1, 1)")):
        interpolate(good, good[:1], torch.zeros(2, 2), LAYOUT)
    with pytest.raises(InputError, match=says(1, 2)):
        interpolate(good, good, torch.zeros(1, 2), LAYOUT)
    with pytest.raises(InputError, match=says("state")):
        interpolate(good[:, :2], good[:, :2], torch.zeros(2, 2), LAYOUT)
