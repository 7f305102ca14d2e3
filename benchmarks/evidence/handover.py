"""A cascade whose lead waits before it is clean, in networks that work under every schedule: see handover.yaml.

    python benchmarks/evidence/handover.py LATENTS --out DIR [--case "labels logit-normal"]

DIR may be that of search.py, whose networks are then used. What is there is kept, and a killed run continues. Results
go to results/handover.json; about six minutes for each network on one core.
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

PROTOCOL: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "handover.yaml").read_text())
FILE = RESULTS / "handover.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("latents", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--case", choices=list(PROTOCOL["cases"]), help="only this setting")
    a = parser.parse_args()
    judge = Judge(PROTOCOL["judge"], PROTOCOL["reference"], "fashion/train")
    for seed in PROTOCOL["seeds"]:
        for case in [a.case] if a.case else PROTOCOL["cases"]:
            rows = json.loads(FILE.read_text())["rows"] if FILE.is_file() else []
            if (case, seed) in {(row["case"], row["seed"]) for row in rows}:
                continue
            network = Network(network_of(PROTOCOL, case, seed, a.latents, a.out), judge)
            scores = {
                name: network(
                    parse_schedule(word), f"handover-{slug(name)}", PROTOCOL["samples"], case.startswith("labels")
                )
                for name, word in PROTOCOL["curves"].items()
            }
            row = {"case": case, "seed": seed, "schedules": scores}
            print(json.dumps(row), flush=True)
            rows = json.loads(FILE.read_text())["rows"] if FILE.is_file() else []
            write_json(FILE, {"study": "handover", "rows": [*rows, row]})


if __name__ == "__main__":
    main()
