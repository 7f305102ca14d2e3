"""What a user takes away: the schedule file, the command and the Python lines that draw the same images."""

import shlex
from typing import Any

from lwd.schedule.base import Schedule
from lwd.schedule.fixed import Cascade, Offset, Synchronous
from lwd.studio.models import Catalog, Model
from lwd.studio.state import Side, StudioFile, read_schedule, sample_settings

FILE = "schedule.json"
LINES = """\
from lwd.sampling.generator import open_generator
from lwd.sampling.settings import SampleSettings

settings = SampleSettings({settings})
generator = open_generator({model}{options})
pixels, evaluations = generator.draw(0, {count}, generator.solver())
"""


def word_of(schedule: Schedule) -> str | None:
    """The word that names a schedule on the command line, if there is one."""
    words: dict[str, Schedule] = {"synchronous": Synchronous(schedule.groups), "cascade": Cascade(schedule.groups)}
    if isinstance(schedule, Offset):
        words[f"offset:{schedule.delta!r}"] = Offset(schedule.delta, schedule.groups)
    return next((word for word, other in words.items() if other == schedule), None)


def takeaway(catalog: Catalog, state: StudioFile, name: str) -> dict[str, Any]:
    """Schedule, command and Python lines of one setting."""
    model, side = catalog.open(state.model), state.sides()[name]
    schedule = read_schedule(side.schedule, model.groups)
    settings = sample_settings(state, side, catalog.settings.threads)
    flags, options = _which(catalog, model, schedule, side)
    return {
        "file": FILE,
        "schedule": schedule.to_dict(),
        "needs_file": FILE in flags,
        "command": shlex.join([*flags, *_settings(settings.to_dict()), "--out", "samples"]),
        "python": _python(model, options, settings, state.count),
    }


def _which(catalog: Catalog, model: Model, schedule: Schedule, side: Side) -> tuple[list[str], dict[str, Any]]:
    """Flags and Python options that name model, schedule, guide and decoder."""
    flags, options = ["lwd", "sample", "--model", model.entry.name], dict[str, Any]()
    if side.guide:
        flags += ["--guide", side.guide]
        options["guide"] = side.guide
    if model.entry.decoder is not None:
        flags += ["--decoder", model.entry.decoder]
        options["decoder"] = model.entry.decoder
    weak = catalog.open(side.guide) if side.guide not in ("", "null") else None
    if schedule != model.own or (weak is not None and schedule != weak.own):
        spec = word_of(schedule) or FILE
        flags += ["--schedule", spec]
        options["schedule"] = spec
        if not all(one.pipe.checkpoint.any_schedule or one.own == schedule for one in (model, weak) if one is not None):
            flags.append("--other-schedule")
            options["other_schedule"] = True
    return flags, options


def _settings(values: dict[str, Any]) -> list[str]:
    """Settings as flags."""
    flags = ["--count", str(values["count"]), "--seed", str(values["seed"])]
    if values["labels"]:
        flags += ["--label", str(values["labels"][0])]
    for name in ("solver", "steps", "placement", "scale", "interval"):
        value = values.get(name)
        if value is not None and (name, value) != ("placement", "tau"):
            flags += [f"--{name}", _typed(value)]
    return flags if values["threads"] == 2 else [*flags, "--threads", str(values["threads"])]


def _typed(value: Any) -> str:
    """A value as it is typed: 1.5, 0.2:0.8, texture=1.5,semantic=1.2."""
    if isinstance(value, dict):
        return ",".join(f"{name}={_typed(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ":".join(map(repr, value))
    return value if isinstance(value, str) else repr(value)


def _python(model: Model, options: dict[str, Any], settings: Any, count: int) -> str:
    names = ("count", "seed", "labels", "solver", "steps", "placement", "scale", "interval", "threads")
    kept = {name: getattr(settings, name) for name in names if getattr(settings, name) is not None}
    plain = ", ".join(f"{name}={value!r}" for name, value in kept.items() if value != ())
    more = "".join(f", {name}={value!r}" for name, value in options.items())
    return LINES.format(settings=plain, model=repr(model.entry.name), options=f", settings{more}", count=count)
