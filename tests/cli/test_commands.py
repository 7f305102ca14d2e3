"""Every shell command in README and docs is run, small; those that cannot be are listed with the reason.

The fast tests run one command of each kind and parse the others; the slow ones run all of them.
"""

import ast
import os
import re
import subprocess
import sys
from argparse import _SubParsersAction
from functools import cache
from pathlib import Path

import pytest

import commands
from commands import (
    FENCE,
    PAGES,
    ROOT,
    Shop,
    commands_of,
    mentions,
    name_of,
    parsed,
    parser,
    same_as,
    smaller,
    stand_in,
    unwrapped,
    writes,
)
from lwd.assets import MODELS
from lwd.cli import main
from lwd.compute.devices import threads

NOT_RUN = {
    "lwd data fetch": "downloads, or reads the whole official archive (tests/data, with made archives)",
    "lwd fetch": "downloads gigabytes (tests/checkpoints/test_fetch.py, with a local hub of small files)",
    "make": "CI runs the targets themselves",
}
"""Beginnings of commands that are not run here; those of lwd must still be accepted by the parser."""

SHOWN = {}
for _page in PAGES:
    for _command in commands_of(_page):
        SHOWN.setdefault(_command.words, _command)
LISTED = [c for c in SHOWN.values() if any(c.words[: len(start.split())] == tuple(start.split()) for start in NOT_RUN)]
RUN = [c for c in SHOWN.values() if c not in LISTED]
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


ALL = distinct(RUN, lambda c: same_as(small(c)[1]))
"""Two pages' commands that differ in their scale or in where they write are one."""
MANY = distinct([c for c in RUN if c.words[0] in LAUNCHERS], lambda c: (c.words[0], same_as(small(c)[1])))
ONE_OF_EACH = [c for c in distinct(ALL, kind) if c.words[1] not in ("demo", "bench")]  # test_demo and test_benchmark do


def marked(command):
    return pytest.param(command, id=str(command), marks=[] if command in ONE_OF_EACH else [pytest.mark.slow])


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Stand-ins for everything that commands read."""
    with pytest.MonkeyPatch.context() as patch, threads(1):  # two threads fight where something else runs
        stand_in(patch.setattr)
        made = Shop(tmp_path_factory.mktemp("shop"))
        patch.setenv("LWD_CACHE", str(made.cache))
        yield made


@pytest.fixture
def folder(shop, tmp_path, monkeypatch):
    monkeypatch.setenv("LWD_CACHE", str(shop.cache))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepared(command, shop, folder):
    """The command's arguments at a quick scale, with everything in place that it reads and nothing that it writes."""
    arguments, a = small(command)
    for attribute in ("model", "guide"):
        shipped = MODELS.get(getattr(a, attribute, None))
        if shipped is not None and not (shipped / "config.json").is_file():
            pytest.skip("the shipped model is not in this tree")
    shop.provide(a, folder)
    out = folder / (getattr(a, "out", None) or "nothing")
    assert not out.exists(), f"{command} writes over what it reads"
    return arguments, a


@pytest.mark.parametrize("command", [pytest.param(c, id=str(c)) for c in SHOWN.values() if "lwd" in c.words])
def test_command_is_accepted(command):
    """Oracle: the parser."""
    assert parsed(unwrapped(command.words)) is not None


@pytest.mark.parametrize("command", [marked(c) for c in ALL])
def test_command_runs(command, shop, folder):
    """Oracle: exit code 0, and the files that the pages promise."""
    arguments, a = prepared(command, shop, folder)
    assert main(arguments) == 0
    missing = [str(path.relative_to(folder)) for path in writes(a, folder) if not path.exists()]
    assert not missing, f"{command} wrote no {', '.join(missing)}"
    assert all(path.is_dir() or path.stat().st_size for path in writes(a, folder))


