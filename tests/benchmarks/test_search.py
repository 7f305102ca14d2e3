"""The search over paths: its coordinates hold every schedule of two clocks, and it finds a known optimum."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lwd
from evidence import script

search, paths = script("search"), script("paths")
PIECES = 8


def leads_of(schedule: lwd.Schedule, s: torch.Tensor) -> torch.Tensor:
    """(t_semantic - t_texture) / 2 where the mean of both clocks is s."""
    times = schedule.times(torch.linspace(0, 1, 20001, dtype=torch.float64))
    mean, lead = times.mean(1), (times[:, 1] - times[:, 0]) / 2
    return lead[torch.searchsorted(mean.contiguous(), s).clamp(max=len(mean) - 1)]


@pytest.mark.parametrize(
    ("leads", "schedule"),
    [
        ([0.0] * 7, lwd.Synchronous()),
        (paths.leads_of_offset(0.25, PIECES), lwd.Offset(0.25)),
        (paths.leads_of_offset(0.5, PIECES), lwd.Offset(0.5)),
        ([min(k, PIECES - k) / PIECES for k in range(1, PIECES)], lwd.Cascade()),
    ],
)
def test_known_schedules_are_paths(leads, schedule):
    """Oracle: the library's schedules. Offsets of 0.25 and 0.5 have their kinks at knots."""
    s = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
    assert torch.allclose(leads_of(paths.path(leads), s), leads_of(schedule, s), atol=2e-4)


@given(st.lists(st.floats(-2, 2), min_size=7, max_size=7))
def test_any_leads_give_a_schedule(leads):
    """Oracle: the definition."""
    times = paths.path(leads).times(torch.linspace(0, 1, 101, dtype=torch.float64))
    assert torch.equal(times[[0, -1]], torch.tensor([[0, 0], [1, 1]], dtype=torch.float64))
    assert bool((times.diff(dim=0) >= 0).all())


@given(st.lists(st.floats(-1, 1), min_size=PIECES, max_size=PIECES))
def test_admissible_leads_are_not_moved(slopes):
    """Oracle: a walk with steps of at most 1 / pieces that returns to 0, built from its slopes."""
    slopes = [slope - sum(slopes) / PIECES for slope in slopes]
    steepest = max(1.0, *(abs(slope) for slope in slopes))
    leads = [sum(slopes[:k]) / steepest / PIECES for k in range(1, PIECES)]
    assert paths.repaired(leads) == pytest.approx(leads, abs=1e-9)


def test_the_search_finds_a_known_optimum_in_the_trials_of_the_protocol():
    """Oracle: a quadratic with its minimum at a bent path, started at offset 0.3; it costs at most 60 evaluations."""
    best = paths.repaired([0.05, 0.15, 0.25, 0.3, 0.22, 0.14, 0.04])
    calls = []

    def distance(leads):
        calls.append(leads)
        return 10 + 30 * sum((k + 1) * (a - b) ** 2 for k, (a, b) in enumerate(zip(leads, best, strict=True)))

    start = paths.leads_of_offset(0.3, PIECES)
    trials = search.PROTOCOL["trials"]
    found, value = search.search(distance, start, trials)
    assert len(calls) <= trials
    assert value < 10 + 0.05 * (distance(start) - 10)
    assert found == pytest.approx(best, abs=0.05)


def test_a_search_that_ends_at_its_start_is_stuck():
    """Oracle: what the searches of the study did; three of six took one step."""
    rows = json.loads((search.FILE).read_text())["rows"]
    assert [(row["case"], row["seed"]) for row in sorted(rows, key=lambda row: row["case"]) if search.stuck(row)] == [
        ("labels", 2),
        ("no labels", 1),
        ("no labels", 2),
    ]
