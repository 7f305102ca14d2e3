"""`lwd surfaces show`, `lwd schedule fit` and `lwd schedule path`."""

import argparse
import sys
from typing import Any

from lwd.cli.options import add_settings, given, parse_numbers
from lwd.errors import InputError
from lwd.surfaces.settings import MeasureSettings, PathSettings

DEFAULTS = PathSettings()
FAMILIES = "polynomial, bernstein (convex) or monotone, each with :DEGREE"


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "surfaces",
        help="show loss surfaces, or measure them on a trained model",
        description="Show loss surfaces, or measure those of a model without training.",
        epilog="example: lwd surfaces show runs/surface",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser(
        "show",
        help="heat maps over the two clocks, with schedules drawn on top",
        epilog="example: lwd surfaces show runs/surface offset:0.3 learned.json --out surfaces.png",
    )
    show.add_argument("surfaces", metavar="SURFACES", help="a surfaces.safetensors, or the directory of its probe")
    show.add_argument("schedules", nargs="*", metavar="SCHEDULE", help="schedules to draw on top")
    show.add_argument("--out", default="surfaces.png", metavar="FILE", help="PNG, PDF or SVG (default surfaces.png)")
    show.set_defaults(run=run_show)
    add_measure(actions)


def add_measure(actions: Any) -> None:
    """Add `lwd surfaces measure`."""
    measure = actions.add_parser(
        "measure",
        help="measure losses, energies and curvature of a model in a band around its offset, without training",
        epilog="example: lwd surfaces measure --model SeFi-Image/SeFi-Image-1B-Base latents --out surfaces",
    )
    add = measure.add_argument
    add("latents", metavar="LATENTS", help="shards written by lwd encode, with captions for a text-to-image model")
    add("--model", required=True, metavar="DIR", help="a checkpoint, a SeFi-Image directory, a hub id, or a name")
    add("--band", metavar="LOW:HIGH", help="offsets to measure (default: until the loss breaks down)")
    add("--tolerance", type=float, default=0.05, metavar="X", help="error that sets the number of steps (default 0.05)")
    add_settings(measure, MeasureSettings, *MeasureSettings.model_fields)
    add("--device", metavar="NAME", help="cpu, cuda or cuda:N (default: a GPU if there is one)")
    add("--out", required=True, metavar="DIR", help="directory for surfaces.safetensors and surfaces.json")
    measure.set_defaults(run=run_measure)


def run_measure(a: argparse.Namespace) -> int:
    from tqdm import tqdm

    from lwd.compute.devices import choose_device
    from lwd.probing.measure import checkpoint_steps, measure_surfaces
    from lwd.report.surfaces import offsets_table
    from lwd.sampling.pipeline import LWDPipeline
    from lwd.sampling.text import TextPipeline

    if not a.tolerance > 0:
        raise InputError(f"the error must be > 0, got {a.tolerance}", argument="tolerance")
    settings = MeasureSettings(**given(a, MeasureSettings))
    pipe = LWDPipeline.from_pretrained(a.model, choose_device(a.device))
    texts = pipe.embed if isinstance(pipe, TextPipeline) else None
    with tqdm(desc="measuring", unit="image", disable=None) as bar:
        found = measure_surfaces(pipe.checkpoint, a.latents, a.out, settings, a.band, texts, bar.update)
    steps = checkpoint_steps(pipe.checkpoint)
    print(offsets_table(found.rows, steps, found.trained))
    print(f"band: {found.band}{'' if a.band else ' (estimated)'}    lowest flow loss: offset {found.best.offset:.3g}")
    needed = found.steps_for(a.tolerance, steps)
    rough = "" if settings.calibration else " (not calibrated)"
    print(f"an error of {a.tolerance:g} under that offset takes about {needed} Euler steps{rough}")
    print(f"surfaces: {a.out}    next: lwd schedule path {a.out} --out path")
    return 0


