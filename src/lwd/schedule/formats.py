"""The schedule file: one record per kind."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from lwd.io.records import FileRecord
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

    def build(self) -> Schedule:
        return Cascade(tuple(self.groups), tuple(self.order))


class PiecewiseLinearFile(ScheduleFile):
    """Straight lines between knots."""

    kind: Literal["piecewise_linear"] = "piecewise_linear"
    tau: list[float]
    """Increasing knots from 0 to 1."""
    times: dict[str, list[float]]
    """The non-decreasing times of each group at the knots."""

    def build(self) -> Schedule:
        return PiecewiseLinear(self.tau, self.times, groups=self.groups)


class PolynomialFile(ScheduleFile):
    """The paper's family."""

    kind: Literal["polynomial"] = "polynomial"
    lead: str
    """The group that leads."""
    degree: int
    """M, the highest power of the rate."""
    rho: dict[str, list[float]]
    """M + 1 numbers for each group that is not the lead."""

    def build(self) -> Schedule:
        return Polynomial(self.rho, groups=self.groups, lead=self.lead, degree=self.degree).freeze()


class BernsteinFile(ScheduleFile):
    """Bernstein curves."""

    kind: Literal["bernstein"] = "bernstein"
    lead: str
    """The group that leads."""
    degree: int
    """Number of increments."""
    convex: bool
    """Whether the increments increase."""
    rho: dict[str, list[float]]
    """`degree` numbers for each group that is not the lead."""

    def build(self) -> Schedule:
        return Bernstein(self.rho, groups=self.groups, lead=self.lead, degree=self.degree, convex=self.convex).freeze()


KINDS: dict[str, type[ScheduleFile]] = {
    str(kind.model_fields["kind"].default): kind
    for kind in (SynchronousFile, OffsetFile, CascadeFile, PiecewiseLinearFile, PolynomialFile, BernsteinFile)
}
