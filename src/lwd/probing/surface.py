"""The surface probe: train one denoiser at independent local times, then tabulate its loss surfaces."""

import copy
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from lwd.checkpoints.directory import locate
from lwd.compute.devices import Autocast
from lwd.compute.order import mix
from lwd.errors import InputError
from lwd.io.files import model_digest
from lwd.io.tensors import read_safetensors
from lwd.latents.base import Latents
from lwd.latents.captions import CaptionReader
from lwd.latents.reader import LatentReader
from lwd.objective import FlowObjective, Reduction
from lwd.path import Velocity
from lwd.probing.joint import probe_config
from lwd.sampler import sample
from lwd.schedule.base import Schedule
from lwd.schedule.fixed import Synchronous
from lwd.schedule.io import parse_schedule
from lwd.surfaces.curvature import predicted_error
from lwd.surfaces.files import NAME, load_surfaces, save_surfaces
from lwd.surfaces.table import LEAST, GridSurfaces, SurfaceTable, TableOptions, smooth, tabulate
from lwd.training.config import Config, load_config, with_changes
from lwd.training.devices import Devices
from lwd.training.draws import Focus
from lwd.training.journal import read_metrics
from lwd.training.task import RunOptions, Task, prepare
from lwd.training.text import with_text_model
from lwd.training.train import Data, build_network, class_names, open_data, started, versions
from lwd.training.trainer import Outcome, Trainer

CALIBRATION = 32
"""Number of samples for measuring the scale of predicted errors."""


def surface_probe(
    config: Config | str,
    data: Data,
    out: str | os.PathLike[str],
    options: RunOptions | None = None,
    init_from: str | os.PathLike[str] | None = None,
) -> tuple[Outcome, SurfaceTable | None]:
    """Train at independent local times for probe.steps, then tabulate the surfaces. Run again to continue.

    Writes surfaces.safetensors and surfaces.json. The network stays in checkpoints/ and can sample under any schedule.
    The table is None if the run was interrupted. init_from: a checkpoint with the initial weights of a new run.

    Example:
        >>> latents, labels = torch.randn(64, 6, 4, 4), torch.arange(64) % 2
        >>> data = lwd.MemoryReader(latents, labels, lwd.Layout.of(texture=4, semantic=2))
        >>> changes = ["probe.steps=2", "probe.points=5", "probe.samples=32"]
        >>> small = ["network.depth=1", "network.width=16", "run.batch=8"]
        >>> outcome, table = lwd.surface_probe(lwd.load_config("cifar-small", changes + small), data, "runs/surface")
        >>> table.losses.shape  # one loss for each group at each of 5 x 5 pairs of local times
        torch.Size([25, 2])
    """
    config = with_text_model(load_config(config) if isinstance(config, str) else config, init_from)
    options, devices = prepare(options, config)
    config = probe_config(config)
    # A probe is short: an average over 10,000 steps would still contain the initial weights.
    config = with_changes(config, optimizer={"ema_warmup": True})
    data, p, o = open_data(data, config, device=devices.device), config.probe, config.objective
    if len(data.layout) < 2:
        raise InputError("a single group has no schedule to learn; a probe needs at least two groups")
    held = open_held(config, data)
    _check(p.points, p.samples, len(held))
    network = started(options.network or build_network(config, data), init_from)
    own = copy.deepcopy(options.network)  # training moves and wraps it; one of ours is built again
    objective = FlowObjective(data.layout, o.weights, o.reduction)
    about: dict[str, Any] = {"by": "lwd probe", "method": "surface", "data": data.fingerprint, "versions": versions()}
    curves = [parse_schedule(text, data.layout.names) for text in p.focus]
    focus = Focus(curves, p.focus_share if curves else 0.0)
    task = Task(network, objective, None, provenance=about | class_names(data), focus=focus)
    outcome = Trainer(config, data, out, task, options).run()
    if not outcome.finished:
        return outcome, None
    about |= {"steps": p.steps, "seed": config.run.seed, "weights": objective.weights}
    about |= {"reduction": o.reduction, "points": p.points, "samples": p.samples}
    about |= {"held_out": held.fingerprint} if held is not data else {}
    about |= {"times": p.times, "times_mean": p.times_mean} if p.times != "uniform" else {}
    about |= {"focus": list(p.focus), "focus_share": p.focus_share} if p.focus else {}
    if devices.main:
        about |= {"network": model_digest(locate(out)), "epochs": round(p.steps * config.run.batch / len(data), 2)}
    devices.wait()
    if not devices.from_main(devices.main and _is_there(Path(out), about)):
        del network, task  # the trained copy, which may be sharded
        reader = (own or build_network(config, data)).to(devices.device).eval()
        _tabulate(Path(out), reader, held, about, (devices, options.on_table))
    devices.wait()
    return outcome, load_surfaces(Path(out) / NAME)[0]


def _tabulate(out: Path, network: nn.Module, data: Latents, about: Mapping[str, Any], how: tuple[Devices, Any]) -> None:
    """Tabulate the surfaces of the newest averaged weights, all processes together, and write them.

    The main process also measures the scale of predicted errors.
    """
    devices, progress = how
    device = next(network.parameters()).device
    network.load_state_dict(read_safetensors(locate(out) / "model.safetensors", str(device)))
    latents, labels = _drawn(data, about["samples"], about["seed"], device)
    pair = len(data.layout) == 2  # a sampler's error is predicted from a grid
    low = getattr(devices, "bf16", devices.accelerator.mixed_precision == "bf16")
    fast = Autocast(network) if low else None
    options = TableOptions(progress, (devices.rank, devices.world), devices.total, fast)
    table = tabulate(network, latents, labels, data.layout, about["points"], pair, options)
    if devices.main:
        scales = calibrate(fast or network, table, labels[:CALIBRATION], data.size, device=device) if pair else {}
        save_surfaces(table, out / NAME, {**about, "error_scales": scales, "falling": _falling(out)})


