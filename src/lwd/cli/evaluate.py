"""`lwd evaluate` and `lwd compare`."""

import argparse
from collections.abc import Callable
from typing import Any

from lwd.cli.options import add_settings, given
from lwd.cli.progress import bar
from lwd.evaluation.settings import EvaluateSettings


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "evaluate",
        help="compute FID, sFID, IS, precision, recall, KID, density and coverage of samples",
        description="Score samples against a reference. Run again to continue; torchrun shares the work.",
        epilog="example: lwd evaluate samples --reference fashion/test",
    )
    add = parser.add_argument
    add("samples", metavar="SAMPLES", help="a directory written by lwd sample, ADM's .npz, or a folder of images")
    add("--reference", required=True, metavar="REF", help="ADM's .npz, a folder of images, or cifar10/test, ...")
    names = ("encoder", "skip_inception", "size", "shuffle", "batch", "threads")
    add_settings(parser, EvaluateSettings, *names, size="PX")
    add("--out", metavar="FILE", help="result as JSON (default: evaluation.json in SAMPLES, if lwd sample wrote it)")
    add("--device", metavar="NAME", help="cpu, cuda or cuda:N (default: a GPU if there is one)")
    parser.set_defaults(run=run)
    compare = commands.add_parser(
        "compare",
        help="compare evaluated sets of samples in one table and figure",
        description="Compare evaluations: a table, and metrics over training steps and network evaluations.",
        epilog="example: lwd compare samples/a samples/b --out comparison",
    )
    compare.add_argument("runs", nargs="+", metavar="RUN", help="evaluated samples, or evaluation.json files")
    compare.add_argument("--out", metavar="DIR", help="directory for comparison.md and comparison.png")
    compare.set_defaults(run=run_compare)


def run(arguments: argparse.Namespace) -> int:
    from lwd.evaluation.evaluate import SCORING, evaluate, share_features
    from lwd.evaluation.score import table
    from lwd.io.jobs import process

    rank, world = process()
    settings = EvaluateSettings(**given(arguments, EvaluateSettings))

    def progress(title: str, total: float) -> Callable[[float], object]:
        title, unit = (title, "") if title == SCORING else (f"features of the {title}", "image")
        update: Callable[[float], object] = bar(total, title, unit, rank == 0).update
        return update

    a = arguments
    if world > 1:
        share_features(a.samples, a.reference, settings, (rank, world), a.device, progress)
    if rank:
        return 0
    scores, path = evaluate(a.samples, a.reference, settings, a.out, a.device, progress)
    print(table(scores))
    if path is not None:
        print(f"numbers: {path}")
    return 2 if arguments.out and path is None else 0


def run_compare(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from lwd.evaluation.compare import comparison_table, read_evaluations
    from lwd.io.files import check_writable, write_bytes
    from lwd.report.comparison import plot_comparison
    from lwd.report.plots import save_figure

    evaluations = read_evaluations(arguments.runs)
    text = comparison_table(evaluations)
    print(text)
    if arguments.out:
        out = Path(arguments.out)
        check_writable(out)
        write_bytes(out / "comparison.md", (text + "\n").encode())
        save_figure(plot_comparison(evaluations), out / "comparison.png")
        print(f"written: {out}/comparison.md, {out}/comparison.png")
    return 0
