"""Joint probes from several starts: the identity can be a local minimum, so the lowest of several curves is kept."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from lwd.checkpoints.directory import locate
from lwd.errors import InputError
from lwd.io.files import read_json, write_json
from lwd.io.tensors import read_safetensors
from lwd.latents.base import Latents
from lwd.objective import FlowObjective
from lwd.path import interpolate
from lwd.probing.formats import StartLine, StartsFile
from lwd.probing.joint import SCHEDULE, Probed, probe
from lwd.schedule.base import Schedule
from lwd.schedule.io import read_provenance, save_schedule
from lwd.training.config import Config, with_changes
from lwd.training.draws import draw
from lwd.training.task import OnStep, RunOptions, prepare
from lwd.training.train import Data, build_network, open_data

STARTS = "starts.json"
BATCHES = 16
"""Batches after a probe's last step on which the objectives are compared."""


def probe_starts(
    config: Config,
    data: Data,
    out: str | os.PathLike[str],
    options: RunOptions | None = None,
    on_probe: Callable[[float], OnStep | None] | None = None,
) -> tuple[Probed | None, dict[float, float]]:
    """A joint probe from each of probe.starts, in out/start-S; the one with the lowest objective, and all objectives.

    The objective of a start is that of its averaged network under its frozen curve, on batches that follow the last
    step of the probe (images that it has not seen, unless it has been through all of them), with the same noise and
    times for every start. Returns None if interrupted; run again to continue.
    """
    options, devices = prepare(options, config)
    data, found = open_data(data, config), dict[float, tuple[Probed, float]]()
    starts = tuple(dict.fromkeys(config.probe.starts))
    if not starts:
        raise InputError("probe.starts names no start; write for example 0,0.3,0.9", argument="starts")
    for start in starts:
        one = with_changes(config, probe={"start": start, "starts": ()})
        folder = Path(out) / f"start-{start:g}"
        on_step = on_probe(start) if on_probe else options.on_step
        probed = probe(one, data, folder, replace(options, on_step=on_step))
        if probed.schedule is None:
            return None, {}
        found[start] = probed, held_out_objective(one, data, folder, probed.schedule)
    values = {start: value for start, (_, value) in found.items()}
    best = min(values, key=lambda start: values[start])
    chosen = found[best][0]
    assert chosen.schedule is not None
    if devices.main:
        about = read_provenance(Path(out) / f"start-{best:g}" / SCHEDULE)
        rows = [{"start": start, "objective": value} for start, value in values.items()]
        StartsFile(best=best, starts=[StartLine(**row) for row in rows]).write(Path(out) / STARTS)
        write_json(Path(out) / "trace.json", read_json(Path(out) / f"start-{best:g}" / "trace.json"))
        save_schedule(chosen.schedule, Path(out) / SCHEDULE, about | {"starts": rows})
    devices.wait()
    return chosen, values


@torch.no_grad()
def held_out_objective(config: Config, data: Latents, run: Path, schedule: Schedule) -> float:
    """Flow + lambda kinetic of a probe's averaged network along its curve, on the batches after its last step."""
    o, p, batch = config.objective, config.probe, config.run.batch
    network = build_network(with_changes(config, network={"tap": 0}), data).eval()
    network.load_state_dict(read_safetensors(locate(run) / "model.safetensors"))
    objective = FlowObjective(
        data.layout, o.weights, o.reduction, o.weight_gradient, p.kinetic, kinetic_average=o.kinetic_average
    )
    total, shape = 0.0, (batch, data.layout.channels, *data.size)
    for step in range(p.steps, p.steps + BATCHES):
        part = data.batch(step, batch, config.run.seed, 0, 1, False)
        draws = draw((config.run.seed, 1, step), shape, slice(0, batch))
        times, rates = draws.clocks(schedule)
        z, target = interpolate(part.latents, draws.noise, times, data.layout)
        total += float(objective(network(z, times, part.labels), target, rates.detach()).total)
    return total / BATCHES
