"""`lwd probe`, `lwd sweep`, `lwd train` and `lwd runs show`."""

import argparse
import sys
from typing import Any

from lwd.errors import InputError

INTERRUPTED = 3
"""Exit code of a run that was asked to stop, saved its state and can be continued."""


def add_parser(commands: Any) -> None:
    probe = commands.add_parser(
        "probe",
        help="learn a schedule for a pair of representations (Stage I)",
        description="Learn the schedule together with a temporary denoiser. Run again to continue.",
        epilog="example: lwd probe latents --preset cifar-small --kinetic 0.02 --out runs/probe",
    )
    sweep = commands.add_parser(
        "sweep",
        help="probes for several lambdas; names the weakest that does not collapse",
        description="One probe for each lambda (the paper's Figure 2). Run again to continue.",
        epilog="example: lwd sweep latents --preset cifar-small --kinetic 0.01,0.02,0.04 --out runs/sweep",
    )
    train = commands.add_parser(
        "train",
        help="train the denoiser under a fixed schedule (Stage II)",
        description="Train under a fixed schedule. Run again to continue; torchrun and accelerate share the work.",
        epilog="example: lwd train latents --preset cifar-small --schedule runs/probe/schedule.json --out runs/lwd",
    )
    for parser in (probe, sweep, train):
        add = parser.add_argument
        add("data", metavar="LATENTS", help="a directory of shards (lwd encode)")
        add("--out", required=True, metavar="DIR", help="the run's directory")
        add("--preset", default="", metavar="NAME", help="a preset (lwd-xl, cifar-small, ...) or a YAML file")
        add("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting, e.g. run.batch=64")
        add("--steps", type=int, metavar="N", help="how many (the setting run.steps; probe.steps for a probe)")
        add("--seed", type=int, metavar="N", help="short for --set run.seed=N")
        add("--groups", metavar="A,B", help="groups to read, in channel order (default: all)")
        add("--cpu", action="store_true", help="do not use a GPU")
        add("--wandb", action="store_true", help="also log to Weights & Biases")
    _add_special(probe, sweep, train)
    probe.set_defaults(run=run_probe)
    sweep.set_defaults(run=run_sweep)
    train.set_defaults(run=run_train)
    _add_runs(commands)


def _add_special(probe: Any, sweep: Any, train: Any) -> None:
    for parser in (probe, sweep):
        parser.add_argument(
            "--weight-gradient", choices=("exact", "stop", "none"), help="how the rate correction teaches the schedule"
        )
        parser.add_argument("--start", type=float, metavar="S", help="start of rho: 0 identity ... 1 collapsed")
    probe.add_argument(
        "--method", choices=("joint", "surface"), default="joint", help="joint (the paper's), or surface: every lambda"
    )
    probe.add_argument("--points", type=int, metavar="N", help="surface: grid points along each clock (default 11)")
    probe.add_argument("--samples", type=int, metavar="N", help="surface: images at each point (default 384)")
    probe.add_argument("--kinetic", type=float, metavar="LAMBDA", help="weight of the kinetic energy")
    sweep.add_argument("--kinetic", required=True, metavar="L1,L2,...", help="the lambdas to probe")
    train.add_argument("--schedule", metavar="SPEC", help="a schedule.json, or offset:0.3, synchronous")
    train.add_argument("--init-from", metavar="DIR", help="begin with these weights (a surface probe, a checkpoint)")
    train.add_argument("--weak", action="store_true", help="the preset's weak partner, for AutoGuidance")
    train.add_argument("--decoder", metavar="DIR", help="texture autoencoder for sample grids (run.sample_every)")


def _add_runs(commands: Any) -> None:
    runs = commands.add_parser(
        "runs", help="look at runs", description="Look at runs.", epilog="example: lwd runs show runs/lwd"
    )
    actions = runs.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser(
        "show", help="summary and curves of a run", epilog="example: lwd runs show runs/lwd --out curves.png"
    )
    show.add_argument("run_dir", metavar="DIR", help="the directory of a probe or training")
    show.add_argument("--out", metavar="FILE", help="the picture (default DIR/curves.png)")
    show.set_defaults(run=run_show)


