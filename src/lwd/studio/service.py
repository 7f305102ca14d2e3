"""What the page asks for: plain JSON in, plain JSON out. Nothing of one user's request is kept for another."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import torch

from lwd.errors import InputError, nearest
from lwd.schedule.base import Schedule
from lwd.schedule.fixed import Cascade, Offset, Synchronous
from lwd.studio.comparing import Judge, check_compared, compare
from lwd.studio.drawing import sample
from lwd.studio.jobs import Desk, Job
from lwd.studio.landscape import LAMBDAS, Landscape, pairs
from lwd.studio.models import Catalog, Model
from lwd.studio.settings import COMPARED, COUNT, KNOTS, STEPS, StudioSettings
from lwd.studio.state import Side, StudioFile, from_link, knots_of, read_schedule, read_state, to_link
from lwd.studio.takeaway import takeaway
from lwd.surfaces.family import fitted_to, parse_family

TAU = tuple(k / 60 for k in range(61))
SMOOTH = "monotone:8"
"""The family of smooth curves that a drawn one can be replaced by."""
SOLVERS = ("heun", "euler", "midpoint", "rk4", "ab2", "ab3", "abm", "dopri5")


class Studio:
    """The service behind a page; safe for many users, because requests carry their whole state."""

    def __init__(self, settings: StudioSettings) -> None:
        self.catalog, self.desk = Catalog(settings), Desk()
        self.answers: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "names": lambda _: {"models": self.catalog.names},
            "open": self.open,
            "reopen": self.reopen,
            "curve": self.curve,
            "maps": self.maps,
            "takeaway": self.takeaway,
        }
        self.works: dict[str, Callable[[Mapping[str, Any]], Callable[[Job], Any]]] = {
            "sample": self.sample,
            "compare": self.compare,
            "solve": self.solve,
            "smooth": self.smooth,
        }

    @cached_property
    def judge(self) -> Judge:
        return Judge()

    def answer(self, name: str, value: Any) -> dict[str, Any]:
        """Answer a quick request."""
        return self.answers[_known(name, self.answers)](_mapping(value))

    def run(self, name: str, user: str, value: Any) -> Iterator[dict[str, Any]]:
        """Queue a computation of a user; see `Desk.run`."""
        work = self.works[_known(name, self.works)](_mapping(value))
        return self.desk.run(user, work)

    def open(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Everything that the page needs to know about a model, and a first state."""
        model = self.catalog.open(value.get("model") or self.catalog.names[0])
        checkpoint = model.pipe.checkpoint
        start = Side(schedule=model.own.to_dict())
        other = Side(schedule=Synchronous(model.groups).to_dict())
        found = model.landscape.found if model.landscape is not None else None
        kinetic = None if found is None else found.chosen or found.points[0].kinetic
        state = StudioFile(
            model=model.entry.name,
            label="bag" if "bag" in model.classes else model.classes[0],
            kinetic=kinetic,
            a=start,
            b=other,
        )
        return {
            "models": self.catalog.names,
            "model": model.entry.name,
            "groups": list(model.groups),
            "lead": pairs(model.groups)[0][0] if len(model.groups) > 1 else model.groups[0],
            "classes": list(model.classes),
            "guides": ["null", *self.catalog.guides(model)]
            if checkpoint.config.null_row
            else self.catalog.guides(model),
            "solvers": SOLVERS,
            "placements": ["tau", *model.groups, "optimised"],
            "decoded": model.pipe.decoded if model.pipe.autoencoder is not None else None,
            "judged": model.judged,
            "any_schedule": checkpoint.any_schedule,
            "surfaces": model.landscape is not None,
            "path": _path(model.landscape),
            "limits": {"count": COUNT, "steps": STEPS, "compared": COMPARED, "knots": KNOTS},
            "state": state.to_dict(),
        }

    def reopen(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """The state of a link, with its model."""
        state = from_link(value.get("link", ""))
        opened = self.open({"model": state.model})
        for side in state.sides().values():
            read_schedule(side.schedule, opened["groups"])
        return opened | {"state": state.to_dict()}

    def curve(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """A preset or a drawn schedule: its clocks, its points, and its numbers on the surfaces."""
        model = self.catalog.open(str(value.get("model", "")))
        schedule = self._schedule(model, value)
        side = Side(schedule={}, steps=value.get("steps", 10), solver=value.get("solver", "heun"))
        kinetic = StudioFile.parse(
            {"format": "lwd.studio", "version": 1, "model": "", "lambda": value.get("lambda")}
            | {"a": side.to_dict(), "b": side.to_dict()}
        ).kinetic
        times = schedule.times(torch.tensor(TAU, dtype=torch.float64)).detach()
        trained, text = model.trained(schedule)
        numbers: dict[str, float | None] = {}
        if model.landscape is not None:
            numbers = model.landscape.numbers(schedule, kinetic, side.steps, side.order)
        return {
            "schedule": schedule.to_dict(),
            "tau": [round(tau, 5) for tau in TAU],
            "times": {g: [round(t, 5) for t in times[:, i].tolist()] for i, g in enumerate(schedule.groups)},
            "knots": knots_of(schedule),
            "pieces": len(schedule.breakpoints) + 1,
            "numbers": numbers,
            "trained": trained,
            "text": text,
        }

    def _schedule(self, model: Model, value: Mapping[str, Any]) -> Schedule:
        preset = value.get("preset")
        if preset is None:
            return read_schedule(value.get("schedule"), model.groups)
        if preset == "learned":
            found = model.landscape.found if model.landscape is not None else None
            best = found.at(value.get("lambda", -1)) if found is not None else None
            if best is None:
                raise InputError("no curve was learned for this lambda; solve for every lambda first")
            return best.schedule
        makers: dict[str, Callable[[], Schedule]] = {
            "model": lambda: model.own,
            "synchronous": lambda: Synchronous(model.groups),
            "offset": lambda: Offset(value.get("delta", 0.3), model.groups),
            "cascade": lambda: Cascade(model.groups),
        }
        return makers[_known(preset, makers)]()

    def maps(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Heat maps of the surfaces."""
        held = value.get("held", 0.5)
        if isinstance(held, bool) or not isinstance(held, int | float) or not 0 <= held <= 1:
            raise InputError(f"the other clocks stand at a time from 0 to 1, got {str(held)[:40]}")
        return _landscape(self.catalog.open(str(value.get("model", "")))).panels(held)

    def takeaway(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Schedule file, command, Python lines and link of a state."""
        state = read_state(value.get("state"))
        return {name: takeaway(self.catalog, state, name) for name in state.sides()} | {"link": to_link(state)}

    def sample(self, value: Mapping[str, Any]) -> Callable[[Job], Any]:
        state, names = read_state(value.get("state")), value.get("sides", ["A", "B"])
        if names not in (["A"], ["B"], ["A", "B"]):
            raise InputError("sides must be A, B or both")
        return lambda job: sample(self.catalog, state, names, job)

    def compare(self, value: Mapping[str, Any]) -> Callable[[Job], Any]:
        state, count = read_state(value.get("state")), check_compared(value.get("count"))
        return lambda job: compare(self.catalog, state, count, self.judge, job)

    def solve(self, value: Mapping[str, Any]) -> Callable[[Job], Any]:
        landscape = _landscape(self.catalog.open(str(value.get("model", ""))))

        def work(job: Job) -> Any:
            job.stage(0.0, 1.0, f"the best curve for {len(LAMBDAS)} values of \u03bb")
            done = 0

            def advance(count: int) -> None:
                nonlocal done
                done += count
                job.report(done / len(LAMBDAS))

            landscape.solve(advance, lambda: job.report(done / len(LAMBDAS)))
            return _path(landscape)

        return work

    def smooth(self, value: Mapping[str, Any]) -> Callable[[Job], Any]:
        model = self.catalog.open(str(value.get("model", "")))
        schedule = read_schedule(value.get("schedule"), model.groups)

        def work(job: Job) -> Any:
            job.stage(0.0, 1.0, "fitting a smooth curve")
            family = parse_family(SMOOTH, model.groups)
            return fitted_to(family, schedule, watch=lambda: job.report(0.5)).to_dict()

        return work


def _path(landscape: Landscape | None) -> dict[str, Any] | None:
    """The lambdas for which the best curve is known."""
    if landscape is None or landscape.found is None:
        return None
    found = landscape.found
    points = [{"lambda": p.kinetic, "collapsed": p.collapsed, "floor": p.floor} for p in found.points]
    return {"points": points, "threshold": found.threshold, "chosen": found.chosen}


def _landscape(model: Model) -> Landscape:
    if model.landscape is None:
        raise InputError("the model has no loss surfaces; run lwd probe --method surface, or lwd surfaces measure")
    return model.landscape


def _known(name: Any, known: Mapping[str, Any]) -> str:
    if not isinstance(name, str) or name not in known:
        raise InputError(f"there is no {str(name)[:40]!r}; {nearest(str(name)[:40], known)}")
    return name


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"a request is an object with keys, got {type(value).__name__}")
    return value
