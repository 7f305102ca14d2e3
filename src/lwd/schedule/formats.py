"""The schedule file: one record per kind."""

from typing import Any, ClassVar, Literal

from lwd.io.records import Field, FileRecord
from lwd.schedule.base import Schedule
from lwd.schedule.fixed import Cascade, Offset, PiecewiseLinear, Synchronous
from lwd.schedule.learned import Bernstein, Polynomial


class ScheduleFile(FileRecord):
    """A schedule: data, never code. Floats round-trip bit for bit."""

    format: Literal["lwd.schedule"] = "lwd.schedule"
    version: Literal[1] = 1
    kind: str
    """Family of the schedule."""
    groups: list[str]
    """Group names in channel order."""
    provenance: dict[str, Any] = Field(default_factory=dict)
    """How the schedule was found; does not affect the curve."""

    what: ClassVar[str] = "a schedule"

    def build(self) -> Schedule:
        """Build the schedule; learned ones are frozen."""
        raise NotImplementedError


class SynchronousFile(ScheduleFile):
    """All groups on the global clock."""

    kind: Literal["synchronous"] = "synchronous"

    def build(self) -> Schedule:
        return Synchronous(tuple(self.groups))


class OffsetFile(ScheduleFile):
    """One group runs ahead of the others by a fixed time (SFD)."""

    kind: Literal["offset"] = "offset"
    lead: str
    """The group that leads."""
    delta: float
    """How far ahead it runs, in (0, 1)."""

    def build(self) -> Schedule:
        return Offset(self.delta, tuple(self.groups), self.lead)


class CascadeFile(ScheduleFile):
    """One group after another."""

    kind: Literal["cascade"] = "cascade"
    order: list[str]
    """The groups in the order they run."""
    handover: float = 1.0
    """The time at which each waits for the others."""

    def build(self) -> Schedule:
        return Cascade(tuple(self.groups), tuple(self.order), self.handover)


class PiecewiseLinearFile(ScheduleFile):
    """Straight lines between knots."""

    kind: Literal["piecewise_linear"] = "piecewise_linear"
    tau: list[float]
    """Increasing knots from 0 to 1."""
    times: dict[str, list[float]]
    """The non-decreasing times of each group at the knots."""

    def build(self) -> Schedule:
        return PiecewiseLinear(self.tau, self.times, groups=self.groups)


class LearnedFile(ScheduleFile):
    """A learned curve."""

    lead: str
    """The group that leads."""
    degree: int
    """Degree of the family: the highest power of the rate, or the number of increments."""
    rho: dict[str, list[float]]
    """Parameters of each group that is not the lead."""


class PolynomialFile(LearnedFile):
    """The paper's family: degree + 1 parameters."""

    kind: Literal["polynomial"] = "polynomial"

    def build(self) -> Schedule:
        return Polynomial(self.rho, self.groups, self.lead, self.degree).freeze()


class BernsteinFile(LearnedFile):
    """Bernstein curves: as many parameters as increments."""

    kind: Literal["bernstein"] = "bernstein"
    convex: bool
    """Whether the increments grow."""

    def build(self) -> Schedule:
        return Bernstein(self.rho, self.groups, self.lead, self.degree, self.convex).freeze()


KINDS: dict[str, type[ScheduleFile]] = {
    str(kind.model_fields["kind"].default): kind
    for kind in (SynchronousFile, OffsetFile, CascadeFile, PiecewiseLinearFile, PolynomialFile, BernsteinFile)
}
