"""The launchers that README and docs show, with two processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import stand_ins
from cli.shown import MANY, prepared
from commands import writes


@pytest.mark.slow
@pytest.mark.parametrize("command", [pytest.param(c, id=str(c)) for c in MANY])
def test_command_runs_on_two_processes(command, shop, folder):
    """Oracle: the same as on one, with the launcher that the page names."""
    arguments, a = prepared(command, shop, folder)
    if "accelerate" in command.words:
        start = ["accelerate.commands.launch", "--cpu", "--num_processes=2", "--num_cpu_threads_per_process=1"]
    else:
        start = ["torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    if "run.parallel=fsdp2" in getattr(a, "set", ()):
        arguments += ["--set", "run.parallel=fsdp2"]  # now there is something to share
    path = os.pathsep.join([str(Path(stand_ins.__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    words = [sys.executable, "-m", *start, stand_ins.__file__, *arguments]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if line.startswith("lwd:")]
    assert done.returncode == 0, said or done.stderr[-2000:]
    assert all(path.exists() for path in writes(a, folder))
