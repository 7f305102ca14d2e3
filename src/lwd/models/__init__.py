"""Velocities: LightningDiT, and exact velocities of known distributions."""

from lwd.models.exact import Gaussian, GaussianMixture
from lwd.models.lightningdit import SIZES, LightningDiT, LightningDiTConfig, parameter_count

__all__ = ["SIZES", "Gaussian", "GaussianMixture", "LightningDiT", "LightningDiTConfig", "parameter_count"]
