"""A short run of the fuzzer, and proofs that it would find each kind of violation. `make soak` runs 100,000 tries."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from fuzz import guard
from fuzz.run import LOADED, REFUSED, Found, Target, fuzzing
from fuzz.targets import TARGETS
from lwd.errors import InputError

TRIES = 5
SEED = 2606


@pytest.mark.parametrize("name", TARGETS)
def test_a_loader_refuses_or_loads(name):
    """Oracle: an InputError in one line, or an object that can be used; nothing else, whatever the file."""
    with fuzzing(TARGETS[name], SEED) as fuzz:
        assert fuzz.outcome(()) == LOADED, "the files that nobody touched"
        found = [fuzz.check(number) for number in range(TRIES)]
    assert not [str(one) for one in found if isinstance(one, Found)]


def _write(directory: Path) -> None:
    (directory / "a.json").write_text(json.dumps({"a": [1, 2, 3], "b": "x"}))


def _outside(directory: Path) -> None:
    (directory.parents[1] / "elsewhere").write_text("x")


def _slow(directory: Path) -> None:
    del directory
    while True:
        sum(range(1000))


def _two_lines(_: Path) -> None:
    error = InputError("x")
    error.args = ("two\nlines",)
    raise error


CULPRITS = {
    "KeyError": (lambda d: json.loads((d / "a.json").read_bytes())["c"], "KeyError"),
    "AssertionError": (lambda _: pytest.fail("an object that makes no sense"), "Failed"),
    "several lines": (_two_lines, "several lines"),
    "a write outside": (_outside, "outside the directory"),
    "a program": (lambda _: subprocess.run(["true"], check=False), "subprocess.Popen"),
    "executed code": (lambda _: exec(f"open({os.environ['FUZZ_CANARY']!r}, 'w')"), "executed"),
    "memory": (lambda _: bytearray(2**27), "GB more"),
    "time": (_slow, "CPU time"),
}


@pytest.mark.parametrize("kind", CULPRITS)
def test_the_fuzzer_sees_what_a_loader_must_not_do(kind, monkeypatch):
    """Oracle: a loader that does it on every file."""
    monkeypatch.setattr(guard, "SECONDS", 0.2)
    monkeypatch.setattr(guard, "MEMORY", 2**25)
    culprit, named = CULPRITS[kind]
    active = []
    with fuzzing(Target("culprit", _write, lambda d: culprit(d) if active else None), 0) as fuzz:
        active.append(True)
        assert named in fuzz.outcome(())


def test_a_violation_is_shrunk_and_replays():
    """Oracle: a loader that fails exactly if one of two files is gone."""

    def build(directory: Path) -> None:
        (directory / "a.json").write_text("{}")
        (directory / "b.yaml").write_text(yaml.safe_dump({"x": 1}))

    def load(directory: Path) -> None:
        if not (directory / "a.json").exists():
            raise KeyError("a")

    with fuzzing(Target("two", build, load), 3) as fuzz:
        found = [one for one in (fuzz.check(i) for i in range(100)) if isinstance(one, Found)]
        assert found
        assert all(len(one.steps) == 1 and one.steps[0].file == "a.json" for one in found)
        again = [fuzz.check(one.number) for one in found]
    assert found == again


def test_tries_differ_and_most_files_are_touched_beyond_use():
    """Oracle: a fuzzer that never changes anything would load everything."""
    with fuzzing(TARGETS["statistics"], SEED) as fuzz:
        outcomes = [fuzz.check(number) for number in range(60)]
    assert outcomes.count(REFUSED) > 20
    assert outcomes.count(LOADED) > 0
    assert len({fuzz.steps(number) for number in range(60)}) == 60


def test_a_blocked_read_is_given_up(monkeypatch):
    """Oracle: a loader that sleeps uses no CPU time."""
    monkeypatch.setattr(guard, "WAIT", 0.3)
    active = []
    with fuzzing(Target("sleeper", _write, lambda _: time.sleep(60) if active else None), 0) as fuzz:
        active.append(True)
        assert "waits" in fuzz.outcome(())
