"""`lwd sample`."""

import argparse
from pathlib import Path
from typing import Any

from lwd.cli.options import add_settings, by_group, given, parse_interval, parse_number
from lwd.cli.progress import bar
from lwd.errors import InputError
from lwd.sampling.settings import SEFI, SampleSettings


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "sample",
        help="draw images from a model: PNGs, ADM's .npz, a grid, a manifest",
        usage="lwd sample --model DIR --out DIR [--label L | --prompt TEXT] [options]",
        description="Draw images from a model. Run again to continue; torchrun shares the work.",
        epilog="example: lwd sample --model fashion --label dress --out dresses.png",
    )
    add = parser.add_argument
    add("--model", metavar="DIR", help="a run, checkpoint, hub id, or name: fashion, sfd-xl")
    add("--recipe", metavar="NAME", help="settings of a published row: sfd-xl-800-autoguidance")
    add("--out", required=True, metavar="DIR", help="directory to write; NAME.png writes only a grid")
    add(
        "--label",
        "--labels",
        dest="labels",
        metavar="L",
        help="classes: dress, 3, 0,5-9 (default: all)",
    )
    add("--prompt", dest="prompts", action="append", metavar="TEXT", help="prompt of a text-to-image model; repeatable")
    add("--prompt-file", metavar="FILE", help="prompts, one per line")
    add_settings(parser, SampleSettings, "negative", negative="TEXT")
    add("--size", metavar="PX", help="image size (text-to-image): 1024, or HEIGHTxWIDTH")
    names = ("count", "seed", "solver", "steps", "shift", "placement", "diffusion", "last_step", "rtol", "atol")
    add_settings(parser, SampleSettings, *names, diffusion="W", last_step="STEP")
    add_guidance(parser)
    add("--schedule", metavar="SPEC", help="another schedule (for the network of a surface probe)")
    add("--other-schedule", action="store_true", help="allow a schedule the model was not trained for")
    add("--decoder", metavar="DIR", help="texture autoencoder (default: the model's own)")
    add("--format", dest="kinds", metavar="KINDS", help="files to write: png, npz or both (default png,npz)")
    add("--trajectory", action="store_true", help="also draw states along tau and the clocks")
    add_settings(parser, SampleSettings, "precision", "batch", "threads")
    add("--free-text", action="store_true", help="release the text encoder before denoising")
    add("--offload", action="store_true", help="keep weights in the CPU's memory (text-to-image)")
    add("--device", metavar="NAME", help="cpu, cuda or cuda:N (default: a GPU if there is one)")
    parser.set_defaults(run=run)


def add_guidance(parser: Any) -> None:
    """Add --guide, --scale and --interval."""
    add = parser.add_argument
    add("--guide", metavar="DIR", help="a weak model (AutoGuidance), or null (classifier-free)")
    add("--scale", metavar="W", help="guidance scale: 1.5, or texture=1.5,semantic=1.2")
    add("--interval", metavar="A:B", help="local times with guidance: 0.2:0.8, or texture=0.2:0.8")


def apply_recipe(a: argparse.Namespace) -> None:
    """Fill in the options that were not given from a published recipe."""
    from lwd.checkpoints.published import Recipe, find_recipe

    if a.recipe is not None:
        found = {name: getattr(a, name) for name in Recipe.model_fields if hasattr(a, name)}
        filled = find_recipe(a.recipe).fill(found)
        for name, value in filled.items():
            # As it would be typed: options by group are parsed later.
            setattr(a, name, str(value) if name == "scale" else value)
    if a.model is None:
        raise InputError("name a model to draw from, or a published recipe", argument="model")


def sample_settings(a: argparse.Namespace) -> SampleSettings:
    """Build settings from the command line."""
    values = given(a, SampleSettings)
    if prompts := [*(values.pop("prompts", None) or ()), *_prompt_lines(getattr(a, "prompt_file", None))]:
        values["prompts"] = tuple(prompts)
        values.setdefault("count", len(prompts))
        if "solver" not in values and values.keys() & {"steps", "shift"}:
            values["solver"] = SEFI
    if "size" in values:
        values["size"] = parse_size(values["size"])
    if "labels" in values:
        values["labels"] = parse_labels(values["labels"])
    if "kinds" in values:
        values["kinds"] = tuple(kind for kind in values["kinds"].split(",") if kind)
    if "scale" in values:
        values["scale"] = by_group("scale", values["scale"], parse_number)
    if "interval" in values:
        values["interval"] = by_group("interval", values["interval"], parse_interval)
    if "diffusion" in values:
        values["diffusion"] = by_group("diffusion", values["diffusion"], lambda _, text: text)
    return SampleSettings(**values)


