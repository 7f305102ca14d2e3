"""Ways to find a schedule."""

from lwd.surfaces.integral import Surfaces, fit_schedule, path_objective

__all__ = ["Surfaces", "fit_schedule", "path_objective"]
