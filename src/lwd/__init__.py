"""Learning When to Denoise: latent diffusion over several representations, each on its own learned clock."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import lwd.compute.rounding
import lwd.compute.spin  # noqa: F401 - before torch is loaded
from lwd.version import __version__

if TYPE_CHECKING:
    from lwd.checkpoints.directory import Checkpoint, load, save
    from lwd.errors import InputError, SolveError
    from lwd.evaluation.evaluate import evaluate
    from lwd.evaluation.settings import EvaluateSettings
    from lwd.groups import Group, Layout
    from lwd.guidance import AutoGuidance, ClassifierFree
    from lwd.latents.encode import encode
    from lwd.latents.encoders import Encoders
    from lwd.latents.memory import MemoryReader
    from lwd.latents.reader import LatentReader
    from lwd.latents.settings import EncodeSettings
    from lwd.latents.statistics import Statistics
    from lwd.models.exact import Gaussian, GaussianMixture
    from lwd.models.lightningdit import LightningDiT, LightningDiTConfig
    from lwd.models.sefi import Prompts
    from lwd.objective import FlowObjective, Losses
    from lwd.path import Velocity, interpolate
    from lwd.probing.joint import probe
    from lwd.probing.measure import measure_surfaces
    from lwd.probing.surface import surface_probe
    from lwd.probing.sweep import sweep
    from lwd.representations.texture import TextureAutoencoder
    from lwd.sampler import flow_field, sample, seeded_noise
    from lwd.sampling.pipeline import LWDPipeline
    from lwd.sampling.sde import SDESettings, sample_sde, score
    from lwd.sampling.sefi import sample_sefi
    from lwd.sampling.text import TextPipeline
    from lwd.schedule.base import Schedule
    from lwd.schedule.fixed import Cascade, Offset, PiecewiseLinear, Synchronous
    from lwd.schedule.io import load_schedule, parse_schedule, save_schedule, schedule_from_dict
    from lwd.schedule.learned import Bernstein, Learnable, Polynomial
    from lwd.solver import Solution, SolverSettings, solve
    from lwd.surfaces.files import load_surfaces
    from lwd.surfaces.integral import fit_schedule, path_objective
    from lwd.training.config import Config, load_config
    from lwd.training.rho import RhoAverage
    from lwd.training.task import RunOptions
    from lwd.training.train import train

# Import names on first use, so that `lwd --help` does not wait two seconds for torch.
_MODULES = {
    "errors": ("InputError", "SolveError"),
    "groups": ("Group", "Layout"),
    "path": ("Velocity", "interpolate"),
    "schedule.base": ("Schedule",),
    "schedule.fixed": ("Cascade", "Offset", "PiecewiseLinear", "Synchronous"),
    "schedule.learned": ("Bernstein", "Learnable", "Polynomial"),
    "schedule.io": ("load_schedule", "parse_schedule", "save_schedule", "schedule_from_dict"),
    "objective": ("FlowObjective", "Losses"),
    "solver": ("Solution", "SolverSettings", "solve"),
    "sampler": ("flow_field", "sample", "seeded_noise"),
    "guidance": ("AutoGuidance", "ClassifierFree"),
    "models.exact": ("Gaussian", "GaussianMixture"),
    "models.lightningdit": ("LightningDiT", "LightningDiTConfig"),
    "models.sefi": ("Prompts",),
    "surfaces.files": ("load_surfaces",),
    "surfaces.integral": ("fit_schedule", "path_objective"),
    "representations.texture": ("TextureAutoencoder",),
    "latents.encode": ("encode",),
    "latents.encoders": ("Encoders",),
    "latents.memory": ("MemoryReader",),
    "latents.reader": ("LatentReader",),
    "latents.settings": ("EncodeSettings",),
    "latents.statistics": ("Statistics",),
    "checkpoints.directory": ("Checkpoint", "load", "save"),
    "training.config": ("Config", "load_config"),
    "training.train": ("train",),
    "training.rho": ("RhoAverage",),
    "training.task": ("RunOptions",),
    "probing.joint": ("probe",),
    "probing.measure": ("measure_surfaces",),
    "probing.surface": ("surface_probe",),
    "probing.sweep": ("sweep",),
    "sampling.pipeline": ("LWDPipeline",),
    "sampling.sde": ("SDESettings", "sample_sde", "score"),
    "sampling.sefi": ("sample_sefi",),
    "sampling.text": ("TextPipeline",),
    "evaluation.evaluate": ("evaluate",),
    "evaluation.settings": ("EvaluateSettings",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AutoGuidance",
    "Bernstein",
    "Cascade",
    "Checkpoint",
    "ClassifierFree",
    "Config",
    "EncodeSettings",
    "Encoders",
    "EvaluateSettings",
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
    "Prompts",
    "RhoAverage",
    "RunOptions",
    "SDESettings",
    "Schedule",
    "Solution",
    "SolveError",
    "SolverSettings",
    "Statistics",
    "Synchronous",
    "TextPipeline",
    "TextureAutoencoder",
    "Velocity",
    "__version__",
    "encode",
    "evaluate",
    "fit_schedule",
    "flow_field",
    "interpolate",
    "load",
    "load_config",
    "load_schedule",
    "load_surfaces",
    "measure_surfaces",
    "parse_schedule",
    "path_objective",
    "probe",
    "sample",
    "sample_sde",
    "sample_sefi",
    "save",
    "save_schedule",
    "schedule_from_dict",
    "score",
    "seeded_noise",
    "solve",
    "surface_probe",
    "sweep",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'lwd' has no attribute {name!r}")
    value = getattr(import_module(f"lwd.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
