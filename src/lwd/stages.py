"""The paper's two stages as functions: learn a schedule with a probe, sweep its lambda, train under it."""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from lwd.checkpoint import load
from lwd.config import Config, with_changes
from lwd.data.reader import LatentReader
from lwd.data.shards import FEATURES
from lwd.errors import InputError
from lwd.files import write_json
from lwd.models.lightningdit import LightningDiT, LightningDiTConfig
from lwd.objective import FlowObjective
from lwd.pipeline import LWDPipeline
from lwd.probe.joint import RhoProbe, Verdict, judge
from lwd.report.plots import plot_schedules, save_figure
from lwd.report.runs import plot_probe
from lwd.report.sheets import sample_sheet, save_sheet
from lwd.representations.texture import TextureAutoencoder
from lwd.schedule.base import Schedule
from lwd.schedule.io import load_schedule, parse_schedule, read_provenance, save_schedule
from lwd.schedule.learned import Learnable, Polynomial
from lwd.train.devices import Devices
from lwd.train.trainer import Latents, Outcome, Trainer
from lwd.version import __version__

OnStep = Callable[[Trainer], object]
SCHEDULE, SWEEP = "schedule.json", "sweep.json"


@dataclass(frozen=True)
class Probed:
    """What a probe found; `schedule` is None when it was interrupted before its end."""

    outcome: Outcome
    schedule: Learnable | None = None
    verdict: Verdict | None = None


def open_data(directory: str | os.PathLike[str], config: Config, groups: Sequence[str] | None = None) -> LatentReader:
    """The shards of a directory, with alignment features if the objective needs them."""
    return LatentReader(directory, groups=groups, features=config.objective.align > 0)


def build_network(config: Config, data: Latents) -> LightningDiT:
    """The configured network for these data, initialised from the run's seed."""
    n = config.network
    changes: dict[str, Any] = {"classes": data.classes, "grid": data.size, "null_row": config.run.label_drop > 0}
    changes |= {"tap": n.tap, "projector_width": n.projector_width}
    changes |= _feature_channels(data)
    if n.size:
        network = LightningDiTConfig.of(n.size, data.layout, **changes)
    else:
        network = LightningDiTConfig(data.layout, n.depth, n.width, n.heads, patch=n.patch, **changes)
    torch.manual_seed(config.run.seed)
    return LightningDiT(network, n.recompute, n.compile)


def _feature_channels(data: object) -> dict[str, int]:
    if isinstance(data, LatentReader) and data.features:
        return {"features": data.shards[0].entries[FEATURES].shape[1]}
    return {}


def train(
    config: Config,
    data: Latents,
    out: str | os.PathLike[str],
    devices: Devices,
    on_step: OnStep | None = None,
    decoder: TextureAutoencoder | None = None,
    wandb: bool = False,
    network: torch.nn.Module | None = None,
) -> Outcome:
    """Stage II: train the final denoiser under a fixed schedule; run again to continue."""
    if not config.schedule:
        raise InputError("training needs a schedule: pass --schedule FILE (from lwd probe), offset:0.3 or synchronous")
    schedule = parse_schedule(config.schedule, data.layout.names)
    if isinstance(schedule, Learnable):
        schedule = schedule.freeze().to(devices.device)
    o = config.objective
    objective = FlowObjective(data.layout, o.weights, o.reduction, o.weight_gradient, cosine=o.cosine, align=o.align)
    about = {"by": "lwd train", "preset": config.name, "data": data.fingerprint, "seed": config.run.seed}
    about |= {"versions": _versions(), "schedule": read_provenance(config.schedule)}
    trainer = Trainer(
        config,
        data,
        out,
        network or build_network(config, data),
        schedule,
        devices,
        objective,
        wandb=wandb,
        provenance=about,
    )
    trainer.after_save = _sampler(config, Path(out), decoder, devices.device) if devices.main else None
    return trainer.run(on_step)


def probe(
    config: Config,
    data: Latents,
    out: str | os.PathLike[str],
    devices: Devices,
    on_step: OnStep | None = None,
    wandb: bool = False,
    network: torch.nn.Module | None = None,
) -> Probed:
    """Stage I: learn rho together with a temporary denoiser; writes schedule.json, trace.json and probe.png."""
    p, o = config.probe, config.objective
    if p.burn_in >= config.run.steps:
        raise InputError(f"probe.burn_in {p.burn_in} leaves none of the {config.run.steps} steps to average over")
    config = with_changes(config, objective={"cosine": 0.0, "align": 0.0})
    schedule = starting_schedule(data.layout.names, p.degree, p.start).to(devices.device)
    objective = FlowObjective(data.layout, o.weights, o.reduction, o.weight_gradient, kinetic=p.kinetic)
    rho = RhoProbe(schedule, p.rho_lr, p.burn_in)
    network = network or build_network(with_changes(config, network={"tap": 0}), data)
    trainer = Trainer(config, data, out, network, schedule, devices, objective, probe=rho, wandb=wandb)
    outcome = trainer.run(on_step)
    if not outcome.finished:
        return Probed(outcome)
    frozen, verdict = rho.finish()
    if devices.main:
        about = {"by": "lwd probe", "method": "joint", "lambda": p.kinetic, "reduction": o.reduction}
        about |= {"weights": objective.weights, "weight_gradient": o.weight_gradient, "steps": config.run.steps}
        about |= {"burn_in": p.burn_in, "start": p.start, "data": data.fingerprint, "seed": config.run.seed}
        about |= {"versions": _versions(), "verdict": asdict(verdict) | {"text": str(verdict)}}
        save_schedule(frozen, Path(out) / SCHEDULE, about)
        steps, rows = zip(*rho.trace, strict=True)
        write_json(Path(out) / "trace.json", {"format": "lwd.trace", "version": 1, "step": steps, "rho": rows})
        save_figure(plot_probe(frozen, rho.curves(), Path(out), str(verdict)), Path(out) / "probe.png")
    return Probed(outcome, frozen, verdict)


