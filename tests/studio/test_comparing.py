"""Comparing two settings: the judge's numbers, paired."""

import pytest

import lwd
from lwd.errors import InputError
from lwd.studio.comparing import Judge, check_compared, compare
from lwd.studio.jobs import Job
from lwd.studio.state import read_state
from messages import says
from studio.made import state

OWN = lwd.LWDPipeline.from_pretrained("fashion").checkpoint.schedule.to_dict()


@pytest.fixture(scope="module")
def judge():
    return Judge()


def test_equal_settings_differ_by_exactly_nothing(studio, judge):
    """Oracle: A is B, so paired differences and their errors are 0; the single ones are not."""
    same = {"schedule": OWN, "solver": "euler", "steps": 2}
    rows = compare(studio.catalog, read_state(state(a=same, b=same)), 20, judge, Job())["rows"]
    assert rows["A"] == rows["B"]
    assert rows["B - A"] == {key: {"value": 0.0, "error": 0.0} for key in ("accuracy", "frechet")}
    assert rows["A"]["frechet"]["error"] > 0


@pytest.mark.slow
def test_more_steps_are_better_and_the_judge_sees_it(studio, judge):
    """Oracle: one step against ten; `lwd evaluate` gives the same distance for the same images."""
    few, many = ({"schedule": OWN, "solver": "heun", "steps": steps} for steps in (1, 10))
    rows = compare(studio.catalog, read_state(state(a=few, b=many)), 100, judge, Job())["rows"]
    assert rows["B"]["accuracy"]["value"] > rows["A"]["accuracy"]["value"]
    gap = rows["B - A"]["frechet"]
    assert gap["value"] == pytest.approx(rows["B"]["frechet"]["value"] - rows["A"]["frechet"]["value"])
    assert gap["value"] < -2 * gap["error"] < 0


@pytest.mark.parametrize("count", [0, 19, 10**9, "200", True, None, 1e3])
def test_counts_have_limits(count):
    with pytest.raises(InputError, match=says(20, 2000)):
        check_compared(count)


def test_the_judge_knows_one_data_set(studio, three, judge):
    schedule = lwd.Synchronous(("texture", "depth", "semantic")).to_dict()
    one = read_state(state(three, a={"schedule": schedule}, b={"schedule": schedule}))
    with pytest.raises(InputError, match=says("Fashion-MNIST")):
        compare(studio.catalog, one, 20, judge, Job())
