"""`lwd convert`."""

import argparse
from typing import Any

from lwd.cli.options import parse_grid
from lwd.errors import InputError


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "convert",
        help="read SFD, LightningDiT, LWD, SiT and LDM-autoencoder weights; write SFD's",
        description="Turn a .pt, .ckpt or .safetensors file into a directory of ours, or such a directory into a .pt.",
        epilog="example: lwd convert sfd_xl.pt --groups texture=32,semantic=16 --schedule offset:0.3 --out sfd-xl",
    )
    add = parser.add_argument
    add("source", metavar="SOURCE", help="a network's or an autoencoder's weights, or a directory of ours")
    add("--out", required=True, metavar="PATH", help="the directory (or .pt file) to write")
    add("--groups", metavar="A=N,B=M", help="channels by group, for two clocks: texture=32,semantic=16")
    add("--schedule", metavar="S", help="what it was trained under: offset:0.3, or a schedule.json")
    add("--statistics", metavar="A=FILE,B=FILE", help="SFD's latents_stats.pt files, by group")
    add("--weights", choices=("auto", "ema", "model"), default="auto", help="which to take (default ema, then model)")
    add("--heads", type=int, metavar="N", help="attention heads, where no qk-norm tells them")
    add("--grid", metavar="HxW", help="the latent's size, where it is not square")
    add("--classes", type=int, metavar="N", help="classes, where the label table has no null row")
    add("--tap", type=int, metavar="N", help="the block that the projector reads (default 2)")
    add("--force", dest="replace", action="store_true", help="replace PATH if it exists")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from lwd.checkpoints.convert import Options, convert
    from lwd.groups import Layout

    options = Options(
        layout=Layout.parse(arguments.groups) if arguments.groups else None,
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
        raise InputError(f"--statistics is written texture=FILE,semantic=FILE, got {text!r}")
    return pairs
