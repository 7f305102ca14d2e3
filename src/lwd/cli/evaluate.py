"""`lwd evaluate` and `lwd compare`."""

import argparse
from collections.abc import Callable
from typing import Any

from lwd.cli.options import add_settings, given
from lwd.evaluation.settings import EvaluateSettings


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "evaluate",
        help="compute FID, sFID, IS, precision, recall, KID, density and coverage of samples",
        description="Score samples against a reference, with standard errors. Resumes after an interruption.",
        epilog="example: lwd evaluate samples --reference fashion/test",
    )
    add = parser.add_argument
    add("samples", metavar="SAMPLES", help="a directory of lwd sample, ADM's .npz, or a folder of images")
    add("--reference", required=True, metavar="REF", help="ADM's .npz, a folder of images, or cifar10/test, ...")
    names = ("encoder", "skip_inception", "size", "shuffle", "batch", "threads")
    add_settings(parser, EvaluateSettings, *names, size="PX")
    add("--out", metavar="FILE", help="result as JSON (default: evaluation.json in a directory of lwd sample)")
    add("--device", metavar="NAME", help="cpu, cuda or cuda:N (default: a GPU if there is one)")
    parser.set_defaults(run=run)
    compare = commands.add_parser(
        "compare",
        help="compare evaluated sets of samples in one table and figure",
        description="Compare evaluations: a table, and metrics over training steps and network evaluations.",
        epilog="example: lwd compare samples/a samples/b --out comparison",
    )
    compare.add_argument("runs", nargs="+", metavar="RUN", help="directories of lwd sample, or files of lwd evaluate")
    compare.add_argument("--out", metavar="DIR", help="directory for comparison.md and comparison.png")
    compare.set_defaults(run=run_compare)


def run(arguments: argparse.Namespace) -> int:
    from tqdm import tqdm

    from lwd.evaluation.evaluate import evaluate
    from lwd.evaluation.score import table

    settings = EvaluateSettings(**given(arguments, EvaluateSettings))

    def progress(title: str, total: int) -> Callable[[int], object]:
        return tqdm(total=total, desc=f"features of the {title}", unit="image", disable=None).update

    scores, path = evaluate(arguments.samples, arguments.reference, settings, arguments.out, arguments.device, progress)
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
