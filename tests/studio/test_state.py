"""The state of a page: limits, links, hostile values."""

import base64
import json
import zlib
from contextlib import suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lwd
from lwd.errors import InputError
from lwd.studio.settings import COUNT, KNOTS, LETTERS, STEPS
from lwd.studio.state import from_link, knots_of, read_schedule, read_state, sample_settings, to_link
from messages import says
from strategies import schedules
from studio.made import state

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(schedules(groups=2), st.integers(0, 2**31 - 1), st.floats(0, 10))
def test_a_link_reopens_the_same_state(schedule, seed, kinetic):
    """Oracle: round trip, for every kind of schedule; floats keep every bit."""
    one = read_state(state(a={"schedule": schedule.to_dict()}, seed=seed, label="bag") | {"lambda": kinetic})
    link = to_link(one)
    assert from_link(link) == one
    assert link.isascii()
    assert not set(link) & set("+/=#?&")


@given(
    st.text(max_size=200) | st.binary(max_size=80).map(lambda b: base64.urlsafe_b64encode(zlib.compress(b)).decode())
)
def test_other_links_are_refused(text):
    with pytest.raises(InputError):
        from_link(text)


def test_a_link_that_unpacks_to_much_is_refused():
    """Oracle: a megabyte of spaces packs into a thousand letters."""
    bomb = base64.urlsafe_b64encode(zlib.compress(b" " * 50 * LETTERS)).decode()
    assert len(bomb) < LETTERS
    with pytest.raises(InputError):
        from_link(bomb)


@given(JSON)
def test_any_value_is_a_state_or_an_input_error(value):
    for given_ in (value, state() | {"a": value}, state(a={"schedule": value}), state(label=value)):
        with suppress(InputError):
            read_state(json.loads(json.dumps(given_)))


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"count": 10**9}, ("count", COUNT)),
        ({"seed": -1}, ("seed", 0)),
        ({"a": {"schedule": {}, "steps": 10**6}}, ("steps", STEPS)),
        ({"a": {"schedule": {}, "solver": "../../etc/passwd"}}, ("solver", "heun")),
        ({"model": "x" * 10_000}, ("model", 500)),
        ({"secret": 1}, ("secret",)),
    ],
)
def test_limits(changes, facts):
    with pytest.raises(InputError, match=says(facts)):
        read_state(state() | changes)


def test_a_schedule_of_a_million_points_is_refused_before_it_is_read():
    """Oracle: the limit; the lists are not even numbers."""
    many = {"format": "lwd.schedule", "version": 1, "kind": "piecewise_linear", "groups": ["texture", "semantic"]}
    many |= {"tau": ["x"] * 10**6, "times": {}}
    for read in (lambda: read_schedule(many, ("texture", "semantic")), lambda: read_state(state(a={"schedule": many}))):
        with pytest.raises(InputError, match=says(10**6, KNOTS)):
            read()
    nested = {"a": [[0] * KNOTS] * KNOTS}
    with pytest.raises(InputError, match=says(KNOTS)):
        read_schedule(nested, ("texture", "semantic"))


def test_a_schedule_of_other_groups_is_refused():
    with pytest.raises(InputError, match=says("depth", "semantic")):
        read_schedule(lwd.Synchronous(("texture", "depth")).to_dict(), ("texture", "semantic"))


@given(schedules())
def test_the_points_of_a_curve_lie_on_it(schedule):
    """Oracle: the schedule at the same tau; a piecewise linear one is its points."""
    knots = knots_of(schedule)
    times = schedule.times(torch.tensor(knots["tau"], dtype=torch.float64)).detach()
    for g, group in enumerate(schedule.groups):
        assert times[:, g].tolist() == pytest.approx(knots["times"][group], abs=1e-12)
    assert len(knots["tau"]) > 2  # there is something to drag


def test_settings_are_those_of_the_command():
    guided = {"guide": "fashion-weak", "scale": {"texture": 1.5, "semantic": 1.2}, "interval": {"texture": [0.2, 0.8]}}
    found = read_state(state(a={"solver": "dopri5"}, b=guided, label="bag", seed=3))
    a, b = (sample_settings(found, side, 1) for side in (found.a, found.b))
    assert (a.solver, a.steps, a.scale, a.labels, a.seed) == ("dopri5", None, None, ("bag",), 3)
    assert (b.steps, b.scale, b.interval) == (3, guided["scale"], {"texture": (0.2, 0.8)})