def add_schedule_actions(actions: Any) -> None:
    """Add `lwd schedule fit` and `lwd schedule path`."""
    fit = actions.add_parser(
        "fit",
        help="find the best schedule on loss surfaces for one lambda",
        epilog="example: lwd schedule fit runs/surface --kinetic 0.02 --out schedule.json",
    )
    path = actions.add_parser(
        "path",
        help="find the best schedule for every lambda; recommend a lambda",
        epilog="example: lwd schedule path runs/surface --steps 20 --out path",
    )
    for parser in (fit, path):
        parser.add_argument(
            "surfaces", metavar="SURFACES", help="a surfaces.safetensors, or the directory of its probe"
        )
        best = "; or optimum, the best monotone path" if parser is fit else ""
        parser.add_argument("--family", default="polynomial", metavar="NAME", help=FAMILIES + best)
        parser.add_argument("--weights", metavar="G=W,...", help="weights of the groups (default: the probe's)")
        parser.add_argument(
            "--reduction", choices=("channels", "groups"), help="average over channels or groups (default: the probe's)"
        )
        parser.add_argument(
            "--weight-gradient",
            choices=("exact", "stop", "none"),
            default="exact",
            help="how gradients treat the rate factor (default exact)",
        )
    fit.add_argument("--kinetic", type=float, required=True, metavar="LAMBDA", help="weight of the kinetic energy")
    fit.add_argument("--out", required=True, metavar="FILE", help="schedule file (.json)")
    fit.set_defaults(run=run_fit)
    path.add_argument("--lambdas", metavar="L1,L2,...", help="lambdas to solve for (default 16 from 0.0003 to 0.3)")
    path.add_argument("--steps", type=int, metavar="N", help="also choose a lambda for a sampler with N steps")
    path.add_argument("--order", type=int, metavar="P", help=f"order of the sampler, 1 or 2 (default {DEFAULTS.order})")
    add_settings(path, PathSettings, "tolerance")
    path.add_argument("--out", required=True, metavar="DIR", help="directory for path.png, path.json and the schedules")
    path.set_defaults(run=run_path)


def run_show(arguments: argparse.Namespace) -> int:
    from lwd.objective import FlowObjective
    from lwd.probing.surface import surface_settings
    from lwd.report.plots import save_figure
    from lwd.report.surfaces import plot_surfaces
    from lwd.schedule.io import parse_schedule
    from lwd.surfaces.files import load_surfaces

    table, provenance = load_surfaces(arguments.surfaces)
    curves = {text.removesuffix(".json"): parse_schedule(text, table.layout.names) for text in arguments.schedules}
    for name, value in provenance.items():
        print(f"{name + ':':<11} {value}")
    for g, name in enumerate(table.layout.names):
        shares = (table.loss_errors[:, g] / table.losses[:, g].clamp(min=1e-12)).mean()
        low, high = float(table.losses[:, g].min()), float(table.losses[:, g].max())
        print(f"{name + ':':<11} loss {low:.4f} to {high:.4f}, mean standard error {float(shares):.2%}")
    objective = FlowObjective(table.layout, *surface_settings(provenance))
    _print_potential(table, objective, provenance)
    save_figure(plot_surfaces(table, curves, objective), arguments.out)
    print(f"picture:    {arguments.out}")
    return 0


def _print_potential(table: Any, objective: Any, provenance: dict[str, Any]) -> None:
    from lwd.surfaces.potential import potential

    if len(table.layout) == 2:
        print(f"potential:  {potential(table, objective, provenance.get('falling'))}")


def _opened(a: argparse.Namespace) -> tuple[Any, Any, dict[str, Any]]:
    """The table, the objective, and what a schedule file says about both."""
    from lwd.objective import FlowObjective
    from lwd.probing.surface import parse_weights, surface_settings
    from lwd.surfaces.files import load_surfaces

    table, provenance = load_surfaces(a.surfaces)
    weights, reduction = surface_settings(provenance)
    given = parse_weights(a.weights, table.layout.names)
    objective = FlowObjective(
        table.layout, weights if given is None else given, a.reduction or reduction, a.weight_gradient
    )
    about = {"by": f"lwd schedule {a.action}", "surfaces": provenance, "family": a.family}
    about |= {"weights": objective.weights, "reduction": objective.reduction, "weight_gradient": a.weight_gradient}
    about["kinetic_average"] = objective.kinetic_average
    return table, objective, about


