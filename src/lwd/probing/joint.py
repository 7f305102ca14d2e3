"""The paper's Stage I (Algorithm 1): learn rho together with a temporary denoiser, freeze it, discard the denoiser."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from lwd.errors import InputError
from lwd.objective import FlowObjective
from lwd.probing.formats import TraceFile
from lwd.schedule.io import save_schedule
from lwd.schedule.learned import Learnable, Polynomial
from lwd.surfaces.verdict import Verdict
from lwd.training.config import Config, ProbeSettings, load_config, with_changes
from lwd.training.rho import RhoProbe
from lwd.training.task import RunOptions, Task, prepare
from lwd.training.text import with_text_model
from lwd.training.train import Data, build_network, open_data, started, versions
from lwd.training.trainer import Outcome, Trainer

SCHEDULE = "schedule.json"


@dataclass(frozen=True)
class Probed:
    """The result of a probe; `schedule`, `verdict` and `history` are None if it was interrupted."""

    outcome: Outcome
    schedule: Learnable | None = None
    verdict: Verdict | None = None
    history: tuple[list[int], Tensor] | None = None
    """Steps, and the times of the schedule at each of them: (steps, points, n)."""


def probe(
    config: Config | str,
    data: Data,
    out: str | os.PathLike[str],
    options: RunOptions | None = None,
    schedule: Learnable | None = None,
    init_from: str | os.PathLike[str] | None = None,
) -> Probed:
    """Learn a schedule together with a temporary denoiser; writes schedule.json and trace.json. Run again to continue.

    schedule: the initial schedule, of any family; by default the configured Polynomial.
    init_from: a checkpoint with the denoiser's initial weights.

    Example:
        >>> latents, labels = torch.randn(64, 6, 4, 4), torch.arange(64) % 2
        >>> data = lwd.MemoryReader(latents, labels, lwd.Layout.of(texture=4, semantic=2))
        >>> changes = ["probe.steps=4", "probe.burn_in=2", "run.batch=8", "network.depth=1", "network.width=16"]
        >>> found = lwd.probe(lwd.load_config("cifar-small", changes), data, "runs/probe")
        >>> found.schedule == lwd.load_schedule("runs/probe/schedule.json")
        True
    """
    config = with_text_model(load_config(config) if isinstance(config, str) else config, init_from)
    options, devices = prepare(options, config)
    p, o = config.probe, config.objective
    _check(p)
    config = probe_config(config)
    data = open_data(data, config, device=devices.device)
    schedule = schedule or starting_schedule(data.layout.names, p.degree, p.start)
    schedule = schedule.to(devices.device)
    objective = FlowObjective(
        data.layout, o.weights, o.reduction, o.weight_gradient, p.kinetic, kinetic_average=o.kinetic_average
    )
    rho = RhoProbe(schedule, p.rho_lr, p.burn_in)
    task = Task(started(options.network or build_network(config, data), init_from), objective, schedule, rho)
    outcome = Trainer(config, data, out, task, options).run()
    if not outcome.finished:
        return Probed(outcome)
    frozen, verdict = rho.finish()
    if devices.main:
        about = {"by": "lwd probe", "method": "joint", "lambda": p.kinetic, "reduction": o.reduction}
        about |= {
            "kinetic_average": o.kinetic_average,
            "weights": objective.weights,
            "weight_gradient": o.weight_gradient,
            "steps": p.steps,
        }
        about |= {"burn_in": p.burn_in, "start": p.start, "data": data.fingerprint, "seed": config.run.seed}
        about |= {"versions": versions(), "verdict": asdict(verdict) | {"text": str(verdict)}}
        _write(Path(out), frozen, rho, about)
    devices.wait()  # other processes may read these files
    return Probed(outcome, frozen, verdict, rho.curves())


def _check(probe: ProbeSettings) -> None:
    if probe.burn_in >= probe.steps:
        raise InputError(
            f"probe.burn_in={probe.burn_in} leaves none of the {probe.steps} steps to average rho; lower it",
            argument="probe.burn_in",
        )
    if probe.focus or probe.times != "uniform":
        name = "probe.focus" if probe.focus else "probe.times"
        raise InputError(f"{name} has no effect on a joint probe; use it with the surface method", argument=name)


def probe_config(config: Config) -> Config:
    """Turn the configuration of a training into that of a probe: probe.steps, and no auxiliary losses."""
    flow_only = {"cosine": 0.0, "align": 0.0}
    return with_changes(
        config, objective=flow_only, network={"tap": 0}, run={"steps": config.probe.steps, "sample_every": 0}
    )


def _write(out: Path, frozen: Learnable, rho: RhoProbe, about: Mapping[str, Any]) -> None:
    """Write trace.json, then schedule.json: if the schedule exists, the probe is done."""
    steps, rows = zip(*rho.trace, strict=True)
    TraceFile(step=list(steps), rho=list(rows)).write(out / "trace.json")
    save_schedule(frozen, out / SCHEDULE, about)


def starting_schedule(groups: Sequence[str], degree: int, start: float) -> Polynomial:
    """Return the initial schedule: the identity, or a curve `start` of the way to the collapsed curve."""
    identity = Polynomial(groups=groups, degree=degree)
    if not start:
        return identity
    shares = (1 - start) * identity.shares() + start * identity.extremes()[0].shares()
    return Polynomial.from_shares(shares.tolist(), groups)
