"""Curves in networks that work under every schedule. The protocols are handover.yaml and focus.yaml.

    python benchmarks/evidence/handover.py LATENTS --out DIR [--study focus] [--case "labels logit-normal"]

DIR may be that of search.py, whose networks are then used. What is there is kept, and a killed run continues. Results
go to results/STUDY.json; about six minutes for each network on one core.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import yaml
from search import Network, network_of
from study import RESULTS, Judge, slug

from lwd.io.files import write_json
from lwd.schedule.io import parse_schedule


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("latents", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--study", default="handover", choices=("handover", "focus"))
    parser.add_argument("--case", help="only this setting")
    a = parser.parse_args()
    protocol: dict[str, Any] = yaml.safe_load((Path(__file__).parent / f"{a.study}.yaml").read_text())
    file, judge = RESULTS / f"{a.study}.json", Judge(protocol["judge"], protocol["reference"], "fashion/train")
    for seed in protocol["seeds"]:
        for case in [a.case] if a.case else protocol["cases"]:
            rows = json.loads(file.read_text())["rows"] if file.is_file() else []
            if (case, seed) in {(row["case"], row["seed"]) for row in rows}:
                continue
            network = Network(network_of(protocol, case, seed, a.latents, a.out), judge)
            scores = {
                name: network(
                    parse_schedule(word), f"{a.study}-{slug(name)}", protocol["samples"], case.startswith("labels")
                )
                for name, word in protocol["curves"].items()
            }
            row = {"case": case, "seed": seed, "schedules": scores}
            print(json.dumps(row), flush=True)
            rows = json.loads(file.read_text())["rows"] if file.is_file() else []
            write_json(file, {"study": a.study, "rows": [*rows, row]})


if __name__ == "__main__":
    main()
