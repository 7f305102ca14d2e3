"""What a training step does, seen from outside: waits for the device, dtypes, collectives, weights alive."""

import traceback
from collections import Counter

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WAITS = {
    "item", "tolist", "cpu", "numpy", "nonzero", "__bool__", "__float__", "__int__", "__index__", "__len__ of data",
    "equal", "allclose", "unique", "masked_select", "is_nonzero",
}  # fmt: skip
FROM_HOST = {"tensor", "as_tensor", "from_numpy", "scalar_tensor"}
"""They copy from pageable memory of the host, which waits for the device."""


class Waits(TorchFunctionMode):
    """Names the lines of lwd that would wait for a GPU, as `file:function`."""

    def __init__(self):
        super().__init__()
        self.found = Counter()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in WAITS or name in FROM_HOST:
            frames = [f for f in traceback.extract_stack()[:-1] if "/lwd/" in f.filename or "/optim/" in f.filename]
            if frames:
                self.found[f"{frames[-1].filename.split('/')[-1]}:{frames[-1].name} {name}"] += 1
        return func(*args, **(kwargs or {}))


class Kinds(TorchDispatchMode):
    """Dtypes of attention inputs, and the largest float64 tensor."""

    def __init__(self):
        super().__init__()
        self.attention, self.float64, self.operations = set(), 0, Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.operations[str(func.name())] += 1
        if "scaled_dot_product" in func.name() and "backward" not in func.name():
            self.attention |= {x.dtype for x in args[:3]}
        wide = [x.numel() for x in tree_leaves(result) if isinstance(x, Tensor) and x.dtype == torch.float64]
        self.float64 = max([self.float64, *wide])
        return result


def collectives(kinds):
    """Collectives by name."""
    names = Counter()
    for name, count in kinds.operations.items():
        if name.startswith("c10d::"):
            names[name.split("::")[1].split(".")[0].strip("_")] += count
    return dict(names)


class Copies(TorchDispatchMode):
    """Storages of bf16 tensors with as many values as a weight: gathered shards, and copies that autocast makes."""

    def __init__(self, sizes):
        super().__init__()
        self.sizes, self.found = sizes, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, Tensor) and x.dtype == torch.bfloat16 and x.numel() in self.sizes:
                storage = x.untyped_storage()
                self.found[storage._cdata] = StorageWeakRef(storage)
        return result

    def bytes(self):
        """Bytes that are alive now; FSDP2 keeps its buffers and empties them."""
        storages = [torch.UntypedStorage._new_with_weak_ptr(reference.cdata) for reference in self.found.values()]
        return sum(storage.nbytes() for storage in storages if storage is not None)
