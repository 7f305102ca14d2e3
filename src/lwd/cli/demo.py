"""`lwd demo`."""

import argparse
from typing import Any


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help="learn a schedule on toy data, sample under it, draw it (under a minute)",
        description="Learn a schedule on a Gaussian mixture, sample under it and under the usual ones, draw all of it.",
        epilog="example: lwd demo --out runs/demo",
    )
    parser.add_argument("--out", default="runs/demo", metavar="DIR", help="where to write (default runs/demo)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from lwd.demo import run_demo

    print(run_demo(arguments.out))
    return 0
