"""`lwd reproduce`."""

import argparse
import sys
from typing import Any

from lwd.cli.options import add_settings, given
from lwd.reproduce.settings import ALL, TABLES, ReproduceSettings, parse_latents, parse_seeds


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "reproduce",
        help="run a table or figure of the paper, at full or small scale",
        description="Run the probes, trainings, samples and metrics that a table of the paper still needs, and write "
        "it as Markdown, PNG and JSON next to the paper's numbers. Run again to continue.",
        epilog="example: lwd reproduce unguided --scale tiny --out runs/paper",
    )
    parser.add_argument("table", metavar="TABLE", help=f"{', '.join(TABLES)} or {ALL}")
    parser.add_argument("--out", required=True, metavar="DIR", help="directory of all results")
    add_settings(parser, ReproduceSettings, "scale")
    add = parser.add_argument
    add("--seeds", metavar="S1,S2,...", help="training seeds: mean and standard error over them (default 0)")
    add_settings(parser, ReproduceSettings, "repeat_probe")
    add("--latents", metavar="DIR", help="shards of latents, or semvae=DIR,dino-pca=DIR,... (default: encode them)")
    add_settings(parser, ReproduceSettings, "align_images", align_images="SOURCE")
    add_settings(parser, ReproduceSettings, "decoder", "reference", "encoder", decoder="DIR", reference="REF")
    add("--plan", action="store_true", help="only print the commands, disk, memory and GPU hours")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from lwd.reproduce.run import describe_plan, reproduce
    from lwd.training.interrupts import Interrupted

    values = given(arguments, ReproduceSettings)
    if "seeds" in values:
        values["seeds"] = parse_seeds(values["seeds"])
    if "latents" in values:
        values["latents"] = parse_latents(values["latents"])
    settings = ReproduceSettings(**values)
    if arguments.plan:
        print(describe_plan(arguments.table, arguments.out, settings))
        return 0
    try:
        written = reproduce(arguments.table, arguments.out, settings)
    except (Interrupted, KeyboardInterrupt):
        print("lwd: interrupted; everything is saved, run the same command to continue", file=sys.stderr)
        return 3
    for path in written:
        print(f"table: {path}")
    return 0
