"""Deterministic property tests, no threads fighting over two cores."""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "20000")  # see lwd.cli; read when torch is loaded

import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=40, suppress_health_check=list(HealthCheck)
)
settings.register_profile("thorough", deadline=None, max_examples=400, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
torch.set_num_threads(min(2, os.cpu_count() or 1))
