"""Options from settings records, which define names, types, choices, defaults and help texts."""

import argparse
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from lwd.errors import InputError
from lwd.io.records import Record

METAVARS = {int: "N", float: "X", str: "NAME"}


def add_settings(parser: Any, kind: type[Record], *names: str, **metavars: str) -> None:
    """Add an option `--name` for each named field of a record; metavars: placeholders for values in the help."""
    for name in names:
        field = kind.model_fields[name]
        base, choices = _type(field.annotation)
        text = (field.description or name).rstrip(".")
        text = text if text[:2].isupper() else text[0].lower() + text[1:]
        options: dict[str, Any] = {"dest": name, "default": None}
        if base is bool:
            options["action"] = "store_true"
        else:
            options |= {"type": base, "choices": choices}
            if choices is None:
                options["metavar"] = metavars.get(name, METAVARS[base])
            if field.default not in (None, "", ()) and "default" not in text:
                text += f" (default {field.default:g})" if base is float else f" (default {field.default})"
        parser.add_argument(f"--{name.replace('_', '-')}", help=text.replace("%", "%%"), **options)


def _type(annotation: Any) -> tuple[Any, tuple[str, ...] | None]:
    """Return the plain type of an annotation, and its choices."""
    if get_origin(annotation) is Annotated:
        return _type(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return str, get_args(annotation)
    if get_origin(annotation) in (Union, types.UnionType):
        return _type(next(part for part in get_args(annotation) if part is not type(None)))
    return annotation, None


def given(arguments: argparse.Namespace, kind: type[Record]) -> dict[str, Any]:
    """Return the fields of a record that the command line set."""
    found = {name: getattr(arguments, name, None) for name in kind.model_fields}
    return {name: value for name, value in found.items() if value is not None}


def flags_of(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> Mapping[str, str]:
    """Map the arguments of the called command to their flags."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            chosen = getattr(arguments, action.dest, None)
            if chosen in action.choices:
                return flags_of(action.choices[chosen], arguments)
    return {action.dest: action.option_strings[0] for action in parser._actions if action.option_strings}


def parse_grid(text: str) -> tuple[int, int]:
    """`8x16` -> (8, 16)."""
    rows, _, columns = text.partition("x")
    if not (rows.isdecimal() and columns.isdecimal() and int(rows) and int(columns)):
        raise InputError(f"expected a grid such as 8x8, with at least 1 row and column, got {text!r}", argument="grid")
    return int(rows), int(columns)


def parse_numbers(text: str, argument: str) -> list[float]:
    """`0.01,0.02` -> [0.01, 0.02]."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"expected numbers such as 0.01,0.02, got {text!r}", argument=argument) from None


def by_group(argument: str, text: str, value: Callable[[str, str], Any]) -> Any:
    """Parse one value for all groups, or `group=value,...`."""
    if "=" not in text:
        return value(argument, text)
    pairs = [part.partition("=") for part in text.split(",")]
    return {name.strip(): value(argument, rest) for name, _, rest in pairs}


def parse_number(argument: str, text: str) -> float:
    """`1.5`."""
    try:
        return float(text)
    except ValueError:
        example = "a number such as 1.5, or texture=1.5,semantic=1.2"
        raise InputError(f"expected {example}, got {text!r}", argument=argument) from None


def parse_interval(argument: str, text: str) -> tuple[float, float]:
    """`0.2:0.8`."""
    low, colon, high = text.partition(":")
    if not colon or ":" in high:
        raise InputError(f"expected LOW:HIGH such as 0.2:0.8, or texture=0.2:0.8, got {text!r}", argument=argument)
    return parse_number(argument, low), parse_number(argument, high)
