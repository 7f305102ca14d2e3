"""`lwd demo`."""

import argparse
import sys
from typing import Any


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help="run all stages on the embedded images and write a report",
        description="Encode the embedded images, learn a schedule for every lambda, train under it and under two "
        "baselines, sample, evaluate, and write a report to open in a browser. Run again to continue.",
        epilog="example: lwd demo --out runs/demo",
    )
    parser.add_argument("--out", default="runs/demo", metavar="DIR", help="directory to write (default runs/demo)")
    parser.add_argument("--quick", action="store_true", help="a tiny run that only shows that everything works")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="random seed (default 0)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from lwd.demo.plan import FULL, QUICK
    from lwd.demo.results import commands
    from lwd.demo.run import run_demo
    from lwd.training.interrupts import Interrupted

    plan = (QUICK if arguments.quick else FULL).changed(seed=arguments.seed)
    try:
        report = run_demo(arguments.out, plan)
    except (Interrupted, KeyboardInterrupt):
        print("lwd: interrupted; everything is saved, run the same command to continue", file=sys.stderr)
        return 3
    print(f"\nreport: {report}    (open it in a browser)\n\ntry next:")
    for one in commands(report.parent):
        print(f"  {one['command']}\n      {one['text']}")
    return 0
