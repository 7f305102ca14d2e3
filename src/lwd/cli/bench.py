"""`lwd bench sampler`."""

import argparse
import math
from typing import Any

from lwd.errors import InputError


def add_parser(commands: Any) -> None:
    bench = commands.add_parser(
        "bench",
        help="measure a model's samplers",
        description="Measure.",
        epilog="example: lwd bench sampler runs/lwd --out bench",
    )
    actions = bench.add_subparsers(dest="action", metavar="ACTION", required=True)
    parser = actions.add_parser(
        "sampler",
        help="error and quality against evaluations; recommends solver, steps and placement",
        description="Try solvers, steps and placements on a model, and recommend one.",
        epilog="example: lwd bench sampler runs/lwd --decoder ae --reference fashion/test --out bench",
    )
    add = parser.add_argument
    add("model", metavar="MODEL", help="a checkpoint, a run of lwd train, or a hub id")
    add("--out", required=True, metavar="DIR", help="sampler.png and sampler.json go there")
    add("--tolerance", type=float, default=0.02, metavar="E", help="error to stay below (default 0.02 of the spread)")
    add("--budgets", default="", metavar="N,...", help="evaluations per sample to try (default 4,6,8,12,...,48)")
    add("--count", type=int, default=32, metavar="N", help="samples for the error (default 32)")
    add("--guide", metavar="DIR", help="a weak model (AutoGuidance), or null (classifier-free)")
    add("--scale", metavar="W", help="of the guidance: 1.5, or by group: texture=1.5,semantic=1.2")
    add("--interval", metavar="A:B", help="local times that are guided: 0.2:0.8, or texture=0.2:0.8,...")
    add("--reference", metavar="REF", help="also quality: Fréchet distance to these images (see lwd evaluate)")
    add("--samples", type=int, metavar="N", help="images for each quality (default 1000)")
    add("--encoder", default="", metavar="NAME", help="for the quality, in place of Inception")
    add("--decoder", metavar="DIR", help="texture autoencoder (default: the model's own vae/)")
    add("--threads", type=int, default=2, metavar="N", help="of the processor (default 2)")
    add("--device", metavar="NAME", help="cpu, cuda or cuda:N (default: a GPU if there is one)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from tqdm import tqdm

    from lwd.cli.sample import guidance
    from lwd.compute.devices import threads
    from lwd.io.files import check_writable, write_json
    from lwd.report.plots import save_figure
    from lwd.report.samplers import plot_samplers, sampler_table
    from lwd.sampling.benchmark import BUDGETS, OPTIMISE, as_rows, front, recommend, sampler_errors, settings
    from lwd.sampling.generator import SampleSettings, open_generator

    a, out = arguments, Path(arguments.out)
    budgets = _budgets(a.budgets) if a.budgets else BUDGETS
    settings_ = SampleSettings(count=a.count, threads=a.threads, **guidance(a))
    generator = open_generator(a.model, settings_, a.guide, a.decoder, a.device)
    check_writable(out)
    quality = _quality(generator, a)
    flow = generator.flow()
    total = len(settings(flow, budgets, OPTIMISE)) + 7
    with threads(a.threads), tqdm(total=total, desc="trying samplers", disable=None) as bar:
        trials = sampler_errors(flow, budgets, progress=bar.update)
    chosen = recommend(trials, a.tolerance)
    about = {"format": "lwd.sampler_bench", "version": 1, "tolerance": a.tolerance, **generator.record}
    about |= {"trials": as_rows(trials), "recommended": chosen.options}
    write_json(out / "sampler.json", about)
    found = None
    if quality:
        best = front(trials)
        found = {t.nfe: quality(t) for t in tqdm(best, desc="measuring quality", unit="setting", disable=None)}
        write_json(out / "sampler.json", about | {"quality": [[nfe, *pair] for nfe, pair in found.items()]})
    save_figure(plot_samplers(trials, chosen, a.tolerance, found), out / "sampler.png")
    print(sampler_table(trials))
    within = f"error {chosen.error:.2g}" if chosen.error <= a.tolerance else f"nothing tried reaches {a.tolerance:g}"
    print(f"recommended: {chosen.options}    ({chosen.nfe:.4g} evaluations, {within})")
    if not quality:
        print("quality was not measured; pass --reference for it")
    print(f"picture: {out}/sampler.png    numbers: {out}/sampler.json")
    return 0


def _budgets(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise InputError(f"--budgets is a list of whole numbers such as 4,8,16, got {text!r}")
    return tuple(sorted({int(part) for part in parts}))


def _quality(generator: Any, a: argparse.Namespace) -> Any:
    """A function from a trial to the Fréchet distance of its samples and the distance's standard error."""
    from lwd.evaluation.quality import Quality

    if not math.isfinite(a.tolerance) or a.tolerance <= 0:
        raise InputError(f"--tolerance is a number > 0, got {a.tolerance}")
    if a.reference is None:
        for name in ("samples", "encoder"):
            if getattr(a, name):
                raise InputError(f"--{name} has no effect without --reference")
        return None
    return Quality(generator, a.reference, 1000 if a.samples is None else a.samples, a.encoder)
