"""Learning When to Denoise: latent diffusion over several representations, each on its own learned clock."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lwd.version import __version__

if TYPE_CHECKING:
    from lwd.checkpoint import Checkpoint, load, save
    from lwd.config import Config, load_config
    from lwd.data.memory import MemoryReader
    from lwd.data.reader import LatentReader
    from lwd.errors import InputError, SolveError
    from lwd.groups import Group, Layout
    from lwd.guidance import AutoGuidance, ClassifierFree
    from lwd.models.exact import Gaussian, GaussianMixture
    from lwd.models.lightningdit import LightningDiT, LightningDiTConfig
    from lwd.objective import FlowObjective, Losses
    from lwd.path import Velocity, interpolate
    from lwd.pipeline import LWDPipeline
    from lwd.probe.surface import fit_schedule, path_objective
    from lwd.representations.statistics import Statistics
    from lwd.representations.texture import TextureAutoencoder
    from lwd.sampler import flow_field, sample, seeded_noise
    from lwd.schedule.base import Schedule
    from lwd.schedule.bernstein import Bernstein
    from lwd.schedule.fixed import Cascade, Offset, PiecewiseLinear, Synchronous
    from lwd.schedule.io import load_schedule, parse_schedule, save_schedule, schedule_from_dict
    from lwd.schedule.learned import Learnable, Polynomial, RhoAverage
    from lwd.solver import Solution, solve

# Names are imported on first use: `lwd --help` should not wait two seconds for torch.
_ROOMS = {
    "errors": ("InputError", "SolveError"),
    "groups": ("Group", "Layout"),
    "schedule.base": ("Schedule",),
    "schedule.bernstein": ("Bernstein",),
    "schedule.fixed": ("Cascade", "Offset", "PiecewiseLinear", "Synchronous"),
    "schedule.learned": ("Learnable", "Polynomial", "RhoAverage"),
    "schedule.io": ("load_schedule", "parse_schedule", "save_schedule", "schedule_from_dict"),
    "path": ("Velocity", "interpolate"),
    "objective": ("FlowObjective", "Losses"),
    "probe.surface": ("fit_schedule", "path_objective"),
    "solver": ("Solution", "solve"),
    "sampler": ("flow_field", "sample", "seeded_noise"),
    "guidance": ("AutoGuidance", "ClassifierFree"),
    "models.exact": ("Gaussian", "GaussianMixture"),
    "models.lightningdit": ("LightningDiT", "LightningDiTConfig"),
    "representations.statistics": ("Statistics",),
    "representations.texture": ("TextureAutoencoder",),
    "checkpoint": ("Checkpoint", "load", "save"),
    "pipeline": ("LWDPipeline",),
    "data.reader": ("LatentReader",),
    "data.memory": ("MemoryReader",),
    "config": ("Config", "load_config"),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "AutoGuidance",
    "Bernstein",
    "Cascade",
    "Checkpoint",
    "ClassifierFree",
    "Config",
    "FlowObjective",
    "Gaussian",
    "GaussianMixture",
    "Group",
    "InputError",
    "LWDPipeline",
    "LatentReader",
    "Layout",
    "Learnable",
    "LightningDiT",
    "LightningDiTConfig",
    "Losses",
    "MemoryReader",
    "Offset",
    "PiecewiseLinear",
    "Polynomial",
    "RhoAverage",
    "Schedule",
    "Solution",
    "SolveError",
    "Statistics",
    "Synchronous",
    "TextureAutoencoder",
    "Velocity",
    "__version__",
    "fit_schedule",
    "flow_field",
    "interpolate",
    "load",
    "load_config",
    "load_schedule",
    "parse_schedule",
    "path_objective",
    "sample",
    "save",
    "save_schedule",
    "schedule_from_dict",
    "seeded_noise",
    "solve",
]


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'lwd' has no attribute {name!r}")
    value = getattr(import_module(f"lwd.{_ROOM_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