def run(arguments: argparse.Namespace) -> int:
    from lwd.io.files import check_writable
    from lwd.io.jobs import process
    from lwd.sampling.generator import open_generator
    from lwd.sampling.samples import generate
    from lwd.sampling.sde import SDE_METHODS

    apply_recipe(arguments)
    a, settings = arguments, sample_settings(arguments)
    if a.trajectory and settings.solver in SDE_METHODS:
        raise InputError(f"the trajectory is the ODE's; {settings.solver} takes another path", argument="trajectory")
    rank, world = process()
    text: dict[str, Any] = {"free_text": True} if a.free_text else {}
    text |= {"offload": True} if a.offload else {}
    generator = open_generator(a.model, settings, a.guide, a.decoder, a.device, a.schedule, a.other_schedule, **text)
    picture = a.out.lower().endswith(".png")
    check_writable(Path(a.out).parent if picture else a.out)
    if not picture:
        with bar(-(-settings.count // world), "sampling", shown=rank == 0) as shown:
            print(generate(generator, a.out, rank, world, shown.update))
    if rank == 0:
        _pictures(generator, a.out, picture, a.trajectory)
    return 0


def _pictures(generator: Any, out: str, only: bool, trajectory: bool) -> None:
    from lwd.report.sheets import save_sheet
    from lwd.sampling.generator import draw_grid

    if only:
        save_sheet(draw_grid(generator), out)
        print(f"picture: {out}    classes: {_shown(generator)}")
    if trajectory:
        from lwd.report.plots import save_figure
        from lwd.report.trajectory import plot_trajectory

        path = Path(out).with_suffix(".trajectory.png") if only else Path(out) / "trajectory.png"
        shown = min(3, generator.settings.count)
        seeds = range(generator.settings.seed, generator.settings.seed + shown)
        conditions = generator.conditions(generator.labels()[:shown])
        save_figure(plot_trajectory(generator.pipe, generator.velocity(), seeds, conditions), path)
        print(f"trajectory: {path}")


def _shown(generator: Any, most: int = 10) -> str:
    """List the classes of a grid, in order."""
    drawn = list(dict.fromkeys(generator.labels()[:64]))
    names = [generator.pipe.class_name(label) for label in drawn[:most]]
    return ", ".join(names) + (f" and {len(drawn) - most} more" if len(drawn) > most else "")


def _prompt_lines(path: str | None) -> list[str]:
    """Read prompts, one per line; empty lines are ignored."""
    if path is None:
        return []
    try:
        lines = [line.strip() for line in Path(path).read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a readable text file ({error})", argument="prompt_file") from error
    if not any(lines):
        raise InputError(f"{path} has no prompts", argument="prompt_file")
    return [line for line in lines if line]


def parse_size(text: str) -> tuple[int, int]:
    """`1024` or `768x1024` (height x width)."""
    height, times, width = text.partition("x")
    if not height.isdecimal() or (times and not width.isdecimal()):
        raise InputError(f"expected a size such as 1024 or 768x1024 (height x width), got {text!r}", argument="size")
    return int(height), int(width or height)


def parse_labels(text: str) -> tuple[int | str, ...]:
    """Parse labels such as `3`, `0,5-9` or `dress,ankle boot`; names are checked later, with the model."""
    labels: list[int | str] = []
    for part in (piece.strip() for piece in text.split(",")):
        low, dash, high = part.partition("-")
        if low.isdecimal() and dash and high.isdecimal():
            if not 0 <= int(high) - int(low) <= 1_000_000:
                raise InputError(f"{part} is not a range of labels such as 5-9", argument="labels")
            labels += range(int(low), int(high) + 1)
        elif part:
            labels.append(int(part) if part.isdecimal() else part)
    if not labels:
        raise InputError(f"expected names, numbers or ranges such as dress,3,5-9, got {text!r}", argument="labels")
    return tuple(labels)
