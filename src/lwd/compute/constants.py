"""Small constant tensors, made once: a copy from the host in every step of a training would wait for the device."""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor


@lru_cache(maxsize=256)
def constant(values: tuple[Any, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return (nested) numbers as a tensor on a device; do not change it in place."""
    with torch.inference_mode(False):  # training could not use inference tensors
        return torch.tensor(values, dtype=dtype, device=device)
