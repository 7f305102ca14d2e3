"""`lwd fit texture|semantic`."""

import argparse
from typing import Any

from lwd.cli.options import add_settings, given, parse_grid
from lwd.cli.progress import bar
from lwd.errors import InputError
from lwd.representations.settings import FitSettings, SemVAESettings, TextureSettings

SEMVAE = ("epochs", "steps", "limit", "lr", "kl", "width", "depth", "heads", "loaders")
"""Options that PCA does not have."""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "fit",
        help="train a small texture autoencoder, or a compressor of semantic features",
        description="Train an autoencoder or a compressor. Run again to continue (PCA starts from the beginning); use "
        "torchrun for several processes.",
        epilog="example: lwd fit texture cifar10/train --out ae",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    texture = actions.add_parser(
        "texture",
        help="a small KL autoencoder for images of 28 to 64 px",
        description="Train a small KL autoencoder on a CPU; reports PSNR on held-out images.",
        epilog="example: lwd fit texture cifar10/train --channels 16 --steps 2000 --out ae",
    )
    semantic = actions.add_parser(
        "semantic",
        help="PCA or SemVAE of the features of an encoder",
        description="Fit a compressor of the features of an encoder; reports held-out explained variance and cosine.",
        epilog="example: lwd fit semantic cifar10/train --encoder resnet50:4@64 --grid 8x8 --kind pca --out pca",
    )
    semantic.add_argument("--encoder", required=True, metavar="NAME", help="resnet50:4@64, a hub id or a directory")
    semantic.add_argument("--grid", required=True, metavar="HxW", help="grid of the texture latents, for example 8x8")
    semantic.add_argument("--kind", choices=("pca", "semvae"), default="pca", help="kind of compressor (default pca)")
    for action, kind, own in (
        (texture, TextureSettings, ("steps", "patch", "kl", "width")),
        (semantic, SemVAESettings, SEMVAE),
    ):
        add = action.add_argument
        add("source", metavar="SOURCE", help="cifar10/train, or a directory with one folder per class")
        add("--out", required=True, metavar="DIR", help="directory to write")
        add_settings(action, kind, "channels", "batch", "size", "held_out", "seed", *own, size="PX")
        add_settings(action, kind, "skip_bad")
        add("--device", metavar="NAME", help="cpu, cuda or cuda:N (default: a GPU if there is one)")
        add("--force", dest="replace", action="store_true", help="replace DIR if it exists")
    texture.set_defaults(run=run_texture)
    semantic.set_defaults(run=run_semantic)


def run_texture(arguments: argparse.Namespace) -> int:
    from lwd.images.catalog import open_source
    from lwd.representations.fit import fit_texture

    source, settings = open_source(arguments.source), _settings(arguments, TextureSettings)
    with _bar(settings.steps) as bar:
        report = fit_texture(source, arguments.out, settings, arguments.replace, _advance(bar))
    if is_main():
        print(f"{arguments.out}: PSNR {report['psnr']:.2f} dB on {report['held_out']:.0f} held-out images")
    return 0


def run_semantic(arguments: argparse.Namespace) -> int:
    from lwd.images.catalog import open_source
    from lwd.representations.encoders import load_encoder
    from lwd.representations.fit import fit_pca, fit_semvae

    pca, grid = arguments.kind == "pca", parse_grid(arguments.grid)
    idle = ", ".join(f"--{name}" for name in SEMVAE if getattr(arguments, name) is not None)
    if pca and idle:
        raise InputError(f"PCA does not use {idle}; leave it out, or use --kind semvae")
    settings = _settings(arguments, FitSettings if pca else SemVAESettings)
    source, encoder = open_source(arguments.source), load_encoder(arguments.encoder)
    count = max(1, len(source) - settings.held_out)
    steps = -(-count // settings.batch) if pca else settings.with_steps(min(count, settings.limit or count)).steps
    with _bar(steps) as bar:
        fit: Any = fit_pca if pca else fit_semvae
        report = fit(source, encoder, grid, arguments.out, settings, arguments.replace, _advance(bar))
    if is_main():
        print(f"{arguments.out}: " + ", ".join(f"{name} {value:.4g}" for name, value in report.items()))
    return 0


def is_main() -> bool:
    """Whether this is the process that reports."""
    from lwd.io.jobs import process

    return process()[0] == 0


def _settings(arguments: argparse.Namespace, kind: Any) -> Any:
    from lwd.compute.devices import choose_device

    return kind(**given(arguments, kind) | {"device": str(choose_device(arguments.device))})


def _bar(total: int) -> Any:
    return bar(total, "fitting", "step", is_main())


def _advance(bar: Any) -> Any:
    def advance(step: int, loss: float) -> None:
        bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
        bar.update(step - bar.n)

    return advance
