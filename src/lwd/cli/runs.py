"""`lwd runs show`, and shared parts of `lwd probe`, `lwd sweep` and `lwd train`."""

import argparse
import sys
from pathlib import Path
from typing import Any

from lwd.errors import InputError

INTERRUPTED = 3
"""Exit code of a run that was interrupted, saved its state and can continue."""


def add_parser(commands: Any) -> None:
    runs = commands.add_parser(
        "runs",
        help="inspect runs",
        description="Inspect runs of lwd probe and lwd train.",
        epilog="example: lwd runs show runs/lwd",
    )
    actions = runs.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser(
        "show", help="summary and curves of a run", epilog="example: lwd runs show runs/lwd --out curves.png"
    )
    show.add_argument("run_dir", metavar="DIR", help="directory of a probe or training")
    show.add_argument("--out", metavar="FILE", help="picture to write (default DIR/curves.png)")
    show.set_defaults(run=run_show)


def add_run_options(parser: Any) -> None:
    """Add the options of all commands that train a network."""
    add = parser.add_argument
    add("data", metavar="LATENTS", help="directory of shards (lwd encode)")
    add("--out", required=True, metavar="DIR", help="directory of the run")
    add("--preset", default="", metavar="NAME", help="a preset (lwd-xl, cifar-small, ...) or a YAML file")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting, e.g. run.batch=64")
    add("--steps", type=int, metavar="N", help="number of steps (run.steps; probe.steps for a probe)")
    add("--seed", type=int, metavar="N", help="random seed (run.seed)")
    add("--groups", metavar="A,B", help="groups to read, in channel order (default: all)")
    add("--text-model", metavar="DIR", help="train on captions: the network and text encoder of this model")
    add("--cpu", action="store_true", help="do not use a GPU")
    add("--wandb", action="store_true", help="also log to Weights & Biases")


def prepared(arguments: argparse.Namespace, shorts: dict[str, str], weak: bool = False) -> tuple[Any, Any, Any]:
    """Return configuration, data and devices of a run; shorts: settings that have their own option."""
    from lwd.training.config import load_config, weak_partner
    from lwd.training.devices import Devices
    from lwd.training.train import open_data

    preset = weak_partner(arguments.preset) if weak else arguments.preset
    changes, shorts = list(arguments.set), {"text_model": "text.model", **shorts}
    for name, key in shorts.items():
        value = getattr(arguments, name, None)
        if value is not None:
            changes.append(f"{key}={value}")
    try:
        config = load_config(preset, changes)
    except InputError as error:
        # Name the option that was typed, not the setting behind it.
        typed = {key: name for name, key in shorts.items() if getattr(arguments, name, None) is not None}
        raise InputError(str(error), argument=typed.get(error.argument, error.argument)) from error
    config = _with_text(config, arguments)
    groups = arguments.groups.split(",") if arguments.groups else None
    devices = Devices(config.run.precision, config.run.parallel, arguments.cpu, config.run.timeout)
    return config, open_data(arguments.data, config, groups, devices.device), devices


def _with_text(config: Any, arguments: argparse.Namespace) -> Any:
    """Take the text-to-image model of the initial weights, if they belong to one; download what is on the hub."""
    from lwd.training.config import with_changes
    from lwd.training.text import with_text_model

    if getattr(arguments, "init_from", None) is not None:
        arguments.init_from = _local(arguments.init_from)
        config = with_text_model(config, arguments.init_from)
    return with_changes(config, text={"model": _local(config.text.model)}) if config.text.model else config


def _local(name: str) -> str:
    """A directory, or a model by name, as it is; a hub id (owner/name) as the directory of its download."""
    from lwd.sampling.pipeline import resolve

    return name if Path(name).exists() or Path(name).parent.is_dir() else str(resolve(name))


def interrupted(step: int | None, main: bool) -> int:
    """Print that a run can continue, and return its exit code."""
    if main:
        where = "" if step is None else f" at step {step}"
        print(f"lwd: interrupted{where}; everything is saved, run the same command to continue", file=sys.stderr)
    return INTERRUPTED


class Progress:
    """A progress bar that appears with the first step, so that an error is one line without a bar."""

    def __init__(self, steps: int, main: bool, title: str) -> None:
        self.steps, self.main, self.title = steps, main, title
        self.bar: Any = None

    def __call__(self, trainer: Any) -> None:
        from tqdm import tqdm

        if self.bar is None:
            # In a log file, one line every 30 s is enough. The ETA of a resumed run counts only its own steps.
            pause, first = 0.1 if sys.stderr.isatty() else 30.0, trainer.step - 1
            options = {"unit": "step", "initial": first, "mininterval": pause, "dynamic_ncols": True}
            self.bar = tqdm(total=self.steps, desc=self.title, disable=not self.main, **options)
        if trainer.last_line and trainer.step % trainer.config.run.log_every == 0:
            shown = {k: v for k, v in trainer.last_line.items() if k == "total" or k.startswith(("flow", "kinetic"))}
            self.bar.set_postfix({name: f"{value:.3f}" for name, value in shown.items()}, refresh=False)
        self.bar.update(max(0, trainer.step - self.bar.n))

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *problem: object) -> None:
        if self.bar is not None:
            self.bar.close()


def run_show(arguments: argparse.Namespace) -> int:
    from lwd.report.plots import save_figure
    from lwd.report.runs import describe_run, plot_run

    run = Path(arguments.run_dir)
    if not run.is_dir():
        raise InputError(f"{run} is not a directory; pass the --out of lwd train or lwd probe")
    print(describe_run(run))
    out = arguments.out or run / "curves.png"
    save_figure(plot_run(run), out)
    print(f"picture:      {out}")
    return 0