def run_fit(arguments: argparse.Namespace) -> int:
    from dataclasses import replace

    from lwd.schedule.io import save_schedule
    from lwd.surfaces.family import parse_family
    from lwd.surfaces.integral import path_objective
    from lwd.surfaces.lambda_path import solve_for
    from lwd.surfaces.optimum import NODES, GlobalOptimum, at_the_edge, global_optimum
    from lwd.surfaces.table import smooth
    from lwd.surfaces.verdict import judge

    table, objective, about = _opened(arguments)
    surfaces = smooth(table)
    about |= {"lambda": arguments.kinetic}
    if arguments.family == "optimum":
        schedule = global_optimum(surfaces, replace(objective, kinetic=arguments.kinetic))
        value = float(path_objective(schedule, surfaces, replace(objective, kinetic=arguments.kinetic), NODES))
        save_schedule(schedule, arguments.out, about | {"objective": value})
        print(f"objective {value:.5f}: the lowest of all monotone paths with the clock of the lead as tau")
        if edge := at_the_edge(schedule):
            print(edge, file=sys.stderr)
    else:
        family = parse_family(arguments.family, objective.layout.names)
        lead = getattr(family, "lead", None)
        optimum = GlobalOptimum(surfaces, objective, lead=lead) if len(objective.layout) == 2 else None
        point = solve_for(arguments.kinetic, family, surfaces, objective, optimum=optimum)
        verdict = judge(point.schedule)
        save_schedule(point.schedule, arguments.out, about | {"objective": point.objective, "verdict": str(verdict)})
        floor = "" if point.floor is None else f" ({point.objective - point.floor:.5f} above the best monotone path)"
        print(f"objective {point.objective:.5f}{floor}, flow {point.flow:.5f}, kinetic energy {point.energy:.4f}")
        print(verdict, file=sys.stderr if point.collapsed else sys.stdout)
    print(f"schedule: {arguments.out}")
    return 0


def run_path(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from tqdm import tqdm

    from lwd.io.files import check_writable
    from lwd.probing.surface import error_scale
    from lwd.report.surfaces import path_table, rule_of, write_path
    from lwd.surfaces.family import parse_family
    from lwd.surfaces.lambda_path import lambda_path
    from lwd.surfaces.table import smooth

    a, out = arguments, Path(arguments.out)
    values = given(a, PathSettings)
    for name in ("order", "tolerance"):
        if a.steps is None and name in values:
            raise InputError(f"--{name} has no effect without --steps N")
    if a.lambdas:
        values["lambdas"] = tuple(parse_numbers(a.lambdas, "lambdas"))
    table, objective, about = _opened(a)
    scale = error_scale(about["surfaces"], values.get("order", DEFAULTS.order))
    settings = PathSettings(**values, scale=scale)
    family = parse_family(a.family, objective.layout.names)
    check_writable(out)
    with tqdm(total=len(settings.lambdas), desc="solving", unit="lambda", disable=None) as bar:
        path = lambda_path(family, smooth(table), objective, settings, bar.update)
    print(path_table(path))
    write_path(path, out, about | rule_of(settings))
    _print_potential(table, objective, about["surfaces"])
    _print_choice(path, settings, out)
    return 0


def _print_choice(path: Any, settings: PathSettings, out: Any) -> None:
    from lwd.surfaces.lambda_path import MARGIN

    if path.weakest is None and all(point.outside > MARGIN for point in path.points):
        print("no curve of this family stays inside the band; measure a wider one, or try bernstein", file=sys.stderr)
    elif path.weakest is None:
        print("every lambda collapsed; try larger ones", file=sys.stderr)
    else:
        below = f", collapse below {path.threshold:.4g}" if path.threshold is not None else ", no curve collapsed"
        print(f"weakest stable lambda: {path.weakest.kinetic:.4g}{below}    {out}/weakest.json")
    if path.chosen is not None:
        met = "within" if path.chosen.error <= settings.tolerance else "the smallest, but above"
        error = f"predicted error {path.chosen.error:.3g}, {met} {settings.tolerance:g}"
        print(f"for {settings.steps} steps: lambda {path.chosen.kinetic:.4g} ({error})    {out}/chosen.json")
    print(f"picture: {out}/path.png    numbers: {out}/path.json")
