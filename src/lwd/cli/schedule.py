"""`lwd schedule show|plot|export|fit|path`."""

import argparse
from typing import Any

from lwd.cli import surfaces
from lwd.errors import InputError

SPEC_HELP = "a schedule.json, or offset:0.3, synchronous, cascade, cascade:0.9, polynomial:DEGREE"


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "schedule",
        help="show, draw, convert and fit schedules",
        description="Show, draw, convert and fit schedules.",
        epilog="example: lwd schedule show offset:0.3",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    show = actions.add_parser(
        "show", help="print a schedule and a table of its clocks", epilog="example: lwd schedule show offset:0.3"
    )
    show.add_argument("schedule", metavar="SCHEDULE", help=SPEC_HELP)
    show.add_argument("--points", type=int, metavar="N", help="rows of the table (default 11)")
    show.add_argument("--json", action="store_true", help="print the JSON of the schedule file instead")
    show.set_defaults(run=run_show)

    plot = actions.add_parser(
        "plot",
        help="draw one or more schedules",
        epilog="example: lwd schedule plot offset:0.3 learned.json --out both.png",
    )
    plot.add_argument("schedules", metavar="SCHEDULE", nargs="+", help=SPEC_HELP)
    plot.add_argument("--out", default="schedules.png", metavar="FILE", help="PNG, PDF or SVG (default schedules.png)")
    plot.set_defaults(run=run_plot)

    export = actions.add_parser(
        "export",
        help="write a schedule as JSON, or its curves as CSV",
        epilog="example: lwd schedule export offset:0.3 --out offset.json",
    )
    export.add_argument("schedule", metavar="SCHEDULE", help=SPEC_HELP)
    export.add_argument("--out", required=True, metavar="FILE", help=".json for the schedule, .csv for its curves")
    export.add_argument("--points", type=int, default=None, metavar="N", help="rows of the CSV (default 101)")
    export.set_defaults(run=run_export)

    surfaces.add_schedule_actions(actions)
    for action in (show, plot, export):
        action.add_argument(
            "--groups", metavar="A,B", help="groups of a schedule given by name (default texture,semantic)"
        )
        action.add_argument("--lead", metavar="A", help="the group that leads (default semantic, or the last)")


def run_show(arguments: argparse.Namespace) -> int:
    import json

    from lwd.report.tables import describe_schedule
    from lwd.schedule.io import read_provenance

    schedule, provenance = _parsed(arguments.schedule, arguments), read_provenance(arguments.schedule)
    if arguments.json:
        if arguments.points is not None:
            raise InputError("--points has no effect with --json; leave it out")
        print(json.dumps(schedule.to_dict() | ({"provenance": provenance} if provenance else {}), indent=2))
    else:
        print(describe_schedule(schedule, arguments.points or 11, provenance))
    return 0


def run_plot(arguments: argparse.Namespace) -> int:
    from lwd.report.plots import plot_schedules, save_figure

    save_figure(plot_schedules({text: _parsed(text, arguments) for text in arguments.schedules}), arguments.out)
    print(arguments.out)
    return 0


def run_export(arguments: argparse.Namespace) -> int:
    from lwd.report.tables import export_schedule
    from lwd.schedule.io import read_provenance

    schedule, provenance = _parsed(arguments.schedule, arguments), read_provenance(arguments.schedule)
    export_schedule(schedule, arguments.out, arguments.points, provenance)
    print(arguments.out)
    return 0


def _parsed(text: str, arguments: argparse.Namespace) -> Any:
    from lwd.schedule.io import parse_schedule

    return parse_schedule(text, None if arguments.groups is None else arguments.groups.split(","), arguments.lead)
