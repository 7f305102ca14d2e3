"""One computation per user, a queue for the others, cancel and limits."""

import threading
import time
from itertools import count

import pytest

from lwd.errors import InputError
from lwd.studio.jobs import Cancelled, Desk, Job
from messages import says


@pytest.fixture
def desk():
    found = Desk(waiting=3)
    yield found
    found.close()


def last(reports):
    return list(reports)[-1]


def endless(started=None):
    def work(job):
        for _ in count():
            if started is not None:
                started.set()
            job.report(0.5)

    return work


def test_a_job_reports_and_returns(desk):
    def work(job):
        job.stage(0.5, 1.0, "half")
        job.report(0.5)
        return job.share

    assert last(desk.run("a", work)) == {"result": 0.75}
    assert last(desk.run("a", lambda _: 1)) == {"result": 1}


def test_a_user_has_one_job_and_others_wait(desk):
    """Oracle: the order of events; b waits for a, and only b's own key cancels b."""
    started = threading.Event()
    first = desk.run("a", endless(started))
    next(first)
    assert started.wait(30)
    with pytest.raises(InputError):
        next(desk.run("a", lambda _: 1))
    second = desk.run("b", lambda _: 2)
    assert says(1).search(next(second)["text"])
    third = desk.run("c", lambda _: 3)
    next(third)
    with pytest.raises(InputError, match=says(3)):
        next(desk.run("d", lambda _: 4))
    assert desk.cancel("d") is False
    assert desk.cancel("a") is True
    assert last(first) == {"cancelled": True}
    assert last(second) == {"result": 2}
    assert last(third) == {"result": 3}


def test_a_waiting_job_can_be_cancelled_and_never_starts(desk):
    started = threading.Event()
    first = desk.run("a", endless())
    next(first)
    second = desk.run("b", endless(started))
    next(second)
    desk.cancel("b")
    desk.cancel("a")
    assert last(first) == {"cancelled": True}
    assert last(second) == {"cancelled": True}
    assert not started.is_set()


def test_a_page_that_goes_away_ends_its_job(desk):
    """Oracle: the next job of the same user runs."""
    first = desk.run("a", endless())
    next(first)
    first.close()
    assert last(desk.run("a", lambda _: 5)) == {"result": 5}


def test_errors_are_reports(desk):
    def bad(_):
        raise InputError("no such thing")

    def worse(_):
        raise KeyError("bug")

    assert last(desk.run("a", bad)) == {"error": "no such thing"}
    with pytest.raises(KeyError):
        list(desk.run("a", worse))
    assert last(desk.run("a", lambda _: 6)) == {"result": 6}


def test_a_job_ends_when_its_time_is_over():
    job = Job(seconds=0.0)
    job.start()
    time.sleep(0.01)
    with pytest.raises(InputError, match=says(0)):
        job.report(0.1)
    other = Job()
    other.cancel()
    with pytest.raises(Cancelled):
        other.report(0.0)
