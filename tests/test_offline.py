"""No telemetry: the demo, from images to report, opens no network connection; neither does anything else unasked."""

import re
import socket

import pytest

import lwd
from lwd.demo.run import run_demo
from stand_ins import quicken
from test_demo import TINY


@pytest.fixture
def attempts(monkeypatch):
    """Every attempt to reach another machine fails and is recorded."""
    found = []

    def refuse(*arguments, **_):
        where = arguments[1] if isinstance(arguments[0], socket.socket) else arguments[0]
        found.append(where)
        raise OSError("no network in this test")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    for name in ("getaddrinfo", "gethostbyname", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)
    return found


def test_the_recorder_would_see_a_connection(attempts):
    """Oracle: two ways to ask for one."""
    with pytest.raises(OSError, match="no network"):
        socket.create_connection(("example.org", 80))
    with socket.socket() as one, pytest.raises(OSError, match="no network"):
        one.connect(("127.0.0.1", 80))
    assert len(attempts) == 2


@pytest.mark.slow
def test_the_demo_needs_no_network(attempts, monkeypatch, tmp_path):
    """Oracle: a socket that refuses everything; the report is complete all the same, and asks for nothing either."""
    quicken(monkeypatch.setattr)
    monkeypatch.setenv("LWD_CACHE", str(tmp_path / "cache"))
    run_demo(tmp_path / "out", TINY, lambda _: None)
    page = (tmp_path / "out" / "report.html").read_text()
    assert not attempts
    assert 'src="http' not in page
    assert not re.search(r'<link[^>]*href="(?!data:)', page)


def test_sampling_the_shipped_model_needs_no_network(attempts):
    """Oracle: as above."""
    pipe = lwd.LWDPipeline.from_pretrained("fashion")
    pipe([0], seed=0, solver={"method": "euler", "steps": 2})
    assert not attempts
