"""`lwd probe` and `lwd sweep`."""

import argparse
from pathlib import Path
from typing import Any

from lwd.cli import progress as shown
from lwd.cli.options import parse_numbers
from lwd.cli.runs import Progress, add_run_options, interrupted, prepared
from lwd.errors import InputError

SHORTS = {
    "steps": "probe.steps",
    "seed": "run.seed",
    "start": "probe.start",
    "starts": "probe.starts",
    "kinetic": "probe.kinetic",
    "points": "probe.points",
    "samples": "probe.samples",
    "held_out": "probe.held_out",
    "weight_gradient": "objective.weight_gradient",
}
FLOW_ONLY = ["objective.cosine=0", "objective.align=0"]
"""A probe has no auxiliary losses, so it needs no features."""


def add_parser(commands: Any) -> None:
    probe = commands.add_parser(
        "probe",
        help="learn a schedule for a pair of representations (Stage I)",
        description="Learn the schedule together with a temporary denoiser. Run again to continue.",
        epilog="example: lwd probe latents --preset cifar-small --kinetic 0.02 --out runs/probe",
    )
    sweep = commands.add_parser(
        "sweep",
        help="run a probe for each of several lambdas; find the weakest that does not collapse",
        description="Run a probe for each lambda (the paper's Figure 2). Run again to continue.",
        epilog="example: lwd sweep latents --preset cifar-small --kinetic 0.01,0.02,0.04 --out runs/sweep",
    )
    for parser in (probe, sweep):
        add_run_options(parser)
        add = parser.add_argument
        add("--weight-gradient", choices=("exact", "stop", "none"), help="how gradients treat the rate factor")
        add("--start", type=float, metavar="S", help="initial curve: from 0 (identity) to 1 (collapsed)")
    add = probe.add_argument
    add("--method", choices=("joint", "surface"), default="joint", help="joint (the paper), or surface (every lambda)")
    add("--points", type=int, metavar="N", help="grid points along each clock (surface only)")
    add("--samples", type=int, metavar="N", help="number of images at each point (surface only)")
    add("--held-out", metavar="LATENTS", help="latents of other images for the surfaces (surface only)")
    add("--kinetic", type=float, metavar="LAMBDA", help="weight of the kinetic energy (joint only)")
    add("--starts", metavar="S1,S2,...", help="several starts, e.g. 0,0.3,0.9; keeps the lowest (joint only)")
    add("--init-from", metavar="DIR", help="initial weights (a checkpoint, or a text-to-image model)")
    sweep.add_argument("--kinetic", required=True, metavar="L1,L2,...", help="the lambdas to probe")
    probe.set_defaults(run=run_probe)
    sweep.set_defaults(run=run_sweep)


def run_probe(arguments: argparse.Namespace) -> int:
    from lwd.probing.joint import probe
    from lwd.report.plots import save_figure
    from lwd.report.runs import plot_probe
    from lwd.training.task import RunOptions

    if arguments.method == "surface":
        return _run_surface(arguments)
    for name in ("points", "samples", "held_out"):
        if getattr(arguments, name) is not None:
            raise InputError(f"--{name.replace('_', '-')} has no effect on a joint probe; add --method surface")
    if arguments.start is not None and arguments.starts is not None:
        raise InputError("--start has no effect with --starts; add it to the list")
    arguments.set += FLOW_ONLY
    if arguments.starts is not None:
        arguments.starts = parse_numbers(arguments.starts, "starts")
    config, data, devices = prepared(arguments, SHORTS)
    if config.probe.starts:
        if arguments.init_from is not None:
            raise InputError("--init-from has no effect with --starts; use --start")
        return _run_starts(arguments, config, data, devices)
    with Progress(config.probe.steps, devices.main, "probing") as progress:
        options = RunOptions(devices, on_step=progress, wandb=arguments.wandb)
        found = probe(config, data, arguments.out, options, init_from=arguments.init_from)
    if found.schedule is None or found.history is None:
        return interrupted(found.outcome.step, devices.main)
    if devices.main:
        out = Path(arguments.out)
        save_figure(plot_probe(found.schedule, found.history, out, str(found.verdict)), out / "probe.png")
        print(f"{found.verdict}\nschedule: {out}/schedule.json    picture: {out}/probe.png")
    return 0


