"""The studio: seconds until it is up, milliseconds of the numbers while dragging, seconds of 8 images.

    python benchmarks/studio.py [--json] [--repeats N]

Without a browser: the time from a request to its last byte, over HTTP on this machine. Importing is not included.
"""

import argparse
import json
import statistics
import time
from typing import Any

import httpx

import lwd
from lwd.studio.app import launch
from lwd.studio.settings import StudioSettings

USER = {"x-studio-user": "0" * 32}


def drawn(knots: int) -> dict[str, Any]:
    """A piecewise linear curve below the diagonal."""
    tau = [k / knots for k in range(knots + 1)]
    return lwd.PiecewiseLinear(tau, {"texture": [t**1.5 for t in tau], "semantic": tau}).to_dict()


def timed(client: httpx.Client, path: str, value: Any) -> float:
    started = time.perf_counter()
    answer = client.post(path, json=value, headers=USER)
    seconds = time.perf_counter() - started
    answer.raise_for_status()
    if '"error"' in answer.text:
        raise RuntimeError(answer.text)
    return seconds


def measure(repeats: int) -> dict[str, float]:
    """Medians over `repeats` requests."""
    started = time.perf_counter()
    blocks, address = launch(StudioSettings(), block=False)
    client = httpx.Client(base_url=address, timeout=600)
    first = client.post("/studio/open", json={}).json()
    found = {"up, seconds": time.perf_counter() - started}
    for knots in (8, 32):
        value = {"model": "fashion", "schedule": drawn(knots), "lambda": first["state"]["lambda"], "steps": 10}
        times = [timed(client, "/studio/curve", value) for _ in range(10 * repeats)]
        found[f"numbers of {knots} pieces, milliseconds"] = 1000 * statistics.median(times)
    state = first["state"]
    state["a"] |= {"solver": "heun", "steps": 10}
    timed(client, "/studio/run/sample", {"state": state, "sides": ["A"]})  # the first one warms up
    for sides in (["A"], ["A", "B"]):
        times = [timed(client, "/studio/run/sample", {"state": state, "sides": sides}) for _ in range(repeats)]
        found[f"8 images of {' and '.join(sides)}, seconds"] = statistics.median(times)
    blocks.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    found = measure(arguments.repeats)
    print(json.dumps(found) if arguments.json else "\n".join(f"{name}: {value:.3g}" for name, value in found.items()))


if __name__ == "__main__":
    main()
