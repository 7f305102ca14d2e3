"""`lwd evaluate` and `lwd compare`."""

import argparse
from collections.abc import Callable
from typing import Any


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "evaluate",
        help="FID, sFID, IS, precision, recall, KID, density, coverage of samples",
        description="Score samples against a reference, with standard errors. Interrupted, it goes on where it was.",
        epilog="example: lwd evaluate samples --reference fashion/test",
    )
    add = parser.add_argument
    add("samples", metavar="SAMPLES", help="a directory of lwd sample, ADM's .npz, or a folder of images")
    add("--reference", required=True, metavar="REF", help="ADM's .npz, a folder of images, or cifar10/test, ...")
    add("--encoder", default="", metavar="NAME", help="also a Fréchet distance on this encoder (DINOv2, ...)")
    add("--skip-inception", action="store_true", help="only the encoder's distance")
    add("--size", type=int, default=0, metavar="PX", help="crop and scale the reference's images to this size")
    add("--shuffle", action="store_true", help="put samples in a random order before the Inception Score")
    add("--out", metavar="FILE", help="the result as JSON (default: evaluation.json in a directory of lwd sample)")
    add("--batch", type=int, default=25, metavar="N", help="images at once (default 25)")
    add("--threads", type=int, default=2, metavar="N", help="of the processor; part of the result (default 2)")
    add("--device", metavar="NAME", help="cpu, cuda or cuda:N (default: a GPU if there is one)")
    parser.set_defaults(run=run)
    compare = commands.add_parser(
        "compare",
        help="several evaluated sets of samples in one table and plot",
        description="Put evaluations side by side: a table, and metrics against training steps and evaluations.",
        epilog="example: lwd compare samples/a samples/b --out comparison",
    )
    compare.add_argument("runs", nargs="+", metavar="RUN", help="directories of lwd sample, or files of lwd evaluate")
    compare.add_argument("--out", metavar="DIR", help="write comparison.md and comparison.png there")
    compare.set_defaults(run=run_compare)


def run(arguments: argparse.Namespace) -> int:
    from tqdm import tqdm

    from lwd.evaluation.evaluate import EvaluateSettings, evaluate
    from lwd.evaluation.score import table

    names = ("encoder", "skip_inception", "size", "shuffle", "batch", "threads")
    settings = EvaluateSettings(**{name: getattr(arguments, name) for name in names})

    def progress(title: str, total: int) -> Callable[[int], object]:
        return tqdm(total=total, desc=f"looking at the {title}", unit="image", disable=None).update

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
