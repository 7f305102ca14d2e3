"""A surface probe on two processes: they share the table, and it is the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lwd.surfaces.files import NAME, load_surfaces

WORKER = str(Path(__file__).with_name("surface_worker.py"))


@pytest.mark.slow
def test_two_processes_tabulate_what_one_does(tmp_path):
    """Oracle: one process; the weights differ by the rounding of four steps."""
    for count in (1, 2):
        many = ["-m", "torch.distributed.run", f"--nproc-per-node={count}", "--standalone"] if count > 1 else []
        command = [sys.executable, *many, WORKER, str(tmp_path / str(count))]
        done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
    one, two = (load_surfaces(tmp_path / str(count) / NAME)[0] for count in (1, 2))
    for name in ("points", "losses", "energies", "loss_errors", "bends"):
        torch.testing.assert_close(getattr(two, name), getattr(one, name), atol=1e-4, rtol=1e-3)
