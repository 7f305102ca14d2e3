"""Every shell command in README and docs is accepted by the parser; what is not run is listed with the reason."""

from argparse import _SubParsersAction
from pathlib import Path

import pytest

from cli.shown import ALL, ALONE, LISTED, MANY, NOT_RUN, PARTS, RUN, SHOWN, in_part, kind, matches
from commands import PAGES, commands_of, mentions, parsed, parser, unwrapped


@pytest.mark.parametrize("command", [pytest.param(c, id=str(c)) for c in SHOWN.values() if "lwd" in c.words])
def test_command_is_accepted(command):
    """Oracle: the parser."""
    assert parsed(unwrapped(command.words)) is not None


def test_every_command_is_in_one_file():
    """Oracle: the files in this folder; every kind of command that a page shows is in one part."""
    kinds = [one for part in PARTS.values() for one in part]
    assert len(set(kinds)) == len(kinds)
    assert {kind(c) for c in ALL} <= set(kinds)
    assert all(c in MANY or any(set(c.words) == set(other.words) for other in MANY) for c in RUN if c not in ALONE)
    assert sum(len(in_part(part)) for part in PARTS) == len(ALL)
    assert all((Path(__file__).parent / f"test_{part}_commands.py").is_file() for part in PARTS)


@pytest.mark.parametrize("start", NOT_RUN)
def test_no_stale_exemption(start):
    assert any(matches(c, start) for c in LISTED), f"no page shows {start!r}"


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
