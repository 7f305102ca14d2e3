"""The commands of README and docs, sorted into those that are run and the kind that they are of."""

from functools import cache
from itertools import takewhile

import pytest

from commands import PAGES, commands_of, name_of, parser, same_as, smaller, unwrapped, writes
from lwd.cli import main

NOT_RUN = {
    "lwd encode --captions": "needs published weights (tests/latents/test_captions.py, with small networks)",
    "lwd sample --prompt": "needs published weights (tests/sampling/test_text.py, with a small model)",
    "lwd probe --preset sefi": "needs published weights (tests/training/test_captions.py, with a small model)",
    "lwd train --preset sefi": "needs published weights (tests/training/test_captions.py, with a small model)",
    "lwd train --align-images": "needs DINOv2 (tests/latents/test_aligned.py, with a small encoder)",
    "lwd data fetch": "downloads, or reads the official archive (tests/images/test_sources.py, with made archives)",
    "lwd fetch": "downloads gigabytes (tests/checkpoints/fetch, with a local hub of small files)",
    "lwd plan": "shows placeholders, and takes seconds for each preset (tests/training/test_plan.py)",
    "lwd studio": "serves until Ctrl-C (tests/studio, with a browser)",
    "lwd surfaces measure": "needs published weights (tests/surfaces/test_band.py, with a small network)",
    "make": "CI runs the targets themselves",
}
"""Beginnings, options and values of commands that are not run here; those of lwd must still pass the parser."""


def matches(command, start):
    """Whether a command, whatever launches it, begins with these words and has these options."""
    words = command.words
    words = ("lwd", *words[words.index("lwd") + 1 :]) if "lwd" in words else words
    head = tuple(takewhile(lambda word: not word.startswith("-"), start.split()))
    return words[: len(head)] == head and set(start.split()) <= set(words)


def shown():
    """By their words; a command that several pages show is the first one's."""
    found = {}
    for page in PAGES:
        for command in commands_of(page):
            found.setdefault(command.words, command)
    return found


SHOWN = shown()
LISTED = [c for c in SHOWN.values() if any(matches(c, start) for start in NOT_RUN)]
RUN = [c for c in SHOWN.values() if c not in LISTED]
SHARDED = {"run.parallel=fsdp2", "run.parallel=hsdp"}
"""Settings that one process refuses: tests/cli/test_processes.py runs these commands."""
LAUNCHERS = ("torchrun", "accelerate", "srun")


@cache
def small(command):
    """A command's arguments at a quick scale, as words and as argparse reads them; None if it refuses them."""
    try:
        arguments = smaller(unwrapped(command.words))
        return arguments, parser().parse_args(arguments)
    except (SystemExit, ValueError, AssertionError):
        return None


def kind(command):
    """The subcommand, and for `lwd probe` its method."""
    a = small(command)[1]
    return f"{name_of(a)} {a.method}" if a.command == "probe" else name_of(a)


def distinct(commands, key):
    """The first command of each key; those that cannot be parsed are all there."""
    found = {}
    for command in commands:
        found.setdefault(key(command) if small(command) else command, command)
    return list(found.values())


ALONE = [c for c in RUN if not SHARDED & set(c.words)]
ALL = distinct(ALONE, lambda c: same_as(small(c)[1]))
"""Two pages' commands that differ in their scale or in where they write are one."""
MANY = distinct([c for c in RUN if c.words[0] in LAUNCHERS], lambda c: (c.words[0], same_as(small(c)[1])))
ONE_OF_EACH = [c for c in distinct(ALL, kind) if c.words[1] not in ("demo", "bench")]  # test_demo and test_benchmark do


PARTS = {
    "data": ("fit texture", "fit semantic", "encode", "data verify", "data show", "convert"),
    "probe": ("probe joint", "probe surface", "sweep"),
    "train": ("train", "runs show", "demo", "reproduce"),
    "schedule": (
        *("schedule show", "schedule plot", "schedule export", "schedule fit", "schedule path", "surfaces show"),
        *("evaluate", "compare", "bench sampler"),
    ),
    "sample": ("sample",),
}
"""A test file for each, so that processes share the work: a file is one process's."""


def in_part(part):
    """The commands that a file runs, all but one of each kind marked as slow."""
    # A refused command fails with the first part.
    found = [c for c in ALL if (kind(c) if small(c) else "encode") in PARTS[part]]
    return [pytest.param(c, id=str(c), marks=[] if c in ONE_OF_EACH else [pytest.mark.slow]) for c in found]


def check(command, shop, folder):
    """Oracle: exit code 0, and the files that the pages promise."""
    arguments, a = prepared(command, shop, folder)
    assert main(arguments) == 0
    missing = [str(path.relative_to(folder)) for path in writes(a, folder) if not path.exists()]
    assert not missing, f"{command} wrote no {', '.join(missing)}"
    assert all(path.is_dir() or path.stat().st_size for path in writes(a, folder))


def prepared(command, shop, folder):
    """The command's arguments at a quick scale, with everything in place that it reads and nothing that it writes."""
    arguments, a = small(command)
    shop.provide(a, folder)
    out = folder / (getattr(a, "out", None) or "nothing")
    assert not out.exists(), f"{command} writes over what it reads"
    return arguments, a
