"""The report of a demo as one self-contained HTML file: no server, no network, no libraries."""

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lwd.errors import InputError, nearest
from lwd.io.files import write_bytes

FORMAT, VERSION = "lwd.report", 1
PAGE = Path(__file__).parent / "page"
ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
"""JSON escapes for characters that could end a script element or open a comment in it."""


class Kind(NamedTuple):
    """A check of a value in the story, and a description of allowed values."""

    accepts: Callable[[Any], bool]
    words: str


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


TEXT = Kind(lambda value: isinstance(value, str), "a string")
FLAG = Kind(lambda value: isinstance(value, bool), "true or false")
NUMBER = Kind(_is_number, "a finite number")
MAYBE = Kind(lambda value: value is None or _is_number(value), "a finite number or null")
IMAGE = Kind(
    lambda value: isinstance(value, str) and value.startswith("data:image/"), "a picture as data:image/... URI"
)
BETTER = Kind(lambda value: value in ("lower", "higher", None), "'lower', 'higher' or null")
CELL = Kind(
    lambda value: (
        isinstance(value, str)
        or (isinstance(value, Mapping) and all(MAYBE.accepts(value.get(key)) for key in ("value", "error")))
    ),
    "a string or {value, error}",
)
TIMES = {str: [NUMBER]}

NEEDED: dict[str, Any] = {
    "format": TEXT,
    "version": NUMBER,
    "title": TEXT,
    "lead": TEXT,
    "findings": [TEXT],
    "about": {str: TEXT},
    "encoders": [{"name": TEXT, "text": TEXT}],
    "commands": [{"command": TEXT, "text": TEXT}],
    "groups": [TEXT],
    "lead_group": TEXT,
    "curves": {"tau": [NUMBER], "schedules": [{"name": TEXT, "times": TIMES, "learned": FLAG}], "caption": TEXT},
    "table": {
        "columns": [{"key": TEXT, "title": TEXT, "better": BETTER, "help": TEXT}],
        "rows": [{"name": TEXT, "cells": {str: CELL}}],
        "caption": TEXT,
    },
}
POINT = {"lambda": NUMBER, "times": TIMES, "collapsed": FLAG, "floor": MAYBE, "error": MAYBE}
SECTIONS: dict[str, Any] = {
    "path": {
        "tau": [NUMBER],
        "points": [{**POINT, "objective": NUMBER, "flow": NUMBER, "energy": NUMBER}],
        "threshold": MAYBE,
        "weakest": MAYBE,
        "chosen": MAYBE,
        "caption": TEXT,
    },
    "surfaces": {
        "axis": [NUMBER],
        "x": TEXT,
        "y": TEXT,
        "panels": [{"title": TEXT, "values": [[NUMBER]]}],
        "caption": TEXT,
    },
    "trajectory": {"tau": [NUMBER], "runs": [{"name": TEXT, "label": TEXT, "times": TIMES}], "caption": TEXT},
    "grids": {
        "names": [TEXT],
        "items": [{"name": TEXT, "variant": TEXT, "image": IMAGE, "alt": TEXT}],
        "caption": TEXT,
    },
    "losses": {"runs": [{"name": TEXT, "step": [NUMBER], "value": [NUMBER]}], "y": TEXT, "caption": TEXT},
}
"""Optional sections: the page leaves them out if they are null or missing in the story."""


def render(story: Mapping[str, Any]) -> str:
    """Render a story (see `NEEDED` and `SECTIONS` for its contents) as an HTML page."""
    check_story(story)
    parts = {
        "style": (PAGE / "page.css").read_text("utf-8"),
        "script": script(),
        "story": _embedded(story),
    }
    template = (PAGE / "page.html").read_text("utf-8")
    return re.sub(r"\{\{ (\w+) \}\}", lambda found: parts[found[1]], template)


def script() -> str:
    """The page's script: drawing, which the studio shares, and the report itself."""
    return "\n".join((PAGE / name).read_text("utf-8") for name in ("draw.js", "page.js"))


