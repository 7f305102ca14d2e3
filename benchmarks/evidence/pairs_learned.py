"""What each pair learns from its own surfaces, and what it is worth. The protocol is pairs-learned.yaml.

    python benchmarks/evidence/pairs_learned.py DIR [--study pairs-more]

DIR holds the finished runs of pairs.py; what is done is kept. Results go to results/STUDY-learned.json. About ten
minutes on one core.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import yaml
from pairs import file_of, make_latents, protocol_of, score_under, texture_of
from study import Judge, slug

from lwd.io.files import write_json
from lwd.objective import FlowObjective
from lwd.probing.surface import error_scale
from lwd.schedule.base import Schedule
from lwd.schedule.learned import Polynomial
from lwd.surfaces.family import parse_family
from lwd.surfaces.files import load_surfaces
from lwd.surfaces.lambda_path import lambda_path
from lwd.surfaces.settings import PathSettings
from lwd.surfaces.table import smooth

PROTOCOL = yaml.safe_load((Path(__file__).parent / "pairs-learned.yaml").read_text())
MOMENTS = (0.25, 0.5, 0.75)
"""Global times at which the clocks of a learned curve are kept."""


def learned(probe: Path) -> tuple[dict[str, Schedule], dict[str, float]]:
    """The curves of the protocol on the surfaces of a probe, and the lambdas of those that were found."""
    table, about = load_surfaces(probe)
    groups = table.layout.names
    steps = PROTOCOL["path"] | {"scale": error_scale(about, 2)} if len(groups) == 2 else {}
    path = lambda_path(
        parse_family("polynomial", groups), smooth(table), FlowObjective(table.layout), PathSettings(**steps)
    )
    found = {name: point for name, point in (("weakest", path.weakest), ("chosen", path.chosen)) if point is not None}
    curves: dict[str, Schedule] = {name: point.schedule.freeze() for name, point in found.items()}
    if len(groups) == 2:
        curves["tau^2"] = Polynomial.from_shares([[0, 1]], groups)
    return curves, {name: point.kinetic for name, point in found.items()}


def run(runs: dict[str, Any], pair: str, seed: int, out: Path, judge: Judge) -> dict[str, Any]:
    """Learn on the surfaces of one run, and sample its network under what was learned."""
    texture = make_latents(runs, texture_of(runs, pair), out)
    out = out / f"{slug(pair)}-seed{seed}"
    curves, lambdas = learned(out / "probe")
    row: dict[str, Any] = {"pair": pair, "seed": seed, "lambdas": lambdas, "clocks": {}, "schedules": {}}
    for name, curve in curves.items():
        row["clocks"][name] = {str(tau): [round(float(t), 4) for t in curve.times(tau)] for tau in MOMENTS}
        row["schedules"][name] = score_under(runs, name, curve, out, judge, texture.decoder)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--study", default="pairs", choices=("pairs", "pairs-more"))
    a = parser.parse_args()
    runs, file = protocol_of(a.study), file_of(f"{a.study}-learned")
    if PROTOCOL["samples"] != runs["samples"]:
        raise SystemExit(f"pairs-learned.yaml and {a.study}.yaml must have the same `samples`: curves are compared")
    rows = json.loads(file.read_text())["rows"] if file.is_file() else []
    done = {(row["seed"], row["pair"]) for row in rows}
    judge = Judge(runs["judge"], runs["reference"], "")
    for seed, pair in [(row["seed"], row["pair"]) for row in json.loads(file_of(a.study).read_text())["rows"]]:
        if (seed, pair) not in done:
            rows.append(run(runs, pair, seed, a.out, judge))
            print(json.dumps(rows[-1]), flush=True)
            write_json(file, {"study": f"{a.study}-learned", "rows": rows})


if __name__ == "__main__":
    main()
