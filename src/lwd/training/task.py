"""What a run trains, and how it computes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from lwd.objective import FlowObjective
from lwd.schedule.base import Schedule
from lwd.training.config import Config
from lwd.training.devices import Devices
from lwd.training.draws import Focus
from lwd.training.rho import RhoProbe

OnStep = Callable[[Any], object]
"""Called with the trainer."""


@dataclass(frozen=True)
class Task:
    """What a run trains. With `rho` the schedule is learned too (Stage I); without it the schedule is fixed (Stage II).

    Without a schedule, local times are drawn independently for each group, and the denoiser works under any schedule.
    """

    network: nn.Module
    objective: FlowObjective
    schedule: Schedule | None
    rho: RhoProbe | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Stored with every checkpoint."""
    focus: Focus = field(default_factory=Focus)
    """Schedules that independent times visit more often."""


@dataclass(frozen=True)
class RunOptions:
    """How a run computes and reports; only `network` changes its results."""

    devices: Devices | None = None
    """Processes and device; by default those of the launcher and config.run."""
    on_step: OnStep | None = None
    """Called after each step."""
    after_save: Callable[[Path, int], object] | None = None
    """Called by the main process with the directory and step of each checkpoint."""
    on_table: Callable[[int], object] | None = None
    """Called by a surface probe with the number of images that it has just tabulated."""
    wandb: bool = False
    network: nn.Module | None = None
    """A custom denoiser instead of the configured LightningDiT."""


def prepare(options: RunOptions | None, config: Config) -> tuple[RunOptions, Devices]:
    """Fill in the devices of the options, by default those of the launcher and config.run."""
    options = options or RunOptions()
    devices = options.devices or Devices(config.run.precision, config.run.parallel, timeout=config.run.timeout)
    return replace(options, devices=devices), devices
