"""`lwd plan`."""

import argparse
from typing import Any

from lwd.cli.options import add_settings, given
from lwd.training.plan_settings import PlanSettings

OPTIONS = ("gpus", "memory", "peak", "utilisation", "images", "classes", "side", "layout")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "plan",
        help="estimate memory, time and disk space of a training run",
        description="Estimate what a training run needs: memory under DDP and FSDP2, accumulation, hours, disk. "
        "Nothing is trained and no GPU is needed.",
        epilog="example: lwd plan lwd-xl --gpus 8 --memory 80",
    )
    add = parser.add_argument
    add("preset", metavar="PRESET", help="a preset (lwd-xl, lwd-xxl, ...) or a YAML file")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting, e.g. run.batch=512")
    add_settings(parser, PlanSettings, *OPTIONS, memory="GB", peak="TFLOPS", layout="A=N,B=N")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from lwd.training.config import load_config
    from lwd.training.plan import describe, plan

    settings = PlanSettings(**given(arguments, PlanSettings))
    print(describe(plan(load_config(arguments.preset, arguments.set), settings)))
    return 0
