"""How much better than offset 0.3 can any schedule be? The protocol is search.yaml.

    python benchmarks/evidence/search.py LATENTS --out DIR [--case labels] [--seed 0] [--again]

Trains networks that work under every schedule, searches the path with the lowest Fréchet distance of their samples, and
compares it with offset 0.3 and one clock on fresh noise. DIR holds networks, samples and trials; what is there is kept,
and a killed search continues. With --again, networks whose search ended near its start are searched from the path that
was found with labels and seed 0. Results go to results/search.json. Needs `lwd data fetch efficientnet-lite0`; about 20
minutes for each network on one core.
"""

import argparse
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from paths import leads_of_offset, path, repaired
from scipy.optimize import minimize
from study import RESULTS, Judge, slug

from lwd.io.files import write_json
from lwd.probing.surface import surface_probe
from lwd.sampling.generator import open_generator
from lwd.sampling.samples import generate
from lwd.sampling.settings import SampleSettings
from lwd.schedule.base import Schedule
from lwd.schedule.fixed import Offset, Synchronous
from lwd.schedule.io import load_schedule, save_schedule
from lwd.training.config import load_config, with_changes
from lwd.training.devices import Devices
from lwd.training.task import RunOptions

PROTOCOL = yaml.safe_load((Path(__file__).parent / "search.yaml").read_text())
FILE = RESULTS / "search.json"


def search(distance: Callable[[list[float]], float], start: Sequence[float], trials: int) -> tuple[list[float], float]:
    """The leads with the lowest distance of at most `trials` (COBYQA: a trust region without derivatives)."""
    seen: dict[tuple[float, ...], float] = {}

    def objective(x: Any) -> float:
        leads = repaired([round(float(v), 6) for v in x])
        if tuple(leads) not in seen:
            seen[tuple(leads)] = distance(leads)
        return seen[tuple(leads)]

    options = {"maxfev": trials, "initial_tr_radius": 0.06, "final_tr_radius": 0.004}
    minimize(objective, list(start), method="COBYQA", bounds=[(-0.5, 0.5)] * len(start), options=options)
    best = min(seen, key=lambda leads: seen[leads])
    return list(best), seen[best]


def network_of(protocol: dict[str, Any], case: str, seed: int, latents: Path, out: Path) -> Path:
    """One network at independent times, in a folder that searches and other studies share."""
    folder = out / f"{slug(case)}-seed{seed}"
    config = load_config(protocol["preset"], [*protocol["settings"], *protocol["cases"][case], f"run.seed={seed}"])
    probe = {"steps": config.run.steps, "burn_in": 0, "points": 5, "samples": 128}
    options = RunOptions(Devices(cpu=True))
    _, table = surface_probe(with_changes(config, probe=probe), latents, folder / "probe", options)
    if table is None:
        raise SystemExit("interrupted")
    return folder


@dataclass(frozen=True)
class Network:
    """One any-schedule network: it draws samples under a schedule, and the judge scores them."""

    out: Path
    judge: Judge
    second: Judge | None = None

    def fresh(self, curve: Schedule, name: str, labelled: bool) -> dict[str, Any]:
        """Scores of fresh samples, by a second judge as well."""
        return self(curve, f"fresh-{slug(name)}", PROTOCOL["fresh"], labelled, self.second)

    def __call__(
        self,
        curve: Schedule,
        name: str,
        samples: dict[str, Any],
        labelled: bool = False,
        second: Judge | None = None,
    ) -> dict[str, Any]:
        """Scores of samples under a schedule; kept in DIR."""
        kept, file = self.out / "scores" / f"{name}.json", self.out / f"{name}.schedule.json"
        if not kept.is_file() or (file.is_file() and load_schedule(file) != curve):
            folder = self.out / f"samples-{name}"
            save_schedule(curve, file)
            settings = SampleSettings(kinds=("npz",), threads=1, batch=100, **samples)
            generate(open_generator(self.out / "probe", settings, None, "fashion", "cpu", str(file)), folder)
            scores = self.judge(folder, labelled)
            if second is not None:
                scores["second judge"] = second(folder, False)["frechet"]
            write_json(kept, scores)
            shutil.rmtree(folder)
        return dict(json.loads(kept.read_text()))


def run(
    case: str, seed: int, network: Network, carried: Sequence[float] | None, again: Sequence[float] | None = None
) -> dict[str, Any]:
    """Search in one network from offset 0.3, or `again` from another path, and compare on fresh noise."""
    count, prefix = 0, "" if again is None else "again-"

    def distance(leads: list[float]) -> float:
        nonlocal count
        count += 1
        value = network(path(leads), f"{prefix}trial-{count:03d}", PROTOCOL["search"])["frechet"]["value"]
        print(case, seed, count, [round(x, 3) for x in leads], round(value, 3), flush=True)
        return float(value)

    start = leads_of_offset(0.3, PROTOCOL["pieces"]) if again is None else again
    best, value = search(distance, start, PROTOCOL["trials"])
    curves: dict[str, tuple[str, Schedule]] = {
        "best": (f"{prefix}best", path(best)),
        "offset 0.3": ("offset 0.3", Offset(0.3)),
        "synchronous": ("synchronous", Synchronous()),
    }
    if carried is not None:
        curves["best of seed 0"] = ("best of seed 0", path(carried))
    fresh = {name: network.fresh(curve, file, case == "labels") for name, (file, curve) in curves.items()}
    searched = {
        "best": value,
        "offset 0.3": network(Offset(0.3), "searched-offset", PROTOCOL["search"])["frechet"]["value"],
    }
    return {"case": case, "seed": seed, "trials": count, "leads": best, "searched": searched, "fresh": fresh}


def stuck(row: dict[str, Any]) -> bool:
    """Did the search end near its start?"""
    start = leads_of_offset(0.3, PROTOCOL["pieces"])
    return max(abs(a - b) for a, b in zip(row["leads"], start, strict=True)) < PROTOCOL["near"]


def kept() -> dict[tuple[str, int], dict[str, Any]]:
    """The rows of results/search.json, to which another process may have added some."""
    rows = json.loads(FILE.read_text())["rows"] if FILE.is_file() else []
    return {(row["case"], row["seed"]): row for row in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("latents", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--case", choices=list(PROTOCOL["cases"]), help="only this setting")
    parser.add_argument("--seed", type=int, choices=PROTOCOL["seeds"], help="only this seed")
    parser.add_argument("--again", action="store_true", help="search from a second start")
    a = parser.parse_args()
    judge = Judge(PROTOCOL["judge"], PROTOCOL["reference"], "fashion/train")
    second = Judge(PROTOCOL["second"]["judge"], PROTOCOL["second"]["reference"], "", only_frechet=True)
    for seed in PROTOCOL["seeds"] if a.seed is None else [a.seed]:
        for case in [a.case] if a.case else PROTOCOL["cases"]:
            found = kept()
            mine, first = found.get((case, seed)), found.get((case, 0))
            again = mine is not None and "again" not in mine and stuck(mine)
            if not (again if a.again else mine is None):
                continue
            network = Network(network_of(PROTOCOL, case, seed, a.latents, a.out), judge, second)
            if mine is None:
                row = run(case, seed, network, first["leads"] if first else None)
            else:
                row = mine | {"again": run(case, seed, network, None, found[("labels", 0)]["leads"])}
            print(json.dumps(row), flush=True)
            write_json(FILE, {"study": "search", "rows": list((kept() | {(case, seed): row}).values())})


if __name__ == "__main__":
    main()
