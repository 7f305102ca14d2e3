"""Activation memory of a LightningDiT, counted with fake tensors: no weights, no GPU, a second of time."""

from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lwd.models.lightningdit import LightningDiT, LightningDiTConfig


class _Alive(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Remembers the storages that operations create, and which of them are still alive."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.created: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                self.created[storage._cdata] = (reference, int(storage.nbytes()))
        return result

    def total(self) -> int:
        """Bytes alive."""
        alive = [size for reference, size in self.created.values() if not reference.expired()]  # type: ignore[no-untyped-call]
        return sum(alive)


@cache
def activation_bytes(config: LightningDiTConfig, recompute: bool = False) -> float:
    """Bytes that the forward pass of one image in bf16 autocast keeps for the backward pass.

    Linear in the batch and in the depth, so two small batches through two and three blocks are enough. With
    `recompute`, the activations of the block that is being computed again are included.
    """
    least = max(config.tap, 1)
    shallow, deep = (replace(config, depth=least + extra) for extra in (0, 1))
    block = _per_image(deep, False) - _per_image(shallow, False)
    if not recompute:
        return _per_image(shallow, False) + (config.depth - least) * block
    first = _per_image(shallow, True)
    return first + (config.depth - least) * (_per_image(deep, True) - first) + block


@cache
def _per_image(config: LightningDiTConfig, recompute: bool) -> float:
    return (_alive(config, 4, recompute) - _alive(config, 2, recompute)) / 2


def _alive(config: LightningDiTConfig, batch: int, recompute: bool) -> int:
    """Bytes alive after a forward pass, without the parameters."""
    with FakeTensorMode():
        network = LightningDiT(config, checkpoint=recompute)
        z = torch.empty(batch, config.layout.channels, *config.grid)
        times, label = torch.empty(batch, len(config.layout)), torch.empty(batch, dtype=torch.int64)
        with _Alive() as alive, torch.autocast("cpu", torch.bfloat16):
            kept: Any = network.run(z, times, label, *network.tables(z))
            if network.repa_projector is not None:
                kept = (*kept, network.repa_projector(kept[1]))
        count = alive.total()
    del kept
    return count
