"""Refresh the tables of docs/formats.md from the records: `python tools/make_formats.py` (a test checks them).

A table stands between `<!-- record MODULE:CLASS -->` and `<!-- end -->`; the prose around it is written by hand.
"""

import re
import sys
import types
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from lwd.io.records import Record

PAGE = Path(__file__).parents[1] / "docs" / "formats.md"
BLOCK = re.compile(r"(<!-- record ([\w.]+):(\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
NAMES = {str: "text", int: "integer", float: "number", bool: "true or false", Any: "anything", type(None): "null"}


def render(text: str) -> str:
    """The page with every table made anew."""
    return BLOCK.sub(lambda m: f"{m[1]}{table(getattr(import_module(m[2]), m[3]))}\n{m[4]}", text)


def table(record: type[Record]) -> str:
    """One row for each key of a record."""
    lines = ["| key | value | meaning |", "| --- | --- | --- |"]
    for name, field in record.model_fields.items():
        fixed = get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
        value = _type(field.annotation) + ("" if field.is_required() or fixed else ", optional")
        lines.append(f"| `{field.alias or name}` | {value} | {field.description or ''} |")
    return "\n".join(lines)


def _type(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(parts[0])
    if origin is Literal:
        return " or ".join(f"`{part!r}`".replace("'", '"') for part in parts)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_type(part) for part in parts))
    if origin is list:
        return f"list of {_type(parts[0])}"
    if origin is tuple:
        shown = [part for part in parts if part is not Ellipsis]
        return f"list of {_type(shown[0])}" if len(shown) != len(parts) else f"[{', '.join(map(_type, shown))}]"
    if origin is dict:
        return "object" if parts[1] is Any else f"{_type(parts[1])} by name"
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return "{" + ", ".join(f"`{f.alias or n}`" for n, f in annotation.model_fields.items()) + "}"
    return NAMES.get(annotation, str(annotation))


if __name__ == "__main__":
    before = PAGE.read_text()
    PAGE.write_text(render(before))
    print(f"{PAGE}: {'unchanged' if PAGE.read_text() == before else 'refreshed'}", file=sys.stderr)
