"""The `lwd` command: parse, call one library function, print, return an exit code."""

import argparse
import ast
import errno
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from lwd.cli import (
    bench,
    convert,
    data,
    demo,
    encode,
    evaluate,
    fetch,
    fit,
    plan,
    probe,
    reproduce,
    runs,
    sample,
    schedule,
    studio,
    surfaces,
    train,
)
from lwd.cli.options import flags_of
from lwd.errors import InputError, SolveError, nearest
from lwd.version import __version__

COMMANDS = (
    demo,
    studio,
    sample,
    data,
    fit,
    encode,
    probe,
    plan,
    train,
    runs,
    surfaces,
    schedule,
    evaluate,
    bench,
    reproduce,
    fetch,
    convert,
)
OF_THE_SYSTEM = {errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENOTDIR, errno.EIO, errno.ESTALE}
"""Errors of a path or disk that no code can fix; they get one line, any other OSError its traceback."""


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors that suggest a fix."""

    def error(self, message: str) -> NoReturn:
        if "invalid choice: " in message:
            given = ast.literal_eval(message.split("invalid choice: ")[1].rsplit(" (choose from", 1)[0])
            choices = [c for a in self._actions if isinstance(a, argparse._SubParsersAction) for c in a.choices]
            if choices:
                message = f"there is no command {given!r}; {nearest(given, choices)}"
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def build_parser() -> Parser:
    """Build the parser of all commands; this does not import torch."""
    parser = Parser(
        prog="lwd",
        description="Learning When to Denoise: diffusion over several representations, each on its own learned clock.",
        epilog="example: lwd sample --model fashion --label dress --out dresses.png",
    )
    parser.add_argument("--version", action="version", version=f"lwd {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in COMMANDS:
        command.add_parser(commands)
    return parser


def _flag(parser: Parser, arguments: argparse.Namespace, error: Exception) -> str:
    """Return the flag of the argument that an error names; the library itself does not know the command line."""
    name, flags = getattr(error, "argument", ""), flags_of(parser, arguments)
    flag = flags.get(name, f"--set {name}=VALUE" if "." in name and "set" in flags else "")
    return f" ({flag})" if flag and flag not in str(error) else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns 0 on success, 2 for errors that the user can fix, 130 after Ctrl-C."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return 0
    try:
        return int(arguments.run(arguments))
    except (InputError, SolveError) as error:
        print(f"lwd: {error}{_flag(parser, arguments, error)}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it once more at the end
        return 0
    except OSError as error:
        if error.errno not in OF_THE_SYSTEM or error.filename is None:
            raise
        print(f"lwd: cannot use {str(error.filename)[:200]!r}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("lwd: interrupted", file=sys.stderr)
        return 130
