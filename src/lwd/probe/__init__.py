"""Ways to find a schedule."""

from lwd.probe.surface import Surfaces, fit_schedule, path_objective

__all__ = ["Surfaces", "fit_schedule", "path_objective"]
