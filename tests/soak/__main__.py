"""`python -m soak`: hours of fuzzing and kills, and every fault, as a table. Resumes where it was interrupted.

The state is in OUT/state.json. It belongs to one version of the source: if a file in src/ changes, the run starts over.
"""

import argparse
import hashlib
import json
import math
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import lwd
from fuzz.guard import limit_addresses
from fuzz.run import SCRATCH, Found, fuzzing
from fuzz.targets import TARGETS
from lwd.io.files import write_json

SEED = 20
SLICE = 500
"""Tries between two lines of the state."""
SLICE_KILLS = 20
ROUND = "round: "
QUICK = {"tries": 2_500, "kills": 40}
FULL = {"tries": 100_000, "kills": 1_000}
RARE = ("demo", "reproduce")
"""Jobs of many commands, which take a hundred times as long: a hundredth of the kills."""
TESTS = ("soak/test_faults.py", "test_stress.py", "fuzz/test_found.py", "fuzz/test_found_weights.py")
TESTS += ("checkpoints/fetch",)


class Record:
    """What was done so far, on disk."""

    def __init__(self, out: Path) -> None:
        self.path = out / "state.json"
        source = hashlib.sha256()
        for path in sorted(Path(lwd.__file__).parent.rglob("*.py")):
            source.update(path.read_bytes())
        self.value: dict[str, Any] = {
            "source": source.hexdigest()[:16],
            "seed": SEED,
            "fuzz": {},
            "kills": {},
            "tests": {},
        }
        if self.path.exists():
            old = json.loads(self.path.read_text())
            if (old["source"], old["seed"]) == (self.value["source"], SEED):
                self.value = old
            else:
                print("the source has changed: starting over", flush=True)

    def save(self) -> None:
        write_json(self.path, self.value)


def in_child(function: Any, *arguments: Any) -> tuple[int, str]:
    """Run a function in a forked process; returns how it ended and what it printed."""
    with tempfile.TemporaryFile("w+") as output:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.dup2(output.fileno(), 1)
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                function(*arguments)
                code = 0
            except BaseException as error:
                print(f"{type(error).__name__}: {error}"[-1500:].replace("\n", " "))
            finally:
                sys.stdout.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        output.seek(0)
        return code, output.read()


def _tries(name: str, first: int, last: int) -> None:
    """Fuzz one loader; one line of JSON per try, so that the tries before a crash are known."""
    limit_addresses()
    with fuzzing(TARGETS[name], SEED) as fuzz:
        for number in range(first, last):
            found = fuzz.check(number)
            print(json.dumps(["violation", str(found)] if isinstance(found, Found) else [found, ""]), flush=True)


def fuzz(record: Record, tries: int, names: list[str]) -> None:
    each = -(-tries // len(names))
    while True:
        done = {name: record.value["fuzz"].get(name, {}).get("done", 0) for name in names}
        name = min(done, key=lambda one: done[one])
        if done[name] >= each:
            return
        state = record.value["fuzz"].setdefault(name, {"done": 0, "counts": {}, "violations": []})
        code, printed = in_child(_tries, name, state["done"], min(each, state["done"] + SLICE))
        lines = [json.loads(line) for line in printed.splitlines() if line.startswith("[")]
        counts = Counter(state["counts"]) + Counter(outcome for outcome, _ in lines)
        state["violations"] += [text for outcome, text in lines if outcome == "violation"]
        if code:
            state["violations"].append(f"{name} #{state['done'] + len(lines)}: the process ended with {code}")
            counts["violation"] += 1
        state["done"] += len(lines) + bool(code)
        state["counts"] = dict(counts)
        record.save()


def _rounds(name: str, first: int, wanted: int, root: str) -> None:
    """Kill one job until `wanted` kills more; one line of JSON per round."""
    from soak.jobs import make_jobs
    from soak.kills import Killer, Tally

    job = make_jobs(Path(root) / "inputs")[name]
    killer, number, kills = Killer(job, Path(root) / "scratch", SEED), first, 0
    while kills < wanted:
        tally = Tally()
        killer.round(number, tally)
        number, kills = number + 1, kills + tally.kills
        print(ROUND + json.dumps([tally.kills, tally.lost, tally.different]), flush=True)


def kills(record: Record, wanted: int, names: list[str]) -> None:
    """The job that is furthest behind its share is killed SLICE_KILLS times, until all have theirs."""
    shares = {name: wanted / len(names) * (0.1 if name in RARE else 1) for name in names}
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="soak-") as root:
        for name in names:
            record.value["kills"].setdefault(name, {"rounds": 0, "kills": 0, "lost": 0, "different": []})
        while True:
            done = {name: record.value["kills"][name]["kills"] / share for name, share in shares.items()}
            name = min(done, key=lambda one: done[one])
            if done[name] >= 1:
                return
            state = record.value["kills"][name]
            left = math.ceil(shares[name] - state["kills"])
            code, printed = in_child(_rounds, name, state["rounds"], min(left, SLICE_KILLS), root)
            for line in printed.splitlines():
                if line.startswith(ROUND):
                    dead, lost, different = json.loads(line.removeprefix(ROUND))
                    state["rounds"] += 1
                    state["kills"] += dead
                    state["lost"] += lost
                    state["different"] += different
            if code:
                state["different"].append(f"{name}: {' '.join(printed.splitlines()[-3:])}")
                shares.pop(name)
            record.save()
            if not shares:
                return


