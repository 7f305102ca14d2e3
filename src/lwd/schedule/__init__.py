"""Schedules: one clock per group, all driven by the global time tau."""

from lwd.schedule.base import Schedule
from lwd.schedule.fixed import Cascade, Offset, PiecewiseLinear, Synchronous
from lwd.schedule.io import load_schedule, parse_schedule, save_schedule, schedule_from_dict
from lwd.schedule.learned import Bernstein, Learnable, Polynomial, RhoAverage

__all__ = [
    "Bernstein",
    "Cascade",
    "Learnable",
    "Offset",
    "PiecewiseLinear",
    "Polynomial",
    "RhoAverage",
    "Schedule",
    "Synchronous",
    "load_schedule",
    "parse_schedule",
    "save_schedule",
    "schedule_from_dict",
]
