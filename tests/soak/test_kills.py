"""The kill driver: it sees what a careless command loses, and finds nothing wrong with a careful one."""

import json
from pathlib import Path

import pytest

from lwd.io.files import write_bytes, write_json
from soak.__main__ import JOBS
from soak.jobs import Job, make_jobs
from soak.kills import Killer, Tally

LINES = [f"line {i}\n".encode() * 50 for i in range(6)]


def careful() -> int:
    """Each part is a file that appears complete; the result is made of all parts."""
    for i, line in enumerate(LINES):
        if not Path("out", f"{i}.txt").exists():
            write_bytes(Path("out", f"{i}.txt"), line)
    write_json(Path("out/all.json"), {"lines": [Path("out", f"{i}.txt").read_text() for i in range(6)]})
    return 0


def careless() -> int:
    """The same, but a part that was half written is taken for complete."""
    Path("out").mkdir(exist_ok=True)
    for i, line in enumerate(LINES):
        if not Path("out", f"{i}.txt").exists():
            Path("out", f"{i}.txt").write_bytes(line)
    write_json(Path("out/all.json"), {"lines": [Path("out", f"{i}.txt").read_text() for i in range(6)]})
    return 0


def forgetful() -> int:
    """Starts by removing a finished part."""
    Path("out/parts").mkdir(parents=True, exist_ok=True)
    for path in sorted(Path("out/parts").glob("*.json"))[1:]:
        path.unlink()
    for i, line in enumerate(LINES):
        write_json(Path("out/parts", f"{i}.json"), {"line": line.decode()})
    return 0


def rounds(function, tmp_path, count=6):
    killer, tally = Killer(Job("job", function), tmp_path / "scratch", 0), Tally()
    for number in range(count):
        killer.round(number, tally)
    return tally


@pytest.mark.slow
def test_a_careful_command_survives_every_kill(tmp_path):
    """Oracle: the undisturbed run."""
    tally = rounds(careful, tmp_path)
    assert tally.kills > 2
    assert (tally.lost, tally.different) == (0, [])


def test_a_careless_command_is_caught(tmp_path):
    """Oracle: a write that ends half way leaves a file that differs for good."""
    assert rounds(careless, tmp_path).different


@pytest.mark.slow
def test_lost_parts_are_counted(tmp_path):
    """Oracle: a command that removes what was finished."""
    assert rounds(forgetful, tmp_path).lost > 0


def test_a_command_that_fails_is_named(tmp_path):
    """Oracle: its exit code."""
    with pytest.raises(AssertionError, match="7"):
        Killer(Job("job", lambda: 7), tmp_path / "scratch", 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["encode, 1 and 2 in turn", "train", "sample, 2 processes"])
def test_commands_survive_kills(tmp_path, monkeypatch, name):
    """Oracle: the undisturbed run, byte for byte; `make soak` does this a thousand times, for all commands."""
    jobs = make_jobs(tmp_path / "inputs", monkeypatch)
    assert list(jobs) == JOBS
    killer, tally = Killer(jobs[name], tmp_path / "scratch", 1), Tally()
    for number in range(2):
        killer.round(number, tally)
    assert (tally.lost, tally.different) == (0, []), json.dumps(tally.different)
