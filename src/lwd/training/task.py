"""What a run learns, and how it computes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from lwd.objective import FlowObjective
from lwd.schedule.base import Schedule
from lwd.training.config import Config
from lwd.training.devices import Devices
from lwd.training.rho import RhoProbe

OnStep = Callable[[Any], object]
"""Takes the trainer."""


@dataclass(frozen=True)
class Task:
    """What a run learns. With `rho` the schedule learns too (Stage I); without it the schedule is fixed (Stage II).

    Without a schedule every group draws its own local time: the denoiser then suits any schedule.
    """

    network: nn.Module
    objective: FlowObjective
    schedule: Schedule | None
    rho: RhoProbe | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Kept with every checkpoint."""


@dataclass(frozen=True)
class RunOptions:
    """How a run computes and whom it tells; nothing here changes its numbers, except a network of your own."""

    devices: Devices | None = None
    """Processes and device; by default what the launcher and config.run say."""
    on_step: OnStep | None = None
    """Called after each step."""
    after_save: Callable[[Path, int], object] | None = None
    """Called by the main process with each checkpoint's directory and step."""
    on_table: Callable[[int], object] | None = None
    """Called with the number of images whenever a surface probe has tabulated some."""
    wandb: bool = False
    network: nn.Module | None = None
    """A denoiser of your own, in place of the configured LightningDiT."""


def prepare(options: RunOptions | None, config: Config) -> tuple[RunOptions, Devices]:
    """The options with their devices, by default those of the launcher and config.run."""
    options = options or RunOptions()
    devices = options.devices or Devices(config.run.precision, config.run.parallel)
    return replace(options, devices=devices), devices