@pytest.mark.slow
@pytest.mark.parametrize("command", [pytest.param(c, id=str(c)) for c in MANY])
def test_command_runs_on_two_processes(command, shop, folder):
    """Oracle: the same as on one, with the launcher that the page names."""
    arguments, a = prepared(command, shop, folder)
    if "accelerate" in command.words:
        start = ["accelerate.commands.launch", "--cpu", "--num_processes=2", "--num_cpu_threads_per_process=1"]
    else:
        start = ["torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    if "run.parallel=fsdp2" in getattr(a, "set", ()):
        arguments += ["--set", "run.parallel=fsdp2"]  # now there is something to share
    path = os.pathsep.join([str(Path(commands.__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    words = [sys.executable, "-m", *start, commands.__file__, *arguments]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if line.startswith("lwd:")]
    assert done.returncode == 0, said or done.stderr[-2000:]
    assert all(path.exists() for path in writes(a, folder))


@pytest.mark.parametrize("start", NOT_RUN)
def test_no_stale_exemption(start):
    assert any(c.words[: len(start.split())] == tuple(start.split()) for c in LISTED), f"no page shows {start!r}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_mentioned_commands_and_options_exist(page):
    """Oracle: the parser. `lwd train --init-from DIR` is no whole command, but its words must be lwd's."""
    for line, text in mentions(page):
        inside = parser()
        for word in text.split()[1:]:
            inner = below(inside)
            if inner and not word.startswith("--"):
                assert word in inner or word in ("|", "..."), f"{page.name}:{line}: {text}"
                inside = inner.get(word, inside)
            elif word.startswith("--"):
                known = [inside, *inner.values()]  # `lwd fit --skip-bad` is of both its actions
                assert any(word in one._option_string_actions for one in known), f"{page.name}:{line}: {text}"


def below(parser):
    """A command's actions by name."""
    return next((dict(a.choices) for a in parser._actions if isinstance(a, _SubParsersAction)), {})


def test_commands_are_found_as_a_shell_would_read_them(tmp_path):
    """Oracle: a page by hand."""
    page = tmp_path / "page.md"
    page.write_text(
        "```\nlwd demo   # words\nnot a command\nA=1 lwd train latents \\\n  --out 'a b'\n```\n"
        "```python\nlwd = 1\n```\n```console\n$ make test\nmade\n```\n"
        "`lwd schedule show cascade`, `lwd train`, `lwd probe --method\nsurface`\n"
    )
    found = list(commands_of(page))
    assert [(c.line, *c.words) for c in found] == [
        (2, "lwd", "demo"),
        (4, "lwd", "train", "latents", "--out", "a b"),
        (11, "make", "test"),
        (14, "lwd", "schedule", "show", "cascade"),
    ]
    assert [text for _, text in mentions(page)][1:] == ["lwd train", "lwd probe --method surface"]
    assert unwrapped(("torchrun", "--nproc-per-node", "8", "-m", "lwd", "demo", "--quick")) == ["demo", "--quick"]
    assert unwrapped(("accelerate", "launch", "--num_processes", "8", "-m", "lwd", "demo")) == ["demo"]
    with pytest.raises(ValueError, match="does not start lwd"):
        unwrapped(("git", "clone"))


@cache
def templates():
    """Every text in the source as a pattern, with anything in place of what is filled in."""
    found = set()
    for path in (ROOT / "src" / "lwd").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node] if isinstance(node, ast.Constant) else ()
            fixed = [part.value if isinstance(part, ast.Constant) else None for part in parts]
            if sum(len(part) for part in fixed if isinstance(part, str)) >= 12:
                found.add("".join(".+" if part is None else re.escape(str(part)) for part in fixed))
    return [re.compile(pattern) for pattern in sorted(found)]


def quoted():
    page = ROOT / "docs" / "troubleshooting.md"
    return [block[3].strip() for block in FENCE.finditer(page.read_text()) if block[2] == "text"]


@pytest.mark.parametrize("message", quoted())
def test_quoted_message_is_in_the_source(message):
    """Oracle: the strings of src/lwd, read as Python reads them; the message must begin like one of them."""
    said = message.removeprefix("lwd: ")
    assert "\n" not in said
    assert any(pattern.match(said) for pattern in templates()), f"nothing in src/lwd says: {said}"


def test_a_message_of_ours_alone_is_noticed():
    assert not any(pattern.match("photos has 36 images; that is not enough") for pattern in templates())
