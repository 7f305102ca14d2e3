"""Velocities: exact ones for known distributions."""

from lwd.models.exact import Gaussian, GaussianMixture

__all__ = ["Gaussian", "GaussianMixture"]
