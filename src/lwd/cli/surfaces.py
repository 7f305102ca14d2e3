"""`lwd surfaces show`, and what `lwd schedule fit | path` do with surfaces."""

import argparse
import sys
from typing import Any

from lwd.errors import InputError

FAMILIES = "polynomial, bernstein (convex) or monotone, each with :DEGREE"


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "surfaces",
        help="look at the loss surfaces of a surface probe",
        description="Look at loss surfaces.",
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


def add_schedule_actions(actions: Any) -> None:
    """`lwd schedule fit` and `lwd schedule path`."""
    fit = actions.add_parser(
        "fit",
        help="the best schedule on loss surfaces, for one lambda",
        epilog="example: lwd schedule fit runs/surface --kinetic 0.02 --out schedule.json",
    )
    path = actions.add_parser(
        "path",
        help="the best schedule for every lambda, and which lambda to take",
        epilog="example: lwd schedule path runs/surface --steps 20 --out path",
    )
    for parser in (fit, path):
        parser.add_argument("surfaces", metavar="SURFACES", help="a surfaces.safetensors, or its probe's directory")
        best = "; or optimum, the best of all paths" if parser is fit else ""
        parser.add_argument("--family", default="polynomial", metavar="NAME", help=FAMILIES + best)
        parser.add_argument("--weights", metavar="G=W,...", help="of the groups (default: the probe's)")
        parser.add_argument("--reduction", choices=("channels", "groups"), help="default: the probe's")
        parser.add_argument(
            "--weight-gradient", choices=("exact", "stop", "none"), default="exact", help="default exact"
        )
    fit.add_argument("--kinetic", type=float, required=True, metavar="LAMBDA", help="weight of the kinetic energy")
    fit.add_argument("--out", required=True, metavar="FILE", help="the schedule (.json)")
    fit.set_defaults(run=run_fit)
    path.add_argument("--lambdas", metavar="L1,L2,...", help="which (default 16 from 0.0003 to 0.3)")
    path.add_argument("--steps", type=int, metavar="N", help="also choose for a sampler with N steps")
    path.add_argument("--order", type=int, metavar="P", help="of that sampler: 1 or 2 (default 2)")
    path.add_argument("--tolerance", type=float, metavar="E", help="error it may have (default 0.05)")
    path.add_argument("--out", required=True, metavar="DIR", help="path.png, path.json and the schedules go there")
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
        print(f"{name + ':':<11} loss {low:.4f} to {high:.4f}, standard error {float(shares):.2%} in the mean")
    objective = FlowObjective(table.layout, *surface_settings(provenance))
    save_figure(plot_surfaces(table, curves, objective), arguments.out)
    print(f"picture:    {arguments.out}")
    return 0


def _opened(a: argparse.Namespace) -> tuple[Any, Any, dict[str, Any]]:
    from lwd.objective import FlowObjective
    from lwd.probing.surface import parse_weights, surface_settings
    from lwd.surfaces.files import load_surfaces
    from lwd.surfaces.table import smooth

    table, provenance = load_surfaces(a.surfaces)
    weights, reduction = surface_settings(provenance)
    given = parse_weights(a.weights, table.layout.names)
    objective = FlowObjective(
        table.layout, weights if given is None else given, a.reduction or reduction, a.weight_gradient
    )
    about = {"by": f"lwd schedule {a.action}", "surfaces": provenance, "family": a.family}
    about |= {"weights": objective.weights, "reduction": objective.reduction, "weight_gradient": a.weight_gradient}
    return smooth(table), objective, about


def run_fit(arguments: argparse.Namespace) -> int:
    from dataclasses import replace

    from lwd.schedule.io import parse_family, save_schedule
    from lwd.surfaces.integral import path_objective
    from lwd.surfaces.lambda_path import solve_for
    from lwd.surfaces.optimum import NODES, GlobalOptimum, at_the_edge, global_optimum
    from lwd.surfaces.verdict import judge

    surfaces, objective, about = _opened(arguments)
    about |= {"lambda": arguments.kinetic}
    if arguments.family == "optimum":
        schedule = global_optimum(surfaces, replace(objective, kinetic=arguments.kinetic))
        value = float(path_objective(schedule, surfaces, replace(objective, kinetic=arguments.kinetic), NODES))
        save_schedule(schedule, arguments.out, about | {"objective": value})
        print(f"objective {value:.5f}: the least of all monotone paths on which the lead's clock is tau")
        if edge := at_the_edge(schedule):
            print(edge, file=sys.stderr)
    else:
        family = parse_family(arguments.family, objective.layout.names)
        lead = getattr(family, "lead", None)
        optimum = GlobalOptimum(surfaces, objective, lead=lead) if len(objective.layout) == 2 else None
        point = solve_for(arguments.kinetic, family, surfaces, objective, optimum=optimum)
        verdict = judge(point.schedule)
        save_schedule(point.schedule, arguments.out, about | {"objective": point.objective, "verdict": str(verdict)})
        floor = "" if point.floor is None else f" ({point.objective - point.floor:.5f} above the best of all paths)"
        print(f"objective {point.objective:.5f}{floor}, flow {point.flow:.5f}, kinetic energy {point.energy:.4f}")
        print(verdict, file=sys.stderr if point.collapsed else sys.stdout)
    print(f"schedule: {arguments.out}")
    return 0


def run_path(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from tqdm import tqdm

    from lwd.io.files import check_writable
    from lwd.probing.surface import error_scale
    from lwd.report.surfaces import path_table, write_path
    from lwd.schedule.io import parse_family
    from lwd.surfaces.lambda_path import LAMBDAS, lambda_path

    a, out = arguments, Path(arguments.out)
    for name in ("order", "tolerance"):
        if a.steps is None and getattr(a, name) is not None:
            raise InputError(f"--{name} has no effect without --steps N")
    a.order, a.tolerance = 2 if a.order is None else a.order, 0.05 if a.tolerance is None else a.tolerance
    surfaces, objective, about = _opened(a)
    family = parse_family(a.family, objective.layout.names)
    lambdas = _lambdas(a.lambdas) if a.lambdas else LAMBDAS
    check_writable(out)
    with tqdm(total=len(lambdas), desc="solving", unit="lambda", disable=None) as bar:
        rule = {"steps": a.steps, "tolerance": a.tolerance, "order": a.order}
        scale = error_scale(about["surfaces"], a.order)
        path = lambda_path(family, surfaces, objective, lambdas, **rule, scale=scale, progress=bar.update)
    print(path_table(path))
    write_path(path, out, about | rule | {"scale": scale})
    _say(path, a, out)
    return 0


def _say(path: Any, a: argparse.Namespace, out: Any) -> None:
    if path.weakest is None:
        print("every lambda collapsed; try larger ones", file=sys.stderr)
    else:
        below = f", collapse below {path.threshold:.4g}" if path.threshold is not None else ", nothing collapsed"
        print(f"weakest stable lambda: {path.weakest.kinetic:.4g}{below}    {out}/weakest.json")
    if path.chosen is not None:
        met = "within" if path.chosen.error <= a.tolerance else "the least, not within"
        error = f"predicted error {path.chosen.error:.3g}, {met} {a.tolerance:g}"
        print(f"for {a.steps} steps: lambda {path.chosen.kinetic:.4g} ({error})    {out}/chosen.json")
    print(f"picture: {out}/path.png    numbers: {out}/path.json")


def _lambdas(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"--lambdas is a list of numbers such as 0.01,0.02, got {text!r}") from error