def starting_schedule(groups: Sequence[str], degree: int, start: float) -> Polynomial:
    """Where rho begins: at the identity, or the share `start` of the way to the collapsed curve."""
    if not start:
        return Polynomial(groups=groups, degree=degree)
    identity = Polynomial(groups=groups, degree=degree)
    shares = (1 - start) * identity.shares() + start * identity.extreme().shares()
    return Polynomial.from_shares(shares.tolist(), groups)


@dataclass(frozen=True)
class SweepRow:
    """One probe of a sweep."""

    kinetic: float
    schedule: Schedule
    verdict: Verdict


def sweep(
    config: Config,
    data: Latents,
    out: str | os.PathLike[str],
    kinetics: Sequence[float],
    devices: Devices,
    on_probe: Callable[[float], OnStep | None] | None = None,
) -> tuple[list[SweepRow], bool]:
    """A probe for each lambda (those already there are kept); the rows, and whether all were finished."""
    out, rows = Path(out), list[SweepRow]()
    for kinetic in sorted(set(kinetics)):
        folder = out / f"lambda-{kinetic:g}"
        one = with_changes(config, probe={"kinetic": kinetic})
        if not _is_done(folder, one):
            on_step = on_probe(kinetic) if on_probe else None
            if not probe(one, data, folder, devices, on_step).outcome.finished:
                return rows, False
        schedule = load_schedule(folder / SCHEDULE)
        assert isinstance(schedule, Learnable)
        found = read_provenance(folder / SCHEDULE).get("verdict", {})
        numbers = {key: found[key] for key in ("word", "distance", "moved", "departure") if key in found}
        rows.append(SweepRow(kinetic, schedule, Verdict(**numbers) if len(numbers) == 4 else judge(schedule)))
    if devices.main:
        _write_sweep(out, rows)
    return rows, True


def weakest_stable(rows: Sequence[SweepRow]) -> float | None:
    """The paper's rule: the smallest lambda whose curve did not collapse, and above which none did."""
    stable = None
    for row in sorted(rows, key=lambda row: -row.kinetic):
        if row.verdict.word == "collapsed":
            break
        stable = row.kinetic
    return stable


def _is_done(folder: Path, config: Config) -> bool:
    if not (folder / SCHEDULE).exists():
        return False
    about = read_provenance(folder / SCHEDULE)
    wanted: dict[str, Any] = {"lambda": config.probe.kinetic, "steps": config.run.steps, "seed": config.run.seed}
    wanted |= {"weight_gradient": config.objective.weight_gradient, "start": config.probe.start}
    changed = [f"{key} ({about.get(key)} -> {value})" for key, value in wanted.items() if about.get(key) != value]
    if changed:
        raise InputError(f"{folder} was probed with other settings: {', '.join(changed)}; choose another --out")
    return True


def _write_sweep(out: Path, rows: Sequence[SweepRow]) -> None:
    lines = [{"lambda": row.kinetic, "schedule": row.schedule.to_dict()} | asdict(row.verdict) for row in rows]
    head = {"format": "lwd.sweep", "version": 1, "weakest stable lambda": weakest_stable(rows)}
    write_json(out / SWEEP, head | {"probes": lines})
    curves = {f"λ = {row.kinetic:g} ({row.verdict.word})": row.schedule for row in rows}
    save_figure(plot_schedules(curves), out / "sweep.png")


def _versions() -> dict[str, str]:
    return {"lwd": __version__, "torch": torch.__version__}


def _sampler(
    config: Config, out: Path, decoder: TextureAutoencoder | None, device: torch.device
) -> Callable[[Path, int], None] | None:
    """Draw a grid from the averaged weights after a save, every run.sample_every steps."""
    every = config.run.sample_every
    if not every:
        return None

    def draw(checkpoint: Path, step: int) -> None:
        if step and step % every == 0:
            pipe = LWDPipeline(load(checkpoint, device), decoder.to(device) if decoder else None)
            sheet = sample_sheet(pipe, count=min(10, pipe.checkpoint.config.classes))
            save_sheet(sheet, out / "samples" / f"{step:08}.png")

    return draw
