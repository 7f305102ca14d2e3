"""`lwd sample`."""

import argparse
from pathlib import Path
from typing import Any

from lwd.errors import InputError


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "sample",
        help="draw images from a model: PNGs, ADM's .npz, a grid, a manifest",
        description="Draw images from a model. Run again to continue; torchrun shares the work.",
        epilog="example: lwd sample --model fashion --label 3 --out shirts.png",
    )
    add = parser.add_argument
    add("--model", required=True, metavar="DIR", help="a run or checkpoint, a hub id, or fashion (ships with lwd)")
    add("--out", required=True, metavar="DIR", help="where the samples go; NAME.png writes only a grid")
    add("--count", type=int, default=64, metavar="N", help="how many (default 64)")
    add("--label", "--labels", default="", metavar="L", help="classes in turn, e.g. 3 or 0,5-9 (default: all)")
    add("--seed", type=int, default=0, metavar="N", help="of the first image; the others follow (default 0)")
    add("--solver", default="dopri5", metavar="NAME", help="dopri5 (default), ab2, ab3, heun, midpoint, euler, rk4")
    add("--steps", type=int, metavar="N", help="of a solver with fixed steps")
    add("--placement", default="tau", metavar="NAME", help="of the steps: tau (default), a group, or optimised")
    add("--rtol", type=float, metavar="R", help="of dopri5 (default 1e-3)")
    add("--atol", type=float, metavar="A", help="of dopri5 (default 1e-6)")
    add("--guide", metavar="DIR", help="a weak model (AutoGuidance), or null (classifier-free)")
    add("--scale", metavar="W", help="of the guidance: 1.5, or texture=1.5,...")
    add("--interval", metavar="A:B", help="local times guided: 0.2:0.8, or texture=0.2:0.8")
    add("--schedule", metavar="SPEC", help="another schedule, for a model of a surface probe")
    add("--other-schedule", action="store_true", help="take it although the model knows another")
    add("--decoder", metavar="DIR", help="texture autoencoder (default: the model's own)")
    add("--format", default="png,npz", metavar="KINDS", help="png, npz or both (default png,npz)")
    add("--trajectory", action="store_true", help="also draw states along tau and the clocks")
    add("--batch", type=int, default=64, metavar="N", help="images at once (default 64)")
    add("--threads", type=int, default=2, metavar="N", help="of each process; part of the result (default 2)")
    add("--device", metavar="NAME", help="cpu, cuda or cuda:N (default: a GPU if there is)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from tqdm import tqdm

    from lwd.io.files import check_writable
    from lwd.io.jobs import process
    from lwd.sampling.generator import SampleSettings, open_generator
    from lwd.sampling.samples import generate

    a = arguments
    settings = SampleSettings(
        count=a.count,
        seed=a.seed,
        labels=parse_labels(a.label),
        solver=a.solver,
        steps=a.steps,
        placement=a.placement,
        atol=a.atol,
        rtol=a.rtol,
        **guidance(a),
        kinds=tuple(kind for kind in a.format.split(",") if kind),
        batch=a.batch,
        threads=a.threads,
    )
    rank, world = process()
    generator = open_generator(a.model, settings, a.guide, a.decoder, a.device, a.schedule, a.other_schedule)
    picture = a.out.lower().endswith(".png")
    check_writable(Path(a.out).parent if picture else a.out)
    if not picture:
        with tqdm(total=-(-a.count // world), desc="sampling", unit="image", disable=None) as bar:
            print(generate(generator, a.out, rank, world, bar.update))
    if rank == 0:
        _pictures(generator, a.out, picture, a.trajectory)
    return 0


def _pictures(generator: Any, out: str, only: bool, trajectory: bool) -> None:
    from lwd.report.plots import save_figure
    from lwd.report.sheets import save_sheet
    from lwd.report.trajectory import plot_trajectory
    from lwd.sampling.generator import draw_grid

    if only:
        save_sheet(draw_grid(generator), out)
        print(f"picture: {out}")
    if trajectory:
        path = Path(out).with_suffix(".trajectory.png") if only else Path(out) / "trajectory.png"
        shown = min(3, generator.settings.count)
        seeds = range(generator.settings.seed, generator.settings.seed + shown)
        save_figure(plot_trajectory(generator.pipe, generator.velocity(), seeds, generator.labels()[:shown]), path)
        print(f"trajectory: {path}")


def guidance(a: argparse.Namespace) -> dict[str, Any]:
    """--scale and --interval as settings."""
    return {
        "scale": None if a.scale is None else by_group("scale", a.scale, _number),
        "interval": None if a.interval is None else by_group("interval", a.interval, _interval),
    }


def parse_labels(text: str) -> tuple[int, ...]:
    """`3`, `0,5-9` -> labels."""
    labels: list[int] = []
    for part in text.split(",") if text else ():
        low, dash, high = part.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()) or (dash and int(high) < int(low)):
            raise InputError(f"labels are whole numbers and ranges such as 0,5-9, got {text!r}")
        if int(high or low) - int(low) > 1_000_000:
            raise InputError(f"labels {part.strip()} are more than a million; give the model's classes")
        labels += range(int(low), int(high or low) + 1)
    return tuple(labels)


def by_group(what: str, text: str, value: Any) -> Any:
    """One value for all groups, or `group=value,...`."""
    if "=" not in text:
        return value(what, text)
    pairs = [part.partition("=") for part in text.split(",")]
    return {name.strip(): value(what, rest) for name, _, rest in pairs}


def _number(what: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"--{what} is a number such as 1.5, or texture=1.5,semantic=1.2, got {text!r}") from error


def _interval(what: str, text: str) -> tuple[float, float]:
    low, colon, high = text.partition(":")
    if not colon or ":" in high:
        raise InputError(f"--{what} is LOW:HIGH such as 0.2:0.8, or texture=0.2:0.8, got {text!r}")
    return _number(what, low), _number(what, high)
