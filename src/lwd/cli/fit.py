"""`lwd fit texture|semantic`."""

import argparse
from typing import Any


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "fit",
        help="train a small texture autoencoder, or a compressor of semantic features",
        description="Train what makes latents. The same command takes up an interrupted fit; PCA starts anew.",
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
        help="PCA or SemVAE of an encoder's features",
        description="Fit a compressor of an encoder's features; reports held-out explained variance (and cosine).",
        epilog="example: lwd fit semantic cifar10/train --encoder resnet50:4@64 --grid 8x8 --kind pca --out pca",
    )
    for action in (texture, semantic):
        add = action.add_argument
        add("source", metavar="SOURCE", help="cifar10/train, or a directory with one folder per class")
        add("--out", required=True, metavar="DIR", help="where to write")
        add("--channels", type=int, default=16, metavar="N", help="latent channels (default 16)")
        add("--steps", type=int, metavar="N", help="training steps (default 2000; PCA has none)")
        add("--batch", type=int, default=64, metavar="N", help="images at once (default 64)")
        add("--size", type=int, default=0, metavar="PX", help="crop and scale images to this size")
        add("--held-out", type=int, default=500, metavar="N", help="images kept for the report (default 500)")
        add("--seed", type=int, default=0, metavar="N", help="of everything random (default 0)")
        add("--skip-bad", action="store_true", help="leave out images that cannot be read")
        add("--device", metavar="NAME", help="cpu, cuda or cuda:N (default: the GPU if there is one)")
        add("--force", action="store_true", help="replace DIR if it exists")
    texture.add_argument("--patch", type=int, default=4, metavar="PX", help="pixels per latent position (default 4)")
    texture.add_argument("--kl", type=float, default=1e-6, metavar="W", help="weight of the KL term (default 1e-6)")
    texture.add_argument("--width", type=int, default=128, metavar="N", help="of the transformer (default 128)")
    semantic.add_argument("--width", type=int, metavar="N", help="of SemVAE (default: as many as features)")
    texture.set_defaults(run=run_texture)
    semantic.add_argument("--encoder", required=True, metavar="NAME", help="resnet50:4@64, a hub id or a directory")
    semantic.add_argument("--grid", required=True, metavar="HxW", help="the texture latent's grid, for example 8x8")
    semantic.add_argument("--kind", choices=("pca", "semvae"), default="pca", help="which compressor (default pca)")
    semantic.add_argument("--limit", type=int, metavar="N", help="images for SemVAE (default 4000)")
    semantic.set_defaults(run=run_semantic)


def run_texture(arguments: argparse.Namespace) -> int:
    from lwd.images.catalog import open_source
    from lwd.representations.fit import fit_texture

    source, settings = open_source(arguments.source), _settings(arguments)
    with _bar(settings.steps) as bar:
        shape = {"patch": arguments.patch, "width": arguments.width}
        report = fit_texture(source, arguments.out, settings, replace=arguments.force, progress=_advance(bar), **shape)
    print(f"{arguments.out}: PSNR {report['psnr']:.2f} dB on {report['held_out']:.0f} held-out images")
    return 0


def run_semantic(arguments: argparse.Namespace) -> int:
    from lwd.errors import InputError
    from lwd.images.catalog import open_source
    from lwd.representations.encoders import load_encoder
    from lwd.representations.fit import fit_pca, fit_semvae

    pca, settings, grid = arguments.kind == "pca", _settings(arguments), _grid(arguments.grid)
    shape = {name: getattr(arguments, name) for name in ("limit", "width") if getattr(arguments, name) is not None}
    if pca and (shape or arguments.steps is not None):
        raise InputError("--steps, --limit and --width are SemVAE's and have no effect on PCA; leave them out")
    source, encoder = open_source(arguments.source), load_encoder(arguments.encoder)
    with _bar(-(-(len(source) - settings.held_out) // settings.batch) if pca else settings.steps) as bar:
        common = {"replace": arguments.force, "progress": _advance(bar)}
        if pca:
            report = fit_pca(source, encoder, grid, arguments.out, settings, **common)
        else:
            report = fit_semvae(source, encoder, grid, arguments.out, settings, **shape, **common)
    print(f"{arguments.out}: " + ", ".join(f"{name} {value:.4g}" for name, value in report.items()))
    return 0


def _settings(arguments: argparse.Namespace) -> Any:
    from lwd.compute.devices import choose_device
    from lwd.representations.fit import FitSettings

    names = ("channels", "batch", "seed", "held_out", "size", "skip_bad")
    given = {name: getattr(arguments, name) for name in names}
    given |= {"kl": arguments.kl} if hasattr(arguments, "kl") else {}
    steps = {} if arguments.steps is None else {"steps": arguments.steps}
    return FitSettings(**given, **steps, device=str(choose_device(arguments.device)))


def _bar(total: int) -> Any:
    from tqdm import tqdm

    return tqdm(total=total, desc="fitting", unit="step", disable=None)


def _advance(bar: Any) -> Any:
    def advance(step: int, loss: float) -> None:
        bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
        bar.update(step - bar.n)

    return advance


def _grid(text: str) -> tuple[int, int]:
    from lwd.errors import InputError

    rows, _, columns = text.partition("x")
    if not (rows.isdecimal() and columns.isdecimal() and int(rows) and int(columns)):
        raise InputError(f"--grid is written 8x8, with at least 1 row and 1 column, got {text!r}")
    return int(rows), int(columns)
