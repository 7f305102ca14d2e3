"""A GPU that computes nothing: torch's meta device in its place.

An operation on tensors of two devices raises an error, as on a GPU, and so does reading a value on the host. A copy
from the host that would wait for the device is recorded (`Uploads`).
"""

import sys
import traceback
from contextlib import nullcontext
from itertools import cycle

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from lwd.training.devices import Devices

GPU = torch.device("meta")
COPIES = {torch.ops.aten._to_copy.default: 0, torch.ops.aten.copy_.default: 1}
"""Operations that may copy from the host, and the position of their source."""


class Uploads(TorchDispatchMode):
    """Names the lines of lwd that copy from the host and wait for it, as `file:function`."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        waits = func in COPIES and not (kwargs.get("non_blocking") or (len(args) > 2 and args[2]))
        if waits and args[COPIES[func]].device.type == "cpu" and result.device == GPU:
            frames = [frame for frame in traceback.extract_stack() if "/lwd/" in frame.filename]
            self.found.append(f"{frames[-1].filename.split('/')[-1]}:{frames[-1].name}" if frames else "elsewhere")
        return result


class NoGenerators(TorchFunctionMode):
    """The meta device has no generator: draws are made without one."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if getattr(func, "__name__", "") in ("rand", "randn", "randperm"):
            kwargs.pop("generator", None)
        return func(*args, **kwargs)


class FakeGPU(Devices):
    """One process with a GPU."""

    def __init__(self):
        self.parallel, self.bf16, self.rank, self.world, self.main = "ddp", False, 0, 1, True
        self.device, self.mesh, self.patient, self.savers = GPU, None, None, None

    def autocast(self):
        return nullcontext()


def install(monkeypatch):
    """Let torch's generators and fused optimizers accept the device."""
    make = torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda _device="cpu": make())
    adam = sys.modules["torch.optim.adam"]  # torch.optim hides it
    monkeypatch.setattr(adam, "_device_dtype_check_for_fused", lambda *_args, **_kwargs: None)


class Answers(TorchFunctionMode):
    """Answers questions about values, which the device does not have, by the function of lwd that asks.

    answers: by the name of the function, in turn and from the first again; the answer to others is True or 1.
    """

    def __init__(self, **answers):
        super().__init__()
        self.answers = {key: cycle(values) for key, values in answers.items()}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name not in ("__bool__", "__int__") or args[0].device != GPU:
            return func(*args, **(kwargs or {}))
        asking = next(frame.name for frame in reversed(traceback.extract_stack()) if "/lwd/" in frame.filename)
        value = next(self.answers[asking]) if asking in self.answers else 1
        return bool(value) if name == "__bool__" else int(value)