def run_probe(arguments: argparse.Namespace) -> int:
    from lwd.stages import probe

    if arguments.method == "surface":
        return _run_surface(arguments)
    for name in ("points", "samples"):
        if getattr(arguments, name) is not None:
            raise InputError(f"--{name} has no effect on a joint probe; add --method surface")
    config, data, devices = _prepared(arguments)
    with _Progress(config.probe.steps, devices.main, "probing") as progress:
        found = probe(config, data, arguments.out, devices, progress, arguments.wandb)
    if found.verdict is None:
        return _interrupted(found.outcome.step, devices.main)
    if devices.main:
        print(f"{found.verdict}\nschedule: {arguments.out}/schedule.json    picture: {arguments.out}/probe.png")
    return 0


def _run_surface(arguments: argparse.Namespace) -> int:
    from tqdm import tqdm

    from lwd.surface_probe import surface_probe

    for name in ("kinetic", "start", "weight_gradient"):
        if getattr(arguments, name) is not None:
            option = name.replace("_", "-")
            raise InputError(f"--{option} has no effect on a surface probe, which serves all; see lwd schedule fit")
    config, data, devices = _prepared(arguments)
    points = 11 if arguments.points is None else arguments.points
    samples = 384 if arguments.samples is None else arguments.samples
    places = points**2 if len(data.layout) == 2 else 32 * points + 2 ** len(data.layout)
    with _Progress(config.probe.steps, devices.main, "probing") as progress:
        bar = tqdm(total=places * samples, desc="tabulating", unit="image", disable=True if not devices.main else None)
        outcome, table = surface_probe(
            config,
            data,
            arguments.out,
            devices,
            progress,
            arguments.wandb,
            points=points,
            samples=samples,
            progress=bar.update,
        )
        bar.close()
    if table is None:
        return _interrupted(outcome.step, devices.main)
    if devices.main:
        print(f"surfaces: {arguments.out}/surfaces.safetensors    next: lwd schedule path {arguments.out} --out DIR")
    return 0


def run_sweep(arguments: argparse.Namespace) -> int:
    from lwd.stages import sweep, weakest_stable

    try:
        kinetics = [float(part) for part in arguments.kinetic.split(",")]
    except ValueError:
        raise InputError(f"--kinetic takes numbers, for example 0.01,0.02,0.04; got {arguments.kinetic!r}") from None
    arguments.kinetic = None
    config, data, devices = _prepared(arguments)
    bars: list[_Progress] = []

    def on_probe(kinetic: float) -> _Progress:
        bars.append(_Progress(config.probe.steps, devices.main, f"lambda {kinetic:g}"))
        return bars[-1]

    rows, finished = sweep(config, data, arguments.out, kinetics, devices, on_probe, arguments.wandb)
    for bar in bars:
        bar.__exit__()
    if not finished:
        return _interrupted(None, devices.main)
    if devices.main:
        for row in rows:
            middle = float(row.schedule.times(0.5).min())
            print(f"lambda {row.kinetic:<8g} slowest clock at 0.5: {middle:.3f}   {row.verdict}")
        best = weakest_stable(rows)
        if best is None:
            print("every lambda collapsed; try larger ones")
        else:
            moving = any(row.kinetic == best and row.verdict.word == "moving" for row in rows)
            print(f"weakest stable lambda: {best:g}" + (" (still moving: run longer to be sure)" if moving else ""))
        print(f"picture: {arguments.out}/sweep.png    numbers: {arguments.out}/sweep.json")
    return 0


