"""The training loop of all fits: AdamW, progress, and a state on disk from which an interrupted fit resumes."""

import json
from collections.abc import Callable
from math import cos, pi
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lwd.compute.order import mix
from lwd.errors import InputError
from lwd.io.tensors import mismatches, read_safetensors, write_safetensors
from lwd.representations.processes import Processes
from lwd.representations.settings import FitSettings

KEEP_EVERY = 200
"""Steps between saved states of a fit."""
Progress = Callable[[int, float], object]
"""Called after each step with its number and its loss."""
WHERE = ("skip_bad", "device", "loaders")
"""Settings that may change when a fit resumes."""


def descend(
    model: nn.Module,
    loss: Callable[[int, torch.Generator], Tensor],
    settings: FitSettings,
    out: Path,
    about: dict[str, Any],
    progress: Progress | None,
    processes: Processes,
) -> None:
    """Run AdamW with warm-up and cosine decay; draws depend on (seed, step); saves its state every KEEP_EVERY steps.

    loss: of this process's share of a batch.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=0.01)
    plan = {key: value for key, value in settings.to_dict().items() if key not in WHERE} | about
    first = _resume(model, optimizer, out, plan)
    if processes.mean(first) != processes.from_main(first):
        raise InputError(f"all processes must see {_state_path(out)}, or none; use a directory that all nodes share")
    for step in range(first, settings.steps):
        rate = min(1.0, (step + 1) / 100) * 0.5 * (1 + cos(pi * step / settings.steps))
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * rate
        value = loss(step, torch.Generator().manual_seed(mix(settings.seed, step)))
        optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        processes.average(model)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if progress is not None:
            progress(step + 1, processes.mean(float(value.detach())))
        if (step + 1) % KEEP_EVERY == 0 and processes.main:
            _keep_state(model, optimizer, step + 1, out, plan)


def _state_path(out: Path) -> Path:
    return out.parent / f".{out.name}.fit.safetensors"


def _keep_state(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, out: Path, plan: dict[str, Any]) -> None:
    """Save one file, with the plan as a tensor of bytes, so that a kill cannot mix the plan and weights of two fits."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for i, parameter in enumerate(model.parameters()):
        tensors |= {f"{key}.{i}": optimizer.state[parameter][key] for key in ("exp_avg", "exp_avg_sq")}
    tensors["step"] = torch.tensor(float(step))
    tensors["plan"] = torch.tensor(list(json.dumps(plan).encode()), dtype=torch.uint8)
    write_safetensors(_state_path(out), tensors)


def _resume(model: nn.Module, optimizer: torch.optim.Optimizer, out: Path, plan: dict[str, Any]) -> int:
    if not _state_path(out).exists():
        return 0
    tensors = read_safetensors(_state_path(out))
    kept = tensors.pop("plan", torch.zeros(0, dtype=torch.uint8))
    if bytes(kept.tolist()) != json.dumps(plan).encode():
        return 0
    shapes = {f"model.{name}": tuple(tensor.shape) for name, tensor in model.state_dict().items()} | {"step": ()}
    for i, parameter in enumerate(model.parameters()):
        shapes |= {f"{key}.{i}": tuple(parameter.shape) for key in ("exp_avg", "exp_avg_sq")}
    if mismatches(shapes, tensors):
        return 0
    model.load_state_dict({name[6:]: tensor for name, tensor in tensors.items() if name.startswith("model.")})
    for i, parameter in enumerate(model.parameters()):
        state = {key: tensors[f"{key}.{i}"].to(parameter.device) for key in ("exp_avg", "exp_avg_sq")}
        optimizer.state[parameter] = state | {"step": tensors["step"].clone()}
    return int(tensors["step"])


def discard_state(out: Path) -> None:
    """Remove the state of a fit that is done."""
    _state_path(out).unlink(missing_ok=True)
