"""Convert the state of a run to tensors by name, and back, independent of the number of processes."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.training.config import Config
from lwd.training.devices import full_copy
from lwd.training.rho import RhoProbe
from lwd.training.shards import Piece
from lwd.training.state import Saved

MOMENTS = ("exp_avg", "exp_avg_sq")
FREE = {
    "run": "steps accumulate precision parallel log_every save_every save_minutes keep_last keep_every keep_at "
    "sample_every max_bad max_rollbacks timeout",
    "network": "recompute compile",
    "probe": "steps points samples starts held_out",
}
"""Settings that may change when a run continues: its length and how it computes (precision changes rounding)."""


EARLIER = {"objective.kinetic_average": "groups", "run.labels": True, "probe.times": "uniform", "probe.times_mean": 0.0}
EARLIER |= {"probe.focus": [], "probe.focus_share": 0.5}
"""What a run did before a setting existed."""


def of_network(names: Sequence[str], weights: Sequence[Tensor], optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Weights and Adam's moments by name: the tensors themselves, or this process's shards."""
    tensors: dict[str, Tensor] = {}
    for name, weight in zip(names, weights, strict=True):
        tensors[f"weights.{name}"] = weight
        if weight in optimizer.state:
            tensors |= {f"{key}.{name}": optimizer.state[weight][key] for key in MOMENTS}
    return tensors


def restore_network(
    found: Saved,
    names: Sequence[str],
    weights: Sequence[Tensor],
    shadow: Sequence[Tensor],
    optimizer: torch.optim.Optimizer,
) -> None:
    """Check all weights, averages and moments of a checkpoint, then restore them."""
    count = found.state.updates
    shapes = {name: tuple(weight.shape) for name, weight in zip(names, weights, strict=True)}
    wanted = {f"weights.{name}": shape for name, shape in shapes.items()}
    # A weight that never had a gradient has no moments.
    moved = {name for name in shapes if f"{MOMENTS[0]}.{name}" in found.tensors.shapes}
    wanted |= {f"{key}.{name}": shapes[name] for name in moved for key in MOMENTS}
    given = {name: shape for name, shape in found.tensors.shapes.items() if not name.startswith("rho")}
    problems = differing(wanted, given) + differing(shapes, found.average.shapes)
    if problems:
        raise InputError(f"{found.path} does not fit this network: " + "; ".join(problems))
    targets: dict[str, Tensor] = {}
    optimizer.state.clear()
    for name, weight in zip(names, weights, strict=True):
        targets[f"weights.{name}"] = weight
        if name in moved:
            entry = {key: torch.zeros_like(weight.detach()) for key in MOMENTS}
            targets |= {f"{key}.{name}": entry[key] for key in MOMENTS}
            step = torch.tensor(float(count), device=weight.device)  # where a fused optimizer keeps it
            optimizer.state[weight] = entry | {"step": step}
    found.tensors.fill({name: Piece.of(target) for name, target in targets.items()})
    found.average.fill({name: Piece.of(average) for name, average in zip(names, shadow, strict=True)})


def differing(expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]) -> list[str]:
    """List, as sorted phrases, the tensors that are missing, unexpected or misshapen."""
    problems = [f"missing {name} {shape}" for name, shape in expected.items() if name not in found]
    problems += [f"unexpected {name} {shape}" for name, shape in found.items() if name not in expected]
    both = [(name, shape) for name, shape in found.items() if expected.get(name, shape) != shape]
    return sorted(problems + [f"{name} is {shape}, must be {expected[name]}" for name, shape in both])


def of_rho(probe: RhoProbe) -> dict[str, Tensor]:
    """rho, its moments, its mean and its trace."""
    rho = probe.schedule.rho
    tensors = {"rho": full_copy(rho), "rho.trace": torch.tensor([row for _, row in probe.trace], dtype=torch.float64)}
    tensors["rho.steps"] = torch.tensor([step for step, _ in probe.trace], dtype=torch.int64)
    if rho in probe.optimizer.state:
        tensors |= {f"rho.{key}": full_copy(probe.optimizer.state[rho][key]) for key in MOMENTS}
    if probe.average.mean is not None:
        tensors["rho.mean"] = full_copy(probe.average.mean)
    return tensors


def restore_rho(found: Saved, probe: RhoProbe) -> None:
    """The inverse of `of_rho`."""
    rho, stored = probe.schedule.rho, found.tensors
    problems = differing({"rho": tuple(rho.shape)}, {k: shape for k, shape in stored.shapes.items() if k == "rho"})
    if problems:
        raise InputError(f"{found.path} is not a checkpoint of this probe: " + "; ".join(problems))
    stored.fill({"rho": Piece.of(rho)})
    count = found.state.rho_updates or 0
    probe.optimizer.state.pop(rho, None)
    if count:
        entry = {key: stored.tensor(f"rho.{key}").to(rho.device) for key in MOMENTS}
        probe.optimizer.state[rho] = entry | {"step": torch.tensor(float(count), device=rho.device)}
    probe.average.count = torch.tensor(float(found.state.averaged or 0), dtype=torch.float64, device=rho.device)
    probe.average.mean = stored.tensor("rho.mean").to(rho.device) if "rho.mean" in stored.shapes else None
    steps, rows = stored.tensor("rho.steps").tolist(), stored.tensor("rho.trace").tolist()
    probe.trace = list(zip(steps, rows, strict=True))


TIMES = ("times", "times_mean", "focus", "focus_share")
"""Settings of a surface probe's training; a joint probe does not use them."""


def updates(optimizer: torch.optim.Optimizer) -> int:
    """Return the number of steps of an AdamW optimizer."""
    steps = [entry["step"] for entry in optimizer.state.values()]
    return int(torch.stack(steps).max()) if steps else 0


def check_same_run(found: Saved, config: Config, about: Mapping[str, Any], probe: str) -> None:
    """Raise an error if settings, schedule or data differ from those of the checkpoint; probe: see `differences`."""
    changed = differences(found.state.config, config, probe)
    changed += [f"the {key}" for key, value in about.items() if getattr(found.state, key) != value]
    if changed:
        raise InputError(
            f"{found.path} was started with different settings: {', '.join(changed)}; use another directory",
            argument="out",
        )


def differences(old: Mapping[str, Any], config: Config, probe: str = "") -> list[str]:
    """List the settings that differ from the recorded configuration and affect the result.

    probe: "joint", "surface" (where only the distribution of the times matters), or empty for other trainings.
    """
    changed, mine = [], config.to_dict()
    for section in ("network", "objective", "optimizer", "run", *(("probe",) if probe else ())):
        for key, value in mine[section].items():
            before = dict(old.get(section, {})).get(key, EARLIER.get(f"{section}.{key}", value))
            if key == "kinetic_average" and (probe != "joint" or config.objective.reduction == "groups"):
                continue  # no energies, or the same under both
            if section == "probe" and (key in TIMES) != (probe == "surface"):
                continue
            if key not in FREE.get(section, "").split() and before != value:
                changed.append(f"{section}.{key} ({before} -> {value})")
    steps = dict(old.get("run", {})).get("steps")
    if config.optimizer.decay == "cosine" and steps != config.run.steps:
        changed.append(f"run.steps, which the cosine decay needs ({steps} -> {config.run.steps})")
    return changed
