"""`lwd fetch`."""

import argparse
from typing import Any

from lwd.checkpoints.published import PUBLISHED
from lwd.errors import InputError


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "fetch",
        help="download a published model and convert it, ready to sample",
        description="Download a published model from the hub into the cache ($LWD_CACHE, or ~/.cache/lwd), check and "
        "convert it. Run again to resume. Without a NAME, list the names.",
        epilog="example: lwd fetch sfd-xl",
    )
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help=f"{', '.join(PUBLISHED)}")
    add("--revision", metavar="REV", help="branch, tag or commit (default: the pinned one, else the newest)")
    add("--from", dest="source", metavar="DIR", help="a local copy of the hub's files (default: download)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.name is None:
        if arguments.revision or arguments.source:
            raise InputError(f"name what to fetch: {', '.join(PUBLISHED)}")
        print(_listing())
        return 0
    from lwd.checkpoints.fetch import fetch

    done = fetch(arguments.name, arguments.revision, arguments.source)
    where = f"revision {done.origin.revision}" if done.origin.revision else "from a local copy"
    print(f"{done.directory}: {done.origin.repository}, {where}" + ("" if done.new else " (nothing to do)"))
    return 0


def _listing() -> str:
    from lwd.checkpoints.published import fetched_directory

    lines = []
    for name, entry in PUBLISHED.items():
        there = "in the cache" if (fetched_directory(name) / "origin.json").is_file() else f"{entry.gigabytes:.2f} GB"
        lines.append(f"{name:16} {there:>12}  {entry.about}")
    return "\n".join(lines)
