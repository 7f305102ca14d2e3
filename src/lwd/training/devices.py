"""Processes and devices of a run: one process, or several started by torchrun, accelerate launch or srun."""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from lwd.compute.devices import warn_about_spinning
from lwd.errors import InputError
from lwd.io.launch import adopt_slurm

LONG = timedelta(hours=2)
"""How long processes wait for each other outside a step: while one of them writes, reads or draws samples."""
BUCKET_MB = 25
"""Smallest DDP bucket (torch's default). Larger blocks have one bucket each: their gradients are ready together."""


@dataclass(frozen=True)
class Replica:
    """A copy of the weights: its number, the number of copies, and whether this process is the first that holds it."""

    index: int
    count: int
    first: bool


class Devices:
    """The processes of a run. Accelerate detects the launcher and the device.

    timeout: minutes after which a collective of a training step fails, because another process hangs or died.
    """

    def __init__(
        self, precision: str = "auto", parallel: str = "ddp", cpu: bool = False, timeout: float = 10.0
    ) -> None:
        from accelerate import Accelerator
        from accelerate.utils import InitProcessGroupKwargs

        adopt_slurm()
        # `accelerate launch --use_fsdp` sets this variable; we shard ourselves (see wrap).
        asked = os.environ.pop("ACCELERATE_USE_FSDP", "false").lower() == "true"
        self.parallel = "fsdp2" if asked and parallel == "ddp" else parallel
        # A CUDA build of torch names an accelerator even if the machine has none.
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        cpu = cpu or found is None or found.type == "mps"  # mps has no float64, which times and rho need
        self.bf16 = precision == "bf16" or (precision == "auto" and not cpu)
        short = InitProcessGroupKwargs(timeout=timedelta(minutes=timeout))
        # The precision is ours: accelerate allows only one in the lifetime of a process.
        self.accelerator = Accelerator(mixed_precision="no", cpu=cpu, kwargs_handlers=[short])
        self.rank, self.world = self.accelerator.process_index, self.accelerator.num_processes
        self.device: torch.device = self.accelerator.device
        self.main = self.rank == 0
        # Two groups on the CPU: a save in the background must not mix with what the main threads exchange.
        self.patient, self.savers = (_patient_group() if self.world > 1 else None for _ in range(2))
        self.mesh = self._mesh()
        if self.device.type == "cpu":
            warn_about_spinning()

    def _mesh(self) -> Any:
        """The mesh of FSDP2: all processes, or with hsdp (nodes, processes of a node)."""
        if self.parallel == "ddp":
            return None
        if self.world == 1:
            raise InputError(f"{self.parallel} needs several processes; start with torchrun --nproc-per-node N")
        from torch.distributed.device_mesh import init_device_mesh

        if self.parallel == "fsdp2":
            return init_device_mesh(self.device.type, (self.world,), mesh_dim_names=("shard",))
        local = int(os.environ.get("LOCAL_WORLD_SIZE", self.world))
        if local >= self.world or self.world % local:
            raise InputError(
                f"hsdp needs several nodes with equally many processes, got {self.world} processes, {local} on this "
                "node; use fsdp2 on a single node",
                argument="run.parallel",
            )
        shape = (self.world // local, local)
        return init_device_mesh(self.device.type, shape, mesh_dim_names=("replicate", "shard"))

    @property
    def replica(self) -> Replica:
        """Which copy of the weights this process has a part of."""
        if self.mesh is None:
            return Replica(self.rank, self.world, True)
        first = self.mesh.get_local_rank("shard") == 0
        if self.mesh.ndim == 1:
            return Replica(0, 1, first)
        return Replica(self.mesh.get_local_rank("replicate"), self.mesh.size(0), first)

    def wrap(self, network: nn.Module) -> nn.Module:
        """Prepare the network for the processes of this run."""
        network = network.to(self.device)
        if self.world == 1:
            return network
        if self.mesh is not None:
            return self._shard(network)
        largest = max((_bytes(block) for block in getattr(network, "blocks", ())), default=0)
        return nn.parallel.DistributedDataParallel(
            network,
            device_ids=None if self.device.type == "cpu" else [self.device],
            broadcast_buffers=False,  # there are none
            gradient_as_bucket_view=True,
            bucket_cap_mb=max(BUCKET_MB, -(-largest // 2**20)),
        )

    def _shard(self, network: nn.Module) -> nn.Module:
        # torch's FSDP2: accelerate's wrapper needs a GPU, and would do no more than this.
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        # Gathered in bf16, so that autocast makes no second copy, which would stay alive until the backward pass.
        # The ends of the network stay float32, and so does the residual stream: inputs are not cast.
        kind = torch.bfloat16 if self.bf16 else None
        policy = MixedPrecisionPolicy(param_dtype=kind, reduce_dtype=torch.float32, cast_forward_inputs=False)
        for block in getattr(network, "blocks", ()):
            fully_shard(block, mesh=self.mesh, mp_policy=policy)
        fully_shard(network, mesh=self.mesh)  # in place
        return network

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16)

    def partial(self, wrapped: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Synchronise gradients only for the last part of an accumulated batch."""
        if self.world == 1:
            return nullcontext()
        if self.mesh is not None:
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

    def largest(self, values: Sequence[float]) -> list[float]:
        """Return the largest of each number over all processes; it does not involve the device."""
        if self.world == 1:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(numbers, dist.ReduceOp.MAX, group=self.patient)
        return numbers.tolist()

    def from_main(self, number: int) -> int:
        """Return the main process's number on every process."""
        if self.world == 1:
            return number
        mine = torch.tensor(int(number) if self.main else 0, dtype=torch.int64)
        dist.all_reduce(mine, group=self.patient)
        return int(mine)

    def wait(self) -> None:
        """Wait for all processes, for hours if needed; a hang within a step is noticed much earlier."""
        if self.world > 1:
            dist.monitored_barrier(group=self.patient, timeout=LONG)

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """Total norm of gradients in float32, equal on all processes; one collective if they are sharded."""
        norms = torch._foreach_norm([local(gradient) for gradient in gradients], 2)
        total = torch.linalg.vector_norm(torch.stack([norm.float() for norm in norms]))
        if self.mesh is None:
            return total
        square = total.square()
        dist.all_reduce(square, group=self.mesh.get_group("shard"))
        return square.sqrt()


def _patient_group() -> dist.ProcessGroup:
    return dist.new_group(backend="gloo", timeout=LONG)


def _bytes(module: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in module.parameters())


def local(tensor: Tensor) -> Tensor:
    """Return this process's part of a tensor: its shard, or the tensor itself."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def full_copy(tensor: Tensor, keep: bool = True) -> Tensor:
    """Return the full tensor of a shard (a collective call), or the tensor itself; on the CPU.

    keep: whether this process needs it; the others only take part in gathering it.
    """
    full = tensor.detach()
    full = full.full_tensor() if isinstance(full, DTensor) else full
    return full.cpu() if keep else torch.empty(0)
