"""The public names and their signatures, kept as a snapshot: a change here is a change for users.

To accept one: python tests/test_public_api.py, then say so in CHANGELOG.md and docs/.
"""

import ast
import inspect
from pathlib import Path

import lwd

SNAPSHOT = Path(__file__).parent / "snapshots" / "public_api.txt"


def describe() -> str:
    lines = []
    for name in sorted(lwd.__all__):
        value = getattr(lwd, name)
        if inspect.isclass(value):
            lines.append(f"class {name}{signature(value)}")
            for member, item in sorted(inspect.getmembers(value)):
                inherited = member in dir(__import__("torch").nn.Module)
                if member.startswith("_") or inherited or getattr(item, "__module__", "lwd").split(".")[0] != "lwd":
                    continue
                lines.append(f"    {member}{signature(item) if callable(item) else ''}")
        elif callable(value):
            lines.append(f"def {name}{signature(value)}")
        else:
            lines.append(f"{name}: {type(value).__name__}")
    return "\n".join(lines) + "\n"


def signature(value) -> str:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return ""
    parts, starred = [], False
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not starred:
            parts.append("*")
        starred = starred or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        parts.append(stars + p.name + ("" if p.default is p.empty else f"={p.default!r}"))
    return f"({', '.join(parts)})"


def test_public_api_is_the_snapshot():
    assert describe() == SNAPSHOT.read_text()


def test_lazy_names_typed_names_and_all_agree():
    """Oracle: the TYPE_CHECKING block, read as text."""
    tree = ast.parse(Path(lwd.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.name: node.module for node in block.body for alias in node.names}
    assert {**typed, "__version__": "lwd.version"}.keys() == set(lwd.__all__)
    for name, module in typed.items():
        assert f"lwd.{lwd._MODULE_OF[name]}" == module
    assert lwd.__all__ == sorted(lwd.__all__)
    assert dir(lwd) == lwd.__all__


def test_every_public_name_has_a_docstring():
    for name in lwd.__all__:
        if name != "__version__":
            assert inspect.getdoc(getattr(lwd, name)), name


if __name__ == "__main__":
    SNAPSHOT.parent.mkdir(exist_ok=True)
    SNAPSHOT.write_text(describe())
