"""The paper's two stages as functions: learn a schedule with a probe, sweep its lambda, train under it."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from lwd.checkpoint import load, locate
from lwd.config import Config, with_changes
from lwd.data.latents import Latents
from lwd.data.reader import LatentReader
from lwd.data.shards import FEATURES
from lwd.errors import InputError
from lwd.files import model_digest, read_json, write_json
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
from lwd.train.snapshot import differences
from lwd.train.trainer import Outcome, Trainer
from lwd.version import __version__
from lwd.weights import mismatches, read_safetensors

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
    try:
        return LatentReader(directory, groups=groups, features=config.objective.align > 0)
    except InputError as error:
        if FEATURES not in str(error):
            raise
        hint = "alignment needs features: lwd encode --features, or --set objective.align=0"
        raise InputError(f"{error}; {hint}") from error


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
    init_from: str | os.PathLike[str] | None = None,
) -> Outcome:
    """Stage II: train the final denoiser under a fixed schedule; run again to continue.

    init_from: a checkpoint whose weights a new run begins with, such as a surface probe's.
    """
    if not config.schedule:
        raise InputError("training needs a schedule: pass --schedule FILE (from lwd probe), offset:0.3 or synchronous")
    schedule = parse_schedule(config.schedule, data.layout.names)
    if isinstance(schedule, Learnable):
        schedule = schedule.freeze().to(devices.device)
    o = config.objective
    objective = FlowObjective(data.layout, o.weights, o.reduction, o.weight_gradient, cosine=o.cosine, align=o.align)
    if not o.align:  # a projector that nothing trains would only be carried along
        config = with_changes(config, network={"tap": 0})
    about = {"by": "lwd train", "preset": config.name, "data": data.fingerprint, "seed": config.run.seed}
    about |= {"versions": versions(), "schedule": read_provenance(config.schedule)}
    network = network or build_network(config, data)
    if init_from is not None:
        about["init_from"] = load_into(network, init_from)
    trainer = Trainer(
        config,
        data,
        out,
        network,
        schedule,
        devices,
        objective,
        wandb=wandb,
        provenance=about,
    )
    trainer.after_save = _sampler(config, Path(out), decoder, devices.device) if devices.main else None
    return trainer.run(on_step)


def load_into(network: torch.nn.Module, source: str | os.PathLike[str]) -> str:
    """Copy a checkpoint's weights into a network of the same shape; its digest. A projector may be missing."""
    directory = locate(source)
    if not (directory / "model.safetensors").exists():
        raise InputError(
            f"{directory}/model.safetensors does not exist; --init-from takes the --out of a probe or training"
        )
    weights = read_safetensors(directory / "model.safetensors")
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    own = {name: shape for name, shape in shapes.items() if not name.startswith("repa_projector") or name in weights}
    problems = mismatches(own, {name: tensor for name, tensor in weights.items() if name in own or name not in shapes})
    if problems:
        raise InputError(f"{directory} does not fit this network: " + "; ".join(problems))
    network.load_state_dict(weights, strict=False)
    return model_digest(directory)