def _falling(out: Path) -> float | None:
    """By how much the loss fell over the last fifth of the steps, as a share of the loss in the fifth before."""
    lines = [line for line in read_metrics(out / "metrics.jsonl") if "total" in line]
    last = lines[-1]["step"] if lines else 0
    early = [line["total"] for line in lines if 0.6 * last < line["step"] <= 0.8 * last]
    late = [line["total"] for line in lines if 0.8 * last < line["step"]]
    if not early or not late:
        return None
    return float(1 - (sum(late) / len(late)) / (sum(early) / len(early)))


def table_size(points: int, groups: int) -> int:
    """Number of points at which surfaces are tabulated."""
    return points**2 if groups == 2 else 32 * points + 2**groups


def _check(points: int, samples: int, count: int) -> None:
    """Check the settings of the table before training."""
    if points < 5:
        raise InputError(f"probe.points must be at least 5 (along each clock), got {points}", argument="points")
    if not LEAST <= samples <= count:
        raise InputError(
            f"probe.samples must be between {LEAST} and the number of images ({count}), got {samples}",
            argument="samples",
        )


def _is_there(out: Path, about: Mapping[str, Any]) -> bool:
    try:
        found = load_surfaces(out / NAME)[1]
        return {key: value for key, value in found.items() if key not in ("error_scales", "falling")} == dict(about)
    except InputError:
        return False


def calibrate(
    velocity: Velocity,
    table: SurfaceTable,
    labels: Any,
    size: Sequence[int],
    steps: int = 16,
    schedule: Schedule | None = None,
    device: torch.device | str = "cpu",
) -> dict[str, float]:
    """Measure the ratio of the real error of a sampler to `predicted_error`, by order; the synchronous schedule's.

    A denoiser that works under every schedule needs one comparison with real samples: euler for order 1 and heun for
    order 2, against heun with eight times as many steps. schedule: for a denoiser that was trained under one.
    """
    surfaces = smooth(table)
    assert isinstance(surfaces, GridSurfaces)
    schedule, scales = schedule or Synchronous(table.layout.names), dict[str, float]()
    where: dict[str, Any] = {"size": tuple(size), "device": device, "labels": labels}
    where["seeds"] = range(len(labels))
    exact = sample(velocity, schedule, table.layout, method="heun", steps=8 * steps, **where).z
    for order, method in ((1, "euler"), (2, "heun")):
        found = sample(velocity, schedule, table.layout, method=method, steps=steps, **where).z
        real = float((found - exact).square().mean().sqrt())
        scales[str(order)] = real / predicted_error(schedule, surfaces, table.layout, steps, order)
    return scales


def error_scale(provenance: Mapping[str, Any], order: int) -> float:
    """Return the measured scale of predicted errors of this order, or 1 if none was measured."""
    scales = provenance.get("error_scales")
    value = scales.get(str(order)) if isinstance(scales, Mapping) else None
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) and value > 0 else 1.0


def open_held(config: Config, data: Latents) -> Latents:
    """The images to tabulate on: those of probe.held_out, on the scale of the training latents, or training images.

    A short probe has seen each training image at most a few times; a long one has learned them by heart.
    """
    where = config.probe.held_out
    if not where:
        return data
    classes = data.classes if config.run.labels else None
    held = (
        CaptionReader(where, data.layout, data.encoder, config.run.labels)
        if isinstance(data, CaptionReader)
        else LatentReader(where, data.layout.names, data.statistics, classes=classes)
    )
    if held.fingerprint == data.fingerprint:
        raise InputError(f"{where} has the training images; held-out images must be others", argument="held_out")
    if (held.layout, held.size) != (data.layout, data.size):
        raise InputError(
            f"{where} has the groups {held.layout} on {held.size}, but training {data.layout} on {data.size}",
            argument="held_out",
        )
    if not config.run.labels:
        held.ignore_labels()
    return held


def _drawn(data: Latents, samples: int, seed: int, device: torch.device) -> tuple[Tensor, Any]:
    """Draw images in an order of their own, with their conditions."""
    batch = data.batch(0, samples, mix(seed, 1) % 2**32, 0, 1, False).to(device)
    return batch.latents, batch.labels


def surface_settings(provenance: Mapping[str, Any]) -> tuple[dict[str, float], Reduction]:
    """Return the weights and reduction of the probe, for objectives on its surfaces."""
    weights, reduction = provenance.get("weights", {}), provenance.get("reduction", "channels")
    good = isinstance(weights, Mapping) and all(isinstance(value, (int, float)) for value in weights.values())
    try:
        return {str(k): float(v) for k, v in weights.items()} if good else {}, cast(Reduction, reduction)
    except OverflowError as error:
        raise InputError(f"the weights of the surfaces are too large: {weights}") from error


def parse_weights(text: str | None, names: Sequence[str]) -> dict[str, float] | None:
    """Parse weights such as `semantic=2,texture=1`."""
    if text is None:
        return None
    found = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise InputError(f"weights must be written as {names[-1]}=2, got {text!r}", argument="weights")
    return found
