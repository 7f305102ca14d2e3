"""The study that ships with lwd is what its runs say."""

import json
import math
import sys
from pathlib import Path

import pytest

from lwd.demo.study import FILE, StudyFile, study_line

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "benchmarks" / "evidence")]

from make_study import summary  # noqa: E402
from tables import interval, ratio  # noqa: E402


def test_the_shipped_summary_is_that_of_the_results():
    assert json.loads(FILE.read_text()) == summary()


def test_the_line_has_every_schedule_with_its_interval():
    for arm, value in StudyFile.read(FILE).arms.items():
        assert f"{arm} {value.ratio:.2f} [{value.low:.2f}, {value.high:.2f}]" in study_line()


def test_intervals_are_students():
    """Oracle: values 1, 2, 3 have mean 2, standard error 1 / sqrt(3), and t = 4.303 with two degrees of freedom."""
    assert interval([1.0, 2.0, 3.0]) == (2.0, pytest.approx(4.303 / math.sqrt(3)))
    assert interval([5.0]) == (5.0, math.inf)


def test_ratios_are_paired_by_seed():
    """Oracle: a constant factor between pairs has an interval of width zero, however much the seeds differ."""
    middle, low, high = ratio({0: 2.0, 1: 20.0, 7: 5.0}, {0: 4.0, 1: 40.0})
    assert (middle, low, high) == (pytest.approx(0.5), pytest.approx(0.5), pytest.approx(0.5))