def _run_starts(arguments: argparse.Namespace, config: Any, data: Any, devices: Any) -> int:
    from lwd.probing.starts import probe_starts
    from lwd.report.plots import save_figure
    from lwd.report.runs import plot_probe
    from lwd.training.task import RunOptions

    bars: list[Progress] = []

    def on_probe(start: float) -> Progress:
        bars.append(Progress(config.probe.steps, devices.main, f"start {start:g}"))
        return bars[-1]

    options = RunOptions(devices, wandb=arguments.wandb)
    found, values = probe_starts(config, data, arguments.out, options, on_probe)
    for bar in bars:
        bar.__exit__()
    if found is None or found.schedule is None or found.history is None:
        return interrupted(None, devices.main)
    if devices.main:
        out, best = Path(arguments.out), min(values, key=lambda start: values[start])
        run = out / f"start-{best:g}"
        save_figure(plot_probe(found.schedule, found.history, run, str(found.verdict)), out / "probe.png")
        for start, value in values.items():
            print(f"start {start:<5g} objective {value:.5f}" + ("   kept" if start == best else ""))
        print(f"{found.verdict}\nschedule: {out}/schedule.json    picture: {out}/probe.png")
    return 0


def _run_surface(arguments: argparse.Namespace) -> int:
    from lwd.probing.surface import surface_probe, table_size
    from lwd.training.task import RunOptions

    for name in ("kinetic", "start", "starts", "weight_gradient"):
        if getattr(arguments, name) is not None:
            option = name.replace("_", "-")
            raise InputError(f"--{option} has no effect on a surface probe; use it with lwd schedule fit or path")
    arguments.set += FLOW_ONLY
    config, data, devices = prepared(arguments, SHORTS)
    total = table_size(config.probe.points, len(data.layout)) * config.probe.samples
    counted = shown.Later(-(-total // devices.world), "tabulating", shown=devices.main)
    with Progress(config.probe.steps, devices.main, "probing") as progress, counted:
        options = RunOptions(devices, on_step=progress, on_table=counted.update, wandb=arguments.wandb)
        outcome, table = surface_probe(config, data, arguments.out, options, arguments.init_from)
    if table is None:
        return interrupted(outcome.step, devices.main)
    if devices.main:
        print(f"surfaces: {arguments.out}/surfaces.safetensors    next: lwd schedule path {arguments.out} --out DIR")
    return 0


def run_sweep(arguments: argparse.Namespace) -> int:
    from lwd.probing.sweep import still_moving, sweep, weakest_stable
    from lwd.report.plots import plot_schedules, save_figure
    from lwd.training.task import RunOptions

    try:
        kinetics = [float(part) for part in arguments.kinetic.split(",")]
    except ValueError:
        raise InputError(f"--kinetic needs numbers such as 0.01,0.02,0.04; got {arguments.kinetic!r}") from None
    arguments.kinetic = None
    arguments.set += FLOW_ONLY
    config, data, devices = prepared(arguments, SHORTS)
    bars: list[Progress] = []

    def on_probe(kinetic: float) -> Progress:
        bars.append(Progress(config.probe.steps, devices.main, f"lambda {kinetic:g}"))
        return bars[-1]

    options = RunOptions(devices, wandb=arguments.wandb)
    rows, finished = sweep(config, data, arguments.out, kinetics, options, on_probe)
    for bar in bars:
        bar.__exit__()
    if not finished:
        return interrupted(None, devices.main)
    if devices.main:
        curves = {f"λ = {row.kinetic:g} ({row.verdict.word})": row.schedule for row in rows}
        save_figure(plot_schedules(curves), Path(arguments.out) / "sweep.png")
        for row in rows:
            middle = float(row.schedule.times(0.5).min())
            print(f"lambda {row.kinetic:<8g} slowest clock at 0.5: {middle:.3f}   {row.verdict}")
        best, moving = weakest_stable(rows), still_moving(rows)
        if all(row.verdict.word == "collapsed" for row in rows):
            print("every lambda collapsed; try larger ones")
        elif best is None:
            print("no lambda has a stable curve yet")
        else:
            print(f"weakest stable lambda: {best:g}")
        if moving:
            print(f"still moving, so neither stable nor collapsed: {', '.join(f'{k:g}' for k in moving)}; run longer")
        print(f"picture: {arguments.out}/sweep.png    numbers: {arguments.out}/sweep.json")
    return 0