def run_train(arguments: argparse.Namespace) -> int:
    from lwd.representations.texture import TextureAutoencoder
    from lwd.stages import train

    decoder = TextureAutoencoder.load(arguments.decoder) if arguments.decoder else None
    config, data, devices = _prepared(arguments)
    if decoder is not None and not config.run.sample_every:
        raise InputError("--decoder has no effect without sample grids; add --set run.sample_every=1000")
    with _Progress(config.run.steps, devices.main, "training") as progress:
        options = {"decoder": decoder, "wandb": arguments.wandb, "init_from": arguments.init_from}
        outcome = train(config, data, arguments.out, devices, progress, **options)
    if not outcome.finished:
        return _interrupted(outcome.step, devices.main)
    if devices.main:
        skipped = f", {outcome.skipped} non-finite steps skipped" if outcome.skipped else ""
        print(f"{arguments.out}: {outcome.step} steps{skipped}; model: {arguments.out}/checkpoints/{outcome.step:08}")
    return 0


def run_show(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from lwd.report.plots import save_figure
    from lwd.report.runs import describe_run, plot_run

    run = Path(arguments.run_dir)
    if not run.is_dir():
        raise InputError(f"{run} is not a directory; give the --out of lwd train or lwd probe")
    print(describe_run(run))
    out = arguments.out or run / "curves.png"
    save_figure(plot_run(run), out)
    print(f"picture:      {out}")
    return 0


def _prepared(arguments: argparse.Namespace) -> tuple[Any, Any, Any]:
    from dataclasses import replace

    from lwd.config import load_config, weak_partner, with_changes
    from lwd.stages import open_data
    from lwd.train.devices import Devices

    preset = arguments.preset
    if getattr(arguments, "weak", False):
        preset = weak_partner(preset)
    changes = list(arguments.set)
    probing = arguments.command in ("probe", "sweep")
    shorts = {"steps": "probe.steps" if probing else "run.steps", "seed": "run.seed", "start": "probe.start"}
    shorts |= {"kinetic": "probe.kinetic", "weight_gradient": "objective.weight_gradient"}
    for name, key in shorts.items():
        value = getattr(arguments, name, None)
        if value is not None:
            changes.append(f"{key}={value}")
    config = load_config(preset, changes)
    if probing:
        config = with_changes(config, objective={"cosine": 0.0, "align": 0.0})
    elif arguments.schedule is not None:
        config = replace(config, schedule=arguments.schedule)
    groups = arguments.groups.split(",") if arguments.groups else None
    data = open_data(arguments.data, config, groups)
    return config, data, Devices(config.run.precision, config.run.parallel, arguments.cpu)


def _interrupted(step: int | None, main: bool) -> int:
    if main:
        where = "" if step is None else f" at step {step}"
        print(f"lwd: interrupted{where}; everything is saved, run the same command to continue", file=sys.stderr)
    return INTERRUPTED


class _Progress:
    """A progress bar that appears with the first step, so that a mistake gets one line and no bar."""

    def __init__(self, steps: int, main: bool, title: str) -> None:
        self.steps, self.main, self.title = steps, main, title
        self.bar: Any = None

    def __call__(self, trainer: Any) -> None:
        from tqdm import tqdm

        if self.bar is None:
            # In a cluster's log file a line every half minute is enough. A resumed run's ETA counts its own steps only.
            pause, first = 0.1 if sys.stderr.isatty() else 30.0, trainer.step - 1
            options = {"unit": "step", "initial": first, "mininterval": pause, "dynamic_ncols": True}
            self.bar = tqdm(total=self.steps, desc=self.title, disable=not self.main, **options)
        if trainer.last_line and trainer.step % trainer.config.run.log_every == 0:
            shown = {k: v for k, v in trainer.last_line.items() if k == "total" or k.startswith(("flow", "kinetic"))}
            self.bar.set_postfix({name: f"{value:.3f}" for name, value in shown.items()}, refresh=False)
        self.bar.update(max(0, trainer.step - self.bar.n))

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *problem: object) -> None:
        if self.bar is not None:
            self.bar.close()
