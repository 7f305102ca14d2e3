"""Processes and devices of a run: one process, or several started by torchrun or accelerate launch."""

import os
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from lwd.errors import InputError


class Devices:
    """The processes of a run. Accelerate detects the launcher and device, sets the precision, and wraps for DDP."""

    def __init__(self, precision: str = "auto", parallel: str = "ddp", cpu: bool = False) -> None:
        from accelerate import Accelerator
        from accelerate.utils import InitProcessGroupKwargs

        # `accelerate launch --use_fsdp` sets this variable; we shard ourselves (see wrap).
        asked = os.environ.pop("ACCELERATE_USE_FSDP", "false").lower() == "true"
        self.parallel = "fsdp2" if asked else parallel
        found = torch.accelerator.current_accelerator()
        cpu = cpu or found is None or found.type == "mps"  # mps has no float64, which times and rho need
        mixed = {"auto": "no" if cpu else "bf16", "fp32": "no", "bf16": "bf16"}[precision]
        # Other processes wait while the main process writes and hashes a checkpoint of many gigabytes.
        long_timeout = InitProcessGroupKwargs(timeout=timedelta(hours=2))
        self.accelerator = Accelerator(mixed_precision=mixed, cpu=cpu, kwargs_handlers=[long_timeout])
        self.rank, self.world = self.accelerator.process_index, self.accelerator.num_processes
        self.device: torch.device = self.accelerator.device
        self.main = self.rank == 0
        if self.parallel == "fsdp2" and self.world == 1:
            raise InputError("fsdp2 needs several processes; start with torchrun --nproc-per-node N")

    def wrap(self, network: nn.Module) -> nn.Module:
        """Prepare the network for the processes of this run."""
        network = network.to(self.device)
        if self.world == 1:
            return network
        if self.parallel == "fsdp2":
            return self._shard(network)
        wrapped: nn.Module = self.accelerator.prepare_model(network)
        return wrapped

    def _shard(self, network: nn.Module) -> nn.Module:
        # torch's FSDP2: accelerate's wrapper needs a GPU, and would do no more than this.
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(self.device.type, (self.world,))
        for block in getattr(network, "blocks", ()):
            fully_shard(block, mesh=mesh)
        fully_shard(network, mesh=mesh)  # in place
        return network

    def autocast(self) -> AbstractContextManager[Any]:
        return self.accelerator.autocast()

    def partial(self, wrapped: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Synchronise gradients only for the last part of an accumulated batch."""
        if self.world == 1:
            return nullcontext()
        if self.parallel == "fsdp2":
            wrapped.set_requires_gradient_sync(last)  # type: ignore[operator]
            return nullcontext()
        return nullcontext() if last else wrapped.no_sync()  # type: ignore[operator]

    def mean(self, value: Tensor) -> Tensor:
        """Return the mean over processes (equal on all of them, bit for bit)."""
        return value if self.world == 1 else self.accelerator.reduce(value, "mean")

    def total(self, value: Tensor) -> Tensor:
        """Return the sum over processes, on the CPU; they may arrive at different times."""
        self.wait()
        return value if self.world == 1 else self.accelerator.reduce(value.to(self.device), "sum").cpu()

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any process, so that all leave the loop together."""
        if self.world == 1:
            return flag
        return bool(self.accelerator.reduce(torch.tensor(float(flag), device=self.device), "sum") > 0)

    def from_main(self, number: int) -> int:
        """Return the main process's number on every process."""
        if self.world == 1:
            return number
        mine = torch.tensor(int(number) if self.main else 0, dtype=torch.int64, device=self.device)
        return int(self.accelerator.reduce(mine, "sum"))

    def wait(self) -> None:
        self.accelerator.wait_for_everyone()


def full_copy(tensor: Tensor, keep: bool = True) -> Tensor:
    """Return the full tensor of a shard (a collective call), or the tensor itself; on the CPU.

    keep: whether this process needs it; the others only take part in gathering it.
    """
    full = tensor.detach()
    full = full.full_tensor() if isinstance(full, DTensor) else full
    return full.cpu() if keep else torch.empty(0)


@torch.no_grad()
def copy_into(target: Tensor, value: Tensor) -> None:
    """Copy a full tensor into a parameter or its shard."""
    if isinstance(target, DTensor):
        source = distribute_tensor(value.to(target.device, target.dtype), target.device_mesh, target.placements)
        target.copy_(source)
    else:
        target.copy_(value)
