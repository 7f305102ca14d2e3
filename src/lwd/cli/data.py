"""`lwd data fetch|verify|show`."""

import argparse
import sys
from typing import Any

FETCHED = ("cifar10", "resnet50", "efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2", "inception")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "data",
        help="fetch images; verify and show shards of latents",
        description="Fetch images into the cache; verify and show shards of latents.",
        epilog="example: lwd data fetch cifar10",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    fetch = actions.add_parser(
        "fetch",
        help="download images or an encoder into the cache directory",
        description="Download images or an encoder into the cache ($LWD_CACHE, or ~/.cache/lwd) and check them.",
        epilog="example: lwd data fetch cifar10",
    )
    fetch.add_argument("name", choices=FETCHED, metavar="NAME", help=f"one of {', '.join(FETCHED)}")
    fetch.add_argument("--from", dest="archive", metavar="FILE", help="a local file (default: download)")
    fetch.set_defaults(run=run_fetch)

    verify = actions.add_parser(
        "verify",
        help="check every shard against its manifest",
        description="Check every shard against its manifest: lengths, counts, checksums.",
        epilog="example: lwd data verify latents",
    )
    verify.add_argument("directory", metavar="DIR", help="a directory of shards")
    verify.set_defaults(run=run_verify)

    show = actions.add_parser(
        "show",
        help="summary and contact sheet of a directory of shards",
        description="Summarise a directory of shards and draw some images, latents as colours, and reconstructions.",
        epilog="example: lwd data show latents --images cifar10/train --texture ae --out sheet.png",
    )
    show.add_argument("directory", metavar="DIR", help="a directory of shards")
    show.add_argument("--images", metavar="SOURCE", help="also draw the original images")
    show.add_argument("--texture", metavar="DIR", help="texture autoencoder, to draw reconstructions")
    show.add_argument("--out", metavar="FILE", help="contact sheet to write (default DIR/contact-sheet.png)")
    show.set_defaults(run=run_show)


def run_fetch(arguments: argparse.Namespace) -> int:
    from lwd.evaluation.inception_weights import fetch_inception
    from lwd.images.cifar import fetch_cifar10
    from lwd.io.files import cache_dir
    from lwd.representations.efficientnet_weights import fetch_efficientnet
    from lwd.representations.resnet import fetch_resnet50

    there = cache_dir() / arguments.name
    # Only Inception without a classifier is replaced; everything else in the cache is kept.
    if arguments.archive and arguments.name != "inception" and (there / "config.json").is_file():
        print(f"{arguments.archive} was not read: {there} exists; remove it to replace it", file=sys.stderr)
    if arguments.name.startswith("efficientnet"):
        print(fetch_efficientnet(arguments.name, arguments.archive))
        return 0
    fetchers = {"cifar10": fetch_cifar10, "resnet50": fetch_resnet50, "inception": fetch_inception}
    print(fetchers[arguments.name](arguments.archive))
    return 0


def run_verify(arguments: argparse.Namespace) -> int:
    from lwd.errors import InputError
    from lwd.latents.verify import verify

    problems = verify(arguments.directory)
    if problems:
        raise InputError("; ".join(problems))
    print(f"{arguments.directory}: all shards are intact")
    return 0


def run_show(arguments: argparse.Namespace) -> int:
    from lwd.images.catalog import open_source
    from lwd.images.sources import leave_out
    from lwd.latents.reader import LatentReader
    from lwd.latents.shards import read_manifest
    from lwd.report.sheets import contact_sheet, describe_shards, save_sheet
    from lwd.representations.texture import TextureAutoencoder

    reader = LatentReader(arguments.directory)
    manifest = read_manifest(arguments.directory)
    provenance = dict(manifest.provenance) if manifest else {}
    left_out = provenance.pop("left_out", [])
    source = leave_out(open_source(arguments.images), [number for number, _ in left_out]) if arguments.images else None
    autoencoder = TextureAutoencoder.load(arguments.texture) if arguments.texture else None
    out = arguments.out or f"{arguments.directory}/contact-sheet.png"
    save_sheet(contact_sheet(reader, source, autoencoder), out)
    print(describe_shards(reader, provenance))
    if left_out:
        print(f"skipped:    {len(left_out)} unreadable images, listed in {arguments.directory}/manifest.json")
    print(f"sheet:      {out}")
    return 0
