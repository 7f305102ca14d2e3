"""The messages that docs/troubleshooting.md quotes are those of the source."""

import ast
import re
from functools import cache

import pytest

from commands import FENCE, ROOT


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
