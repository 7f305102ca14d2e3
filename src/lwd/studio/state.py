"""The state of a studio page: a model, two settings and the noise they share; as a record and as a link."""

import base64
import binascii
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field

from lwd.errors import InputError
from lwd.io.records import FileRecord, Record
from lwd.sampling.settings import UNIFORM, SampleSettings
from lwd.schedule.base import Schedule
from lwd.schedule.fixed import Knotted
from lwd.schedule.io import schedule_from_dict
from lwd.solver import FIXED_METHODS
from lwd.studio.settings import COUNT, KNOTS, LETTERS, STEPS, VALUES

ORDERS = {"euler": 1, "midpoint": 2, "heun": 2, "ab2": 2}
"""Solvers whose error the surfaces predict."""
Short = Annotated[str, Field(max_length=500)]


class Side(Record):
    """One of the two settings: a schedule, a solver and guidance."""

    schedule: dict[str, Any]
    """The schedule, as in a schedule file."""
    solver: Literal["euler", "midpoint", "heun", "rk4", "ab2", "ab3", "abm", "dopri5"] = "heun"
    """Solver."""
    steps: Annotated[int, Field(ge=1, le=STEPS)] = 10
    """Number of steps; dopri5 chooses its own."""
    placement: Short = UNIFORM
    """Where the steps are placed."""
    guide: Short = ""
    """Empty: no guidance; null: the model without the label; or the name of a weak model."""
    scale: dict[Short, Annotated[float, Field(ge=-20, le=20)]] = Field(default_factory=dict)
    """Guidance scale by group."""
    interval: dict[Short, tuple[float, float]] = Field(default_factory=dict)
    """Local times with guidance, by group."""

    @property
    def order(self) -> int | None:
        """The order of the solver, if its error can be predicted."""
        return ORDERS.get(self.solver)


class StudioFile(FileRecord):
    """The state of a studio page, which a link reopens."""

    format: Literal["lwd.studio"] = "lwd.studio"
    version: Literal[1] = 1
    model: Short
    """Name of the model."""
    label: Short = ""
    """Class by name; empty = all classes."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of the first image; both settings have the same noise."""
    count: Annotated[int, Field(ge=1, le=COUNT)] = 8
    """Number of images."""
    kinetic: Annotated[Annotated[float, Field(ge=0, le=1e6)] | None, Field(alias="lambda")] = None
    """Weight of the kinetic energy, for the distance to the best path."""
    a: Side
    """Setting A."""
    b: Side
    """Setting B."""

    what: ClassVar[str] = "a studio state"

    def sides(self) -> dict[str, Side]:
        return {"A": self.a, "B": self.b}


def read_state(value: Any) -> StudioFile:
    """Check the state that a page sent."""
    if isinstance(value, Mapping):
        for name in ("a", "b"):
            check_size(value.get(name))
    return StudioFile.check(value, "the state")


def check_size(value: Any) -> None:
    """Refuse a schedule with too many numbers before looking at any of them."""
    waiting, seen = [value], 0
    while waiting:
        one = waiting.pop()
        inner = list(one.values()) if isinstance(one, Mapping) else one if isinstance(one, list) else ()
        if isinstance(one, list) and len(one) > KNOTS:
            raise InputError(f"the schedule has a list of {len(one)} points; the studio takes up to {KNOTS}")
        seen += len(inner)
        if seen > VALUES:
            raise InputError(f"the schedule has more than {VALUES} values; the studio takes up to {KNOTS} points")
        waiting += inner


def read_schedule(value: Any, groups: Sequence[str]) -> Schedule:
    """Build the schedule that a page sent, for these groups."""
    check_size(value)
    schedule = schedule_from_dict(value)
    if schedule.groups != tuple(groups):
        raise InputError(
            f"the schedule has the groups {', '.join(schedule.groups)}, but the model has {', '.join(groups)}"
        )
    return schedule


def sample_settings(state: StudioFile, side: Side, threads: int = 2) -> SampleSettings:
    """The settings with which `lwd sample` draws the same images."""
    solving: dict[str, Any] = {"solver": side.solver}
    if side.solver in FIXED_METHODS:
        solving |= {"steps": side.steps, "placement": side.placement}
    guided: dict[str, Any] = {}
    if side.guide:
        guided = {"scale": dict(side.scale) or 1.5, "interval": dict(side.interval) or None}
    # As the command line reads it: a class without a name is a number.
    labels = (int(state.label) if state.label.isdecimal() else state.label,) if state.label else ()
    return SampleSettings(count=state.count, seed=state.seed, labels=labels, threads=threads, **solving, **guided)


def to_link(state: StudioFile) -> str:
    """The state as letters for the end of a URL."""
    text = json.dumps(state.to_dict(), separators=(",", ":"), allow_nan=False)
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def from_link(text: str) -> StudioFile:
    """The state of a link."""
    bad = InputError("the link is not one of the studio's, or it was cut off; copy all of it")
    if not isinstance(text, str) or len(text) > LETTERS:
        raise bad
    try:
        packed = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        unpacker = zlib.decompressobj()
        found = unpacker.decompress(packed, LETTERS)  # never unpacks more than this
        value = json.loads(found) if unpacker.eof else None
    except (ValueError, binascii.Error, zlib.error, RecursionError) as error:
        raise bad from error
    if value is None:
        raise bad
    return read_state(value)


def knots_of(schedule: Schedule, points: int = 9) -> dict[str, Any]:
    """The points by which a curve is dragged: its own knots, or even ones where it has none inside."""
    if isinstance(schedule, Knotted) and len(schedule.knots()[0]) > 2:
        tau, rows = schedule.knots()
        return {"tau": list(tau), "times": {g: list(row) for g, row in zip(schedule.groups, rows, strict=True)}}
    places = torch.linspace(0, 1, points, dtype=torch.float64)
    times = schedule.times(places).detach()
    return {"tau": places.tolist(), "times": {g: times[:, i].tolist() for i, g in enumerate(schedule.groups)}}
