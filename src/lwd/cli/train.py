"""`lwd train`."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lwd.cli.runs import Progress, add_run_options, interrupted, prepared
from lwd.errors import InputError

SHORTS = {"steps": "run.steps", "seed": "run.seed", "schedule": "schedule"}
SHORTS |= {"align_images": "alignment.images", "align": "alignment.encoder"}


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "train",
        help="train the denoiser under a fixed schedule (Stage II)",
        description="Train under a fixed schedule. Run again to continue; use torchrun or accelerate for several GPUs.",
        epilog="example: lwd train latents --preset cifar-small --schedule runs/probe/schedule.json --out runs/lwd",
    )
    add_run_options(parser)
    add = parser.add_argument
    add("--schedule", metavar="SPEC", help="a schedule.json, or offset:0.3, synchronous")
    text = "compute alignment features (REPA) while training, from the images that were encoded"
    add("--align-images", metavar="SOURCE", help=text)
    add("--align", metavar="ENCODER", help="encoder of these features (alignment.encoder)")
    add("--init-from", metavar="DIR", help="initial weights (a probe, a checkpoint, or a text-to-image model)")
    add("--weak", action="store_true", help="train the weak model of the preset, for AutoGuidance")
    add("--decoder", metavar="DIR", help="texture autoencoder for sample grids (run.sample_every)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from lwd.training.task import RunOptions
    from lwd.training.train import train

    config, data, devices = prepared(arguments, SHORTS, arguments.weak)
    draw = _sample_grids(arguments, config.run.sample_every, devices.device, getattr(data, "texts", ()))
    with Progress(config.run.steps, devices.main, "training") as progress:
        options = RunOptions(devices, on_step=progress, after_save=draw, wandb=arguments.wandb)
        outcome = train(config, data, arguments.out, options, arguments.init_from)
    if not outcome.finished:
        return interrupted(outcome.step, devices.main)
    if devices.main:
        skipped = f", {outcome.skipped} non-finite steps skipped" if outcome.skipped else ""
        print(f"{arguments.out}: {outcome.step} steps{skipped}; model: {arguments.out}/checkpoints/{outcome.step:08}")
    return 0


def _sample_grids(
    arguments: argparse.Namespace, every: int, device: Any, texts: Sequence[str]
) -> Callable[[Path, int], None] | None:
    """Return a callback that draws a grid of samples every run.sample_every steps, with the averaged weights.

    texts: captions, of which the first few are drawn.
    """
    from lwd.representations.texture import TextureAutoencoder

    decoder = TextureAutoencoder.load(arguments.decoder).to(device) if arguments.decoder else None
    if not every:
        if decoder is not None:
            raise InputError("--decoder has no effect without sample grids; add --set run.sample_every=1000")
        return None

    def draw(checkpoint: Path, step: int) -> None:
        from lwd.report.sheets import sample_sheet, save_sheet
        from lwd.sampling.pipeline import LWDPipeline

        if step and step % every == 0:
            pipe = LWDPipeline.from_pretrained(checkpoint, device)
            pipe = pipe.with_decoder(decoder) if decoder is not None else pipe
            shown = list(dict.fromkeys(texts))[:4] or range(min(10, pipe.checkpoint.config.classes))
            sheet = sample_sheet(pipe, shown)
            save_sheet(sheet, Path(arguments.out) / "samples" / f"{step:08}.png")

    return draw
