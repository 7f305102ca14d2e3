"""The studio: seconds until it is up, milliseconds of the numbers while dragging, seconds of 8 images.

    python benchmarks/studio.py [--json] [--repeats N] [--threads N]

Without a browser: the time from a request to its last byte, over HTTP on this machine, and the processor time of client
and server in it, which does not depend on what else the machine does. Importing is not included.
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


def timed(client: httpx.Client, path: str, value: Any) -> tuple[float, float]:
    """Seconds on the clock and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    answer = client.post(path, json=value, headers=USER)
    seconds = time.perf_counter() - clock, time.process_time() - processor
    answer.raise_for_status()
    if path.startswith("/studio/run") and "result" not in json.loads(answer.text.splitlines()[-1]):
        raise RuntimeError(answer.text)
    return seconds


def median(times: list[tuple[float, float]]) -> dict[str, float]:
    clock, processor = (round(statistics.median(column), 4) for column in zip(*times, strict=True))
    return {"seconds": clock, "processor": processor}


def measure(repeats: int, threads: int) -> dict[str, dict[str, float]]:
    """Medians over `repeats` requests."""
    import gradio  # noqa: F401  # an import, which does not count

    clock, processor = time.perf_counter(), time.process_time()
    blocks, address = launch(StudioSettings(threads=threads), block=False)
    client = httpx.Client(base_url=address, timeout=600)
    first = client.post("/studio/open", json={}).json()
    found = {"up": median([(time.perf_counter() - clock, time.process_time() - processor)])}
    for knots in (8, 32):
        value = {"model": "fashion", "schedule": drawn(knots), "lambda": first["state"]["lambda"], "steps": 10}
        times = [timed(client, "/studio/curve", value) for _ in range(10 * repeats)]
        found[f"numbers of {knots} pieces"] = median(times)
    state = first["state"]
    state["a"] |= {"solver": "heun", "steps": 10}
    timed(client, "/studio/run/sample", {"state": state, "sides": ["A"]})  # the first one warms up
    for sides in (["A"], ["A", "B"]):
        times = [timed(client, "/studio/run/sample", {"state": state, "sides": sides}) for _ in range(repeats)]
        found[f"8 images of {' and '.join(sides)}"] = median(times)
    blocks.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    found = measure(arguments.repeats, arguments.threads)
    if arguments.json:
        print(json.dumps(found))
    else:
        for name, one in found.items():
            print(f"{name:<24} {one['seconds']:8.3f} s    {one['processor']:8.3f} s of the processor")


if __name__ == "__main__":
    main()
