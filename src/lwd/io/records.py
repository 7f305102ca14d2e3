"""Typed records: every group of settings and every JSON format is described once, as a class.

pydantic validates, writes and documents them; an error is one line that names the key, what was given and what is
allowed. Settings records do not import torch, so that the command line can take its defaults from them.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lwd.errors import InputError, nearest
from lwd.io.files import read_json, write_json

__all__ = ["Field", "FileRecord", "Record", "explain"]
WANTED = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a string",
    "finite_number": "a finite number",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a table of names and values",
    "model_type": "a section with keys",
    "model_attributes_type": "a section with keys",
}
BOUNDS = {"greater_than": ">", "greater_than_equal": ">=", "less_than": "<", "less_than_equal": "<="}
BOUND_KEYS = {"greater_than": "gt", "greater_than_equal": "ge", "less_than": "lt", "less_than_equal": "le"}


class Record(BaseModel):
    """An immutable record whose fields are checked on creation. The text below a field documents it."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        populate_by_name=True,
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InputError(*explain(error, type(self))) from None

    # pydantic would otherwise call __init__ for nested records too, and their errors would not name the section.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def parse(cls, value: Any, where: str = "") -> Self:
        """Build a record from parsed JSON or YAML; error messages start with `where` (a file name)."""
        try:
            # Through JSON: in strict mode only JSON lists are accepted for tuples.
            return cls.model_validate_json(json.dumps(value))
        except ValidationError as error:
            message, argument = explain(error, cls)
        except (TypeError, ValueError, RecursionError) as error:
            message, argument = f"cannot be read as JSON ({error})", ""
        raise InputError(f"{where}: {message}" if where else message, argument)

    def changed(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, checked again."""
        return type(self)(**{**{name: getattr(self, name) for name in type(self).model_fields}, **changes})

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return self.model_dump(mode="json", by_alias=True)


class FileRecord(Record):
    """The content of a JSON file with `format` and `version`; subclasses narrow both to literals."""

    format: str
    version: int = 1

    what: ClassVar[str] = ""
    """What the file contains, for error messages: "a schedule"."""

    @classmethod
    def format_name(cls) -> str:
        """The value of `format`."""
        return str(cls.model_fields["format"].default)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read and check a file; errors name it."""
        return cls.check(read_json(path), str(path))

    @classmethod
    def check(cls, value: Any, where: str) -> Self:
        """Check parsed JSON: first its format, then its version, then its keys."""
        given = value.get("format") if isinstance(value, Mapping) else type(value).__name__
        if given != cls.format_name():
            raise InputError(f'{where} is not {cls.what}: "format" must be "{cls.format_name()}", got {given!r}')
        known = get_args(cls.model_fields["version"].annotation) or (1,)
        version = value.get("version")
        if type(version) is not int or version < 1:
            raise InputError(f'{where}: "version" must be an integer >= 1, got {version!r}')
        if version not in known:
            raise InputError(
                f"{where} has version {version}, but this lwd reads up to version {max(known)}; update lwd"
            )
        return cls.parse(value, where)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, ready for JSON; optional keys that are empty are left out."""
        empty = {n for n, f in type(self).model_fields.items() if not f.is_required() and _is_empty(getattr(self, n))}
        return self.model_dump(mode="json", by_alias=True, exclude=empty)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file atomically."""
        write_json(Path(path), self.to_dict())


def explain(error: ValidationError, kind: type[BaseModel]) -> tuple[str, str]:
    """Describe the first validation error in one line, and return the name of its field."""
    problem = error.errors(include_url=False)[0]
    place = [part for part in problem["loc"] if part != "[key]"]
    where = ".".join(map(str, place)) or kind.__name__
    argument = ".".join(str(part) for part in place if not isinstance(part, int))
    code, given, context = problem["type"], _short(problem.get("input")), problem.get("ctx", {})
    if code == "value_error":
        inner = context.get("error")
        return str(inner), getattr(inner, "argument", "") or (argument if place else "")
    if code == "extra_forbidden":
        return f"there is no {where}; {nearest(str(place[-1]), _keys(kind, place[:-1]))}", ""
    if code == "missing":
        return f"{where} is missing", argument
    if code == "literal_error":
        return f"{where} must be {context['expected']}, got {given}", argument
    if code in BOUNDS:
        return f"{where} must be {BOUNDS[code]} {context[BOUND_KEYS[code]]:g}, got {given}", argument
    if code in WANTED:
        return f"{where} must be {WANTED[code]}, got {given}", argument
    message = problem["msg"]
    return f"{where}: {message[0].lower()}{message[1:]}, got {given}", argument


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | dict) and not value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _keys(kind: Any, place: Iterable[Any]) -> list[str]:
    """Return the field names of the record at `place`."""
    for part in place:
        found = getattr(kind, "model_fields", {}).get(part)
        kind = found.annotation if found is not None else None
    fields = getattr(kind, "model_fields", {})
    return [field.alias or name for name, field in fields.items()]
