"""`lwd studio`."""

import argparse
from typing import Any

from lwd.cli.options import add_settings, given
from lwd.studio.settings import StudioSettings


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "studio",
        help="draw schedules, sample and compare in the browser",
        description="Open a page in the browser: draw a schedule on the loss surfaces, watch samples form on its "
        "clocks, compare two settings, and export the schedule and the command. Needs pip install 'lwd[studio]'.",
        epilog="example: lwd studio --model fashion",
    )
    add = parser.add_argument
    add(
        "--model",
        dest="models",
        action="append",
        metavar="DIR",
        help="a model, run, surface probe or demo directory; repeatable (default fashion)",
    )
    add("--surfaces", metavar="DIR", help="loss surfaces of models that have none of their own")
    add("--decoder", metavar="DIR", help="texture autoencoder of models that have none of their own")
    add_settings(parser, StudioSettings, "port", "host", "share", "threads", host="ADDRESS")
    add("--open", action="store_true", help="also open the page in a browser")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from lwd.errors import import_extra

    values = given(arguments, StudioSettings)
    if "models" in values:
        values["models"] = tuple(values["models"])
    settings = StudioSettings(**values)
    import_extra("gradio", "studio", "lwd studio")
    from lwd.studio.app import launch

    launch(settings, browser=arguments.open)
    return 0