def write_report(story: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write the page of a story to `path`, atomically."""
    write_bytes(path, render(story).encode())


def check_story(story: Mapping[str, Any]) -> None:
    """Raise an error if a story is invalid; the message names the place and the allowed values."""
    for key in story:
        if key not in NEEDED and key not in SECTIONS:
            raise InputError(f"there is no {key!r} in a story; {nearest(str(key), [*NEEDED, *SECTIONS])}")
    _check(story, NEEDED, "story")
    for name, shape in SECTIONS.items():
        if story.get(name) is not None:
            _check(story[name], shape, f"story.{name}")
    if (story["format"], story["version"]) != (FORMAT, VERSION):
        given = f"{story['format']!r} version {story['version']}"
        raise InputError(f"the format of the story is {given}, but this lwd needs {FORMAT!r} version {VERSION}")
    groups = story["groups"]
    if len(groups) != 2 or len(set(groups)) != 2 or story["lead_group"] not in groups:
        raise InputError(f"a report needs two groups, one of them the lead; got {groups}, {story['lead_group']!r}")
    for section, key in (("curves", "schedules"), ("path", "points"), ("trajectory", "runs")):
        if story.get(section) is not None:
            _check_clocks(story[section], key, f"story.{section}", groups)
    if story.get("trajectory") is not None:
        _check_pictures(story["trajectory"], groups)
    if story.get("surfaces") is not None:
        _check_surfaces(story["surfaces"], groups)
    if story.get("losses") is not None:
        if not story["losses"]["runs"]:
            raise InputError("story.losses.runs is empty; set story.losses to null to leave the section out")
        for i, run in enumerate(story["losses"]["runs"]):
            _same_length(run["value"], run["step"], f"story.losses.runs[{i}].value", "step")


def _check(value: Any, shape: Any, where: str) -> None:
    if isinstance(shape, Kind):
        if not shape.accepts(value):
            raise InputError(f"{where} should be {shape.words}, got {_brief(value)}")
    elif isinstance(shape, list):
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise InputError(f"{where} should be a list, got {_brief(value)}")
        for i, item in enumerate(value):
            _check(item, shape[0], f"{where}[{i}]")
    else:
        if not isinstance(value, Mapping):
            raise InputError(f"{where} should be an object, got {_brief(value)}")
        open_ended = shape.get(str)
        for key in value if open_ended else shape:
            if key not in value:
                raise InputError(f"{where} lacks {key!r}; it needs {', '.join(shape)}")
            _check(value[key], open_ended or shape[key], f"{where}.{key}")


def _check_clocks(section: Mapping[str, Any], key: str, where: str, groups: Sequence[str]) -> None:
    """Check that every schedule has a time of each group for each tau."""
    if not section[key]:
        raise InputError(f"{where}.{key} is empty; it needs at least one")
    for i, item in enumerate(section[key]):
        for group in groups:
            place = f"{where}.{key}[{i}].times"
            if group not in item["times"]:
                raise InputError(f"{place} lacks {group!r}; it needs {', '.join(groups)}")
            _same_length(item["times"][group], section["tau"], f"{place}.{group}", "tau")


def _check_pictures(trajectory: Mapping[str, Any], groups: Sequence[str]) -> None:
    for i, run in enumerate(trajectory["runs"]):
        for group in groups:
            _check(run, {group: [IMAGE]}, f"story.trajectory.runs[{i}]")
            _same_length(run[group], trajectory["tau"], f"story.trajectory.runs[{i}].{group}", "tau")


def _check_surfaces(surfaces: Mapping[str, Any], groups: Sequence[str]) -> None:
    if {surfaces["x"], surfaces["y"]} != set(groups):
        raise InputError(f"story.surfaces.x and .y should be the groups {groups}")
    for i, panel in enumerate(surfaces["panels"]):
        for row in (panel["values"], *panel["values"]):
            _same_length(row, surfaces["axis"], f"story.surfaces.panels[{i}].values", "axis")


def _same_length(values: Sequence[Any], like: Sequence[Any], where: str, what: str) -> None:
    if len(values) != len(like) or not len(like):
        raise InputError(
            f"{where} has {len(values)} values for {len(like)} of {what}; the numbers must be equal and at least 1"
        )


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _embedded(story: Mapping[str, Any]) -> str:
    """Encode a story as JSON that is safe inside a script element, in plain ASCII."""
    try:
        text = json.dumps(story, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InputError(f"the story is not plain JSON: {error}") from error
    return re.sub("[<>&]", lambda found: ESCAPES[found[0]], text)