def probe(
    config: Config,
    data: Latents,
    out: str | os.PathLike[str],
    devices: Devices,
    on_step: OnStep | None = None,
    wandb: bool = False,
    network: torch.nn.Module | None = None,
    schedule: Learnable | None = None,
) -> Probed:
    """Stage I: learn rho together with a temporary denoiser; writes schedule.json, trace.json and probe.png.

    schedule: where rho starts, of any family; by default the configured Polynomial.
    """
    p, o = config.probe, config.objective
    if p.burn_in >= p.steps:
        raise InputError(f"probe.burn_in {p.burn_in} leaves none of the {p.steps} steps to average over")
    config = with_changes(
        config, objective={"cosine": 0.0, "align": 0.0}, network={"tap": 0}, run={"steps": p.steps, "sample_every": 0}
    )
    schedule = schedule or starting_schedule(data.layout.names, p.degree, p.start)
    schedule = schedule.to(devices.device)
    objective = FlowObjective(data.layout, o.weights, o.reduction, o.weight_gradient, kinetic=p.kinetic)
    rho = RhoProbe(schedule, p.rho_lr, p.burn_in)
    network = network or build_network(config, data)
    trainer = Trainer(config, data, out, network, schedule, devices, objective, probe=rho, wandb=wandb)
    outcome = trainer.run(on_step)
    if not outcome.finished:
        return Probed(outcome)
    frozen, verdict = rho.finish()
    if devices.main:
        about = {"by": "lwd probe", "method": "joint", "lambda": p.kinetic, "reduction": o.reduction}
        about |= {"weights": objective.weights, "weight_gradient": o.weight_gradient, "steps": p.steps}
        about |= {"burn_in": p.burn_in, "start": p.start, "data": data.fingerprint, "seed": config.run.seed}
        about |= {"versions": versions(), "verdict": asdict(verdict) | {"text": str(verdict)}}
        _write_probe(Path(out), frozen, rho, verdict, about)
    devices.wait()  # the others may read what was just written
    return Probed(outcome, frozen, verdict)


def _write_probe(out: Path, frozen: Learnable, rho: RhoProbe, verdict: Verdict, about: Mapping[str, Any]) -> None:
    """The schedule last: where it is, the probe is done."""
    steps, rows = zip(*rho.trace, strict=True)
    write_json(out / "trace.json", {"format": "lwd.trace", "version": 1, "step": steps, "rho": rows})
    save_figure(plot_probe(frozen, rho.curves(), out, str(verdict)), out / "probe.png")
    save_schedule(frozen, out / SCHEDULE, about)


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
    wandb: bool = False,
) -> tuple[list[SweepRow], bool]:
    """A probe for each lambda (those already there are kept); the rows, and whether all were finished."""
    out, rows = Path(out), list[SweepRow]()
    for kinetic in sorted(set(kinetics)):
        folder = out / f"lambda-{kinetic:g}"
        one = with_changes(config, probe={"kinetic": kinetic})
        # The main process looks; the others must not see a directory in another state.
        if not devices.from_main(_is_done(folder, one, data.fingerprint) if devices.main else 0):
            on_step = on_probe(kinetic) if on_probe else None
            if not probe(one, data, folder, devices, on_step, wandb).outcome.finished:
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


def _is_done(folder: Path, config: Config, data: str) -> bool:
    """Whether a probe is there; one of other data or settings is refused, not reused."""
    if not (folder / SCHEDULE).exists():
        return False
    about = read_json(folder / "run.json")
    old = about.get("config") if isinstance(about, Mapping) else None
    if not isinstance(old, Mapping):
        raise InputError(f"{folder / 'run.json'} does not hold a probe's settings; choose another --out")
    quiet = with_changes(config, objective={"cosine": 0.0, "align": 0.0}, network={"tap": 0})
    changed = differences(old, with_changes(quiet, run={"steps": config.probe.steps}), probe=True)
    steps = dict(old.get("probe", {})).get("steps")
    changed += [f"probe.steps ({steps} -> {config.probe.steps})"] if steps != config.probe.steps else []
    changed += ["the data"] if about.get("data") != data else []
    if changed:
        raise InputError(f"{folder} was probed with other settings: {', '.join(changed)}; choose another --out")
    return True


def _write_sweep(out: Path, rows: Sequence[SweepRow]) -> None:
    lines = [{"lambda": row.kinetic, "schedule": row.schedule.to_dict()} | asdict(row.verdict) for row in rows]
    head = {"format": "lwd.sweep", "version": 1, "weakest stable lambda": weakest_stable(rows)}
    write_json(out / SWEEP, head | {"probes": lines})
    curves = {f"λ = {row.kinetic:g} ({row.verdict.word})": row.schedule for row in rows}
    save_figure(plot_schedules(curves), out / "sweep.png")


def versions() -> dict[str, str]:
    """What computed a result."""
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