class Outcomes:
    """A plugin of pytest that keeps the outcome of every test."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.found[report.nodeid] = report.outcome


def _tests(path: str) -> None:
    import pytest

    outcomes, real = Outcomes(), os.dup(1)
    os.dup2(2, 1)
    pytest.main(["-q", "-p", "no:cacheprovider", path], plugins=[outcomes])
    sys.stdout.flush()
    os.dup2(real, 1)
    print(json.dumps(outcomes.found))


def faults(record: Record) -> None:
    for name in TESTS:
        if name not in record.value["tests"]:
            _, printed = in_child(_tests, str(Path(__file__).parents[1] / name))
            record.value["tests"][name] = json.loads(printed.splitlines()[-1])
            record.save()


def table(record: Record) -> str:
    value = record.value
    lines = ["| loader | mutations | loaded | refused | violations |", "| --- | ---: | ---: | ---: | ---: |"]
    rows = []
    for name, state in value["fuzz"].items():
        counts = [state["counts"].get(key, 0) for key in ("loaded", "refused", "violation")]
        rows.append((name, state["done"], *counts))
    lines += [f"| {' | '.join(f'{cell:,}' if isinstance(cell, int) else cell for cell in row)} |" for row in rows]
    sums = [sum(row[i] for row in rows) for i in range(1, 5)]
    lines.append(f"| **all** | {' | '.join(f'**{cell:,}**' for cell in sums)} |")
    lines += ["", "| command | kills | runs | lost | different |", "| --- | ---: | ---: | ---: | ---: |"]
    for name, state in value["kills"].items():
        lines.append(
            f"| {name} | {state['kills']:,} | {state['rounds']:,} | {state['lost']} | {len(state['different'])} |"
        )
    states = value["kills"].values()
    total = [sum(state[key] for state in states) for key in ("kills", "rounds", "lost")]
    total.append(sum(len(state["different"]) for state in states))
    lines.append(f"| **all** | {' | '.join(f'**{cell:,}**' for cell in total)} |")
    lines += ["", "| faults and regressions | passed | failed | skipped |", "| --- | ---: | ---: | ---: |"]
    for name, found in value["tests"].items():
        counts = Counter(found.values())
        lines.append(f"| tests/{name} | {counts['passed']} | {counts['failed']} | {counts['skipped']} |")
    lines.append(f"\nSource {value['source']}, seed {value['seed']}.")
    return "\n".join(lines)


def problems(record: Record) -> list[str]:
    found = [text for state in record.value["fuzz"].values() for text in state["violations"]]
    for name, state in record.value["kills"].items():
        found += state["different"] + ([f"{name}: {state['lost']} kills lost something"] if state["lost"] else [])
    for tests in record.value["tests"].values():
        found += [name for name, outcome in tests.items() if outcome == "failed"]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/soak"))
    parser.add_argument("--quick", action="store_true", help="ten minutes instead of hours")
    parser.add_argument("--tries", type=int, help="mutations over all loaders")
    parser.add_argument("--kills", type=int, help="kills over all commands")
    parser.add_argument("--only", choices=("fuzz", "kills", "faults"), help="one part")
    parser.add_argument("--loader", action="append", choices=list(TARGETS), help="fuzz these loaders only")
    parser.add_argument("--job", action="append", help="kill these commands only")
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else FULL
    arguments.out.mkdir(parents=True, exist_ok=True)
    record, started = Record(arguments.out), time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if arguments.only in (None, "faults"):
        faults(record)
    if arguments.only in (None, "fuzz"):
        fuzz(record, sizes["tries"] if arguments.tries is None else arguments.tries, arguments.loader or list(TARGETS))
    if arguments.only in (None, "kills"):
        kills(record, sizes["kills"] if arguments.kills is None else arguments.kills, arguments.job or JOBS)
    print(table(record))
    found = problems(record)
    for problem in found:
        print(f"VIOLATION {problem}")
    print(f"{len(found)} violations; {time.monotonic() - started:.0f} s in this session; state in {record.path}")
    return 1 if found else 0


JOBS = ["encode", "encode, 2 processes", "encode, 1 and 2 in turn", "fit texture", "fit semantic", "probe"]
JOBS += ["probe, surface", "train", "train, 2 processes", "train, 1 and 2 in turn", "sample", "sample, 2 processes"]
JOBS += ["sample, 1 and 2 in turn", "evaluate", "reproduce", "demo"]

if __name__ == "__main__":
    sys.exit(main())
