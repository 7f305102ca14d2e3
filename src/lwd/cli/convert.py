"""`lwd convert`."""

import argparse
from typing import Any

from lwd.cli.options import parse_grid
from lwd.errors import InputError


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "convert",
        help="read SFD, LightningDiT, SiT and LDM-autoencoder weights; write SFD's",
        description="Convert a .pt, .ckpt or .safetensors file to a model directory, or a model directory to a .pt "
        "file. No LWD weights have been published; that they would have SFD's format is a guess.",
        epilog="example: lwd convert sfd_xl.pt --groups texture=32,semantic=16 --schedule offset:0.3 --out sfd-xl",
    )
    add = parser.add_argument
    add("source", metavar="SOURCE", help="weights of a network or an autoencoder, or a model directory")
    add("--out", required=True, metavar="PATH", help="directory (or .pt file) to write")
    add(
        "--groups",
        dest="layout",
        metavar="A=N,B=M",
        help="channels by group, for networks with two clocks: texture=32,semantic=16",
    )
    add("--schedule", metavar="S", help="schedule it was trained under: offset:0.3, or a schedule.json")
    add("--statistics", metavar="A=FILE,B=FILE", help="SFD's latents_stats.pt files, by group")
    add("--weights", choices=("auto", "ema", "model"), default="auto", help="weights to use (auto: ema, else model)")
    add("--heads", type=int, metavar="N", help="attention heads (networks without qk-norm)")
    add("--grid", metavar="HxW", help="height and width of the latents, if not square")
    add("--classes", type=int, metavar="N", help="number of classes, if the label table has no null row")
    add("--tap", type=int, metavar="N", help="block whose features the projector reads (default 2)")
    add("--force", dest="replace", action="store_true", help="replace PATH if it exists")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from lwd.checkpoints.convert import Options, convert
    from lwd.groups import Layout

    options = Options(
        layout=Layout.parse(arguments.layout) if arguments.layout else None,
        schedule=arguments.schedule,
        statistics=_pairs(arguments.statistics) if arguments.statistics else None,
        heads=arguments.heads,
        grid=parse_grid(arguments.grid) if arguments.grid else None,
        tap=arguments.tap,
        classes=arguments.classes,
        weights=arguments.weights,
    )
    print(convert(arguments.source, arguments.out, options, arguments.replace))
    return 0


def _pairs(text: str) -> dict[str, str]:
    pairs = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    if not pairs or len(pairs) != len(text.split(",")):
        raise InputError(f"--statistics must be written as texture=FILE,semantic=FILE, got {text!r}")
    return pairs
