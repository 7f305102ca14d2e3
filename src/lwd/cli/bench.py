"""`lwd bench sampler`."""

import argparse
from pathlib import Path
from typing import Any

from lwd.cli.options import add_settings, given
from lwd.cli.progress import bar
from lwd.cli.sample import add_guidance, sample_settings
from lwd.errors import InputError
from lwd.sampling.settings import BenchmarkSettings, SampleSettings


def add_parser(commands: Any) -> None:
    bench = commands.add_parser(
        "bench",
        help="compare solvers on a model",
        description="Compare solvers on a model.",
        epilog="example: lwd bench sampler runs/lwd --out bench",
    )
    actions = bench.add_subparsers(dest="action", metavar="ACTION", required=True)
    parser = actions.add_parser(
        "sampler",
        help="measure error and quality against cost; recommend solver, steps and placement",
        description="Try solvers, steps and placements on a model, and recommend one.",
        epilog="example: lwd bench sampler runs/lwd --decoder ae --reference fashion/test --out bench",
    )
    add = parser.add_argument
    add("model", metavar="MODEL", help="a checkpoint, a run of lwd train, or a hub id")
    add("--out", required=True, metavar="DIR", help="directory for sampler.png and sampler.json")
    add_settings(parser, BenchmarkSettings, "tolerance", "count")
    add("--budgets", metavar="N,...", help="network evaluations per sample to try (default 4,6,8,12,16,24,32,48)")
    add_guidance(parser)
    add("--reference", metavar="REF", help="also measure the Fréchet distance to these images (see lwd evaluate)")
    add_settings(parser, BenchmarkSettings, "samples", "encoder")
    add("--decoder", metavar="DIR", help="texture autoencoder (default: the model's own)")
    add_settings(parser, SampleSettings, "threads")
    add("--device", metavar="NAME", help="cpu, cuda or cuda:N (default: a GPU if there is one)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from lwd.compute.devices import threads
    from lwd.evaluation.quality import Quality
    from lwd.io.files import check_writable
    from lwd.report.plots import save_figure
    from lwd.report.samplers import plot_samplers, sampler_table
    from lwd.sampling.benchmark import OPTIMISE, RTOLS, front, recommend, sampler_errors, trial_settings
    from lwd.sampling.benchmark import write_benchmark as write
    from lwd.sampling.generator import open_generator

    a, out, settings = arguments, Path(arguments.out), _settings(arguments)
    a.count = settings.count
    generator = open_generator(a.model, sample_settings(a), a.guide, a.decoder, a.device)
    check_writable(out)
    quality = Quality(generator, a.reference, settings.samples, settings.encoder) if a.reference else None
    flow = generator.flow()
    total = len(trial_settings(flow, settings.budgets, OPTIMISE)) + len(RTOLS)
    with threads(generator.settings.threads), bar(total, "trying samplers", "setting") as shown:
        trials = sampler_errors(flow, settings.budgets, progress=shown.update)
    chosen = recommend(trials, settings.tolerance)
    write(out, generator, settings.tolerance, trials, chosen)
    found: dict[float, tuple[float, float]] | None = None
    if quality:
        best, found = front(trials), {}
        with bar(len(best), "measuring quality", "setting") as shown:
            for trial in best:
                found[trial.nfe] = quality(trial)
                shown.update()
        write(out, generator, settings.tolerance, trials, chosen, found)
    save_figure(plot_samplers(trials, chosen, settings.tolerance, found), out / "sampler.png")
    print(sampler_table(trials))
    _recommend(a.model, generator, settings.tolerance, chosen)
    if not quality:
        print("quality was not measured; pass --reference to measure it")
    print(f"picture: {out}/sampler.png    numbers: {out}/sampler.json")
    return 0


def _settings(arguments: argparse.Namespace) -> BenchmarkSettings:
    values = given(arguments, BenchmarkSettings)
    if "budgets" in values:
        values["budgets"] = _budgets(values["budgets"])
    for name in ("samples", "encoder") if arguments.reference is None else ():
        if name in values:
            raise InputError(f"--{name} has no effect without --reference")
    return BenchmarkSettings(**values)


def _recommend(model: str, generator: Any, tolerance: float, chosen: Any) -> None:
    """Print the recommended setting, and store it with the model if it is within the tolerance."""
    from lwd.assets import MODELS
    from lwd.checkpoints.recommended import store_recommended
    from lwd.sampling.benchmark import recommendation
    from lwd.sampling.pipeline import resolve

    reached = chosen.error <= tolerance
    within = f"error {chosen.error:.2g}" if reached else f"error {chosen.error:.2g}, above {tolerance:g}"
    print(f"recommended: {chosen.options}    ({chosen.nfe:.4g} evaluations, {within})")
    if not reached or model in MODELS:  # the models that ship with lwd have theirs
        return
    try:
        store_recommended(resolve(model), recommendation(generator, tolerance, chosen))
        print(f"stored with the model, for lwd sample: {resolve(model)}/sampling.json")
    except InputError as error:
        print(f"not stored with the model: {error}")


def _budgets(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise InputError(f"expected integers such as 4,8,16, got {text!r}", argument="budgets")
    return tuple(sorted({int(part) for part in parts}))
