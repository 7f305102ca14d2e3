"""Schedules as JSON files and as words on the command line."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lwd.errors import InputError, nearest
from lwd.groups import PAPER_GROUPS
from lwd.io.files import read_json, write_json
from lwd.schedule.base import Schedule
from lwd.schedule.fixed import Cascade, Offset, Synchronous
from lwd.schedule.formats import KINDS, ScheduleFile, SynchronousFile
from lwd.schedule.learned import Polynomial


def schedule_from_dict(value: Any, where: str = "the schedule") -> Schedule:
    """Build the schedule that `to_dict` described, bit for bit; learned ones are frozen."""
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if isinstance(value, Mapping) and value.get("format") == ScheduleFile.format_name() and str(kind) not in KINDS:
        raise InputError(f"{where}: there is no kind of schedule {kind!r}; {nearest(str(kind), KINDS)}")
    record = KINDS.get(str(kind), SynchronousFile).check(value, where)
    try:
        return record.build()
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def save_schedule(
    schedule: Schedule, path: str | os.PathLike[str], provenance: Mapping[str, Any] | None = None
) -> None:
    """Write `schedule` as JSON, atomically; `provenance` records how it was found and does not affect it."""
    write_json(path, schedule.to_dict() | ({"provenance": dict(provenance)} if provenance else {}))


def load_schedule(path: str | os.PathLike[str]) -> Schedule:
    """Read a schedule file; errors name the file and the key."""
    return schedule_from_dict(read_json(path), str(path))


def read_provenance(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return how the schedule in a file was found; empty for a word, or a file without provenance."""
    value = read_json(path) if os.path.exists(path) else {}
    provenance = value.get("provenance", {}) if isinstance(value, Mapping) else {}
    return dict(provenance) if isinstance(provenance, Mapping) else {}


def parse_schedule(text: str, groups: Sequence[str] | None = None, lead: str | None = None) -> Schedule:
    """Build a schedule from a word (`offset:0.3`, `synchronous`, `cascade`, `cascade:0.9`, `polynomial:6`) or a file.

    groups and lead apply to words; a file has its own, and is rejected if its groups differ.
    """
    word, _, argument = text.partition(":")
    if word in WORDS and (argument or not os.path.isfile(text)):
        names = tuple(PAPER_GROUPS if groups is None else groups)
        return WORDS[word](argument, names, lead)
    if not os.path.exists(text):
        raise InputError(
            f"{text!r} is neither a file nor a schedule word; write offset:0.3, synchronous, cascade, cascade:0.9, "
            "polynomial or the path of a schedule file"
        )
    schedule = load_schedule(text)
    if groups is not None and tuple(groups) != schedule.groups:
        raise InputError(f"{text} has the groups {', '.join(schedule.groups)}, but {', '.join(groups)} were requested")
    if lead is not None and getattr(schedule, "lead", None) != lead:
        leads = getattr(schedule, "lead", "no group")
        raise InputError(f"in {text} {leads} leads, but {lead!r} was requested")
    return schedule


def _word_value(word: str, argument: str, example: str) -> float:
    try:
        return float(argument)
    except ValueError:
        raise InputError(f"{word} needs a number, for example {word}:{example}, got {word}:{argument}") from None


def _word_offset(argument: str, groups: tuple[str, ...], lead: str | None) -> Schedule:
    return Offset(_word_value("offset", argument, "0.3"), groups, lead or "")


def _word_cascade(argument: str, groups: tuple[str, ...], lead: str | None) -> Schedule:
    order = (lead, *(name for name in reversed(groups) if name != lead)) if lead else ()
    return Cascade(groups, order, _word_value("cascade", argument or "1", "0.9"))


def _word_polynomial(argument: str, groups: tuple[str, ...], lead: str | None) -> Schedule:
    if argument and not argument.isdecimal():
        raise InputError(f"polynomial takes a degree, for example polynomial:4, got polynomial:{argument}")
    return Polynomial(groups=groups, lead=lead, degree=int(argument) if argument else None)


def _word_synchronous(argument: str, groups: tuple[str, ...], lead: str | None) -> Schedule:
    if argument:
        raise InputError(f"synchronous takes no value, got synchronous:{argument}")
    if lead is not None:
        raise InputError("synchronous has no lead group; leave the lead out")
    return Synchronous(groups)


WORDS: dict[str, Callable[[str, tuple[str, ...], str | None], Schedule]] = {
    "synchronous": _word_synchronous,
    "offset": _word_offset,
    "cascade": _word_cascade,
    "polynomial": _word_polynomial,
}
