"""Deterministic property tests, no threads fighting over two cores."""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "2000")  # see lwd.cli; read when torch is loaded

import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=40, suppress_health_check=list(HealthCheck)
)
settings.register_profile("thorough", deadline=None, max_examples=400, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
if WORKERS > 1:  # each has a core to itself, and so have the processes that its tests start
    os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1 if WORKERS > 1 else min(2, os.cpu_count() or 1))
