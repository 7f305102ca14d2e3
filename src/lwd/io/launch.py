"""Processes that srun started without torchrun: the variables that torch.distributed and lwd read, from SLURM's."""

import os
import re
from collections.abc import Mapping, MutableMapping

from lwd.errors import InputError

NEEDED = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NODELIST")
VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
FIRST_PORT, PORTS = 20_000, 10_000


def adopt_slurm(environment: MutableMapping[str, str] | None = None) -> None:
    """Set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT of the tasks of an srun step.

    Does nothing if a launcher has set them, or if the step has a single task: then torchrun or the user decides.
    """
    variables = os.environ if environment is None else environment
    tasks = variables.get("SLURM_STEP_NUM_TASKS", "1")
    if "RANK" in variables or "WORLD_SIZE" in variables or not tasks.isdecimal() or int(tasks) < 2:
        return
    missing = [name for name in NEEDED if not variables.get(name)]
    if missing:
        raise InputError(
            f"srun started {tasks} tasks, but {', '.join(missing)} is not set, so they would train {tasks} models in "
            "one directory; use one task per node with torchrun: srun --ntasks-per-node=1 torchrun ... -m lwd"
        )
    per_node = re.match(r"\d+", variables.get("SLURM_STEP_TASKS_PER_NODE", tasks))
    job = variables.get("SLURM_JOB_ID", "0") + variables.get("SLURM_STEP_ID", "0")
    found = {
        "RANK": variables["SLURM_PROCID"],
        "WORLD_SIZE": tasks,
        "LOCAL_RANK": "0" if _sees_one(variables) else variables["SLURM_LOCALID"],
        "LOCAL_WORLD_SIZE": per_node[0] if per_node else tasks,
        "MASTER_ADDR": first_host(variables["SLURM_STEP_NODELIST"]),
        "MASTER_PORT": str(FIRST_PORT + int(re.sub(r"\D", "", job) or "0") % PORTS),
    }
    for name, value in found.items():
        variables.setdefault(name, value)


def _sees_one(variables: Mapping[str, str]) -> bool:
    """Whether this task sees a single GPU, its own (--gpus-per-task=1), which then has the number 0."""
    return any(variables.get(name) and "," not in variables[name] for name in VISIBLE)


def first_host(nodes: str) -> str:
    """Return the first host of a SLURM list: `gpu[07-09,12],cpu1` -> `gpu07`."""
    found = re.match(r"([^\[,]+)(?:\[(\w+)[^\]]*\]([^,]*))?", nodes)
    if found is None:
        raise InputError(f"SLURM_STEP_NODELIST is not a list of hosts: {nodes!r}")
    return "".join(part or "" for part in found.groups())
