"""Choice of the device, the precision and the number of threads."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from lwd.compute import spin
from lwd.errors import InputError
from lwd.io.launch import adopt_slurm


def choose_device(name: str | torch.device | None = None) -> torch.device:
    """Return a device by name; the default is the GPU of this process ($LOCAL_RANK), or the CPU if there is none.

    cuda, without a number, is the GPU of this process too: otherwise all would share the first one.
    """
    if name is None or str(name) == "cuda":
        adopt_slurm()
        local = os.environ.get("LOCAL_RANK", "0")
        if not local.isdecimal():
            raise InputError(f"LOCAL_RANK must be an integer, got {local!r}; start with torchrun, or unset it")
        name = f"cuda:{local}" if name or torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"there is no device {str(name)!r} here ({reason}); use 'cpu', 'cuda' or 'cuda:N'", argument="device"
        ) from error
    return device


def choose_precision(name: str, device: torch.device) -> str:
    """Return bf16 or fp32; `auto` is bf16 on a GPU that has it, and fp32 elsewhere."""
    if name != "auto":
        return name
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"


@contextmanager
def float32_to_the_bit(exact: bool = True) -> Iterator[None]:
    """Compute float32 products and convolutions as float32 on a GPU, or (not exact) allow TensorFloat-32."""
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = not exact
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before


class Autocast:
    """A velocity computed in bfloat16 where torch considers that safe; states, times and results keep their dtype."""

    def __init__(self, velocity: Callable[..., Tensor]) -> None:
        self.velocity = velocity

    @property
    def edges(self) -> Mapping[str, tuple[float, ...]]:
        found: Mapping[str, tuple[float, ...]] = getattr(self.velocity, "edges", {})
        return found

    def __call__(self, z: Tensor, times: Tensor, label: Any) -> Tensor:
        with torch.autocast(z.device.type, torch.bfloat16):
            return self.velocity(z, times, label).to(z.dtype)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with `count` threads: the last bits of sums depend on it, and torchrun would set it to one."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def warn_about_spinning() -> None:
    """Warn, once, if torch was loaded before lwd and its idle threads spin: next to a busy process that is slow."""
    if spin.LATE and sys.platform == "linux" and torch.get_num_threads() > 1:
        warnings.warn(
            "torch was imported before lwd, so its idle threads spin: if another process is busy, small networks train "
            f"up to ten times slower; import lwd first, or set {spin.NAME}={spin.COUNT} before Python starts",
            stacklevel=2,
        )
