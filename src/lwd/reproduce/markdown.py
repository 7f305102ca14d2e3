"""A table as Markdown: what was measured here beside what the paper reports."""

from collections.abc import Mapping, Sequence

from lwd.evaluation.score import TITLES
from lwd.reproduce.formats import Cell, TableFile, TableRow

MISSING = "not measured"


def markdown(table: TableFile) -> str:
    """The whole page."""
    seeds = ", ".join(map(str, table.seeds))
    lines = [f"# {table.title}", "", f"Scale {table.scale}, training seeds {seeds}. {_errors(table)}", ""]
    lines += _rows(table.rows, table.metrics, measured=True)
    lines += ["", *(f"- {note}" for note in table.notes)]
    lines += [f"- {TITLES.get(name, name)} was not measured: {reason}." for name, reason in table.unavailable.items()]
    if table.context:
        lines += ["", "## The paper's numbers", "", "ImageNet 256x256, 50,000 samples: context, not comparable.", ""]
        lines += _rows(table.context, {}, measured=False)
    if table.context or any(row.paper for row in table.rows):
        lines += ["", f"The paper's numbers: {table.source}."]
    lines += ["", "## Commands", "", "```"]
    lines += [*table.commands, "```", "", ", ".join(f"{name} {v}" for name, v in table.versions.items())]
    return "\n".join(lines) + "\n"


def _errors(table: TableFile) -> str:
    if not any(cell.error is not None for row in table.rows for cell in row.measured.values()):
        return "Numbers are of one run."
    if len(table.seeds) > 1:
        return "Mean and standard error over seeds."
    return "One training: the standard error is that of the metric alone."


def _rows(rows: Sequence[TableRow], metrics: Mapping[str, str], measured: bool) -> list[str]:
    printed = [name for name in TITLES if any(name in row.paper for row in rows)]
    shown = list(dict.fromkeys([*metrics, *(printed if measured else ())]))
    words = list(dict.fromkeys(key for row in rows for key in row.words))
    steps = any(row.steps is not None for row in rows)
    head = ["", *(["steps"] if steps else []), *words]
    for name in shown:
        head.append(f"{metrics.get(name, TITLES.get(name, name))}, here")
        head += [f"{TITLES[name]}, paper"] if name in printed else []
    head += [] if measured else [f"{TITLES[name]}, paper" for name in printed]
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    for row in rows:
        cells = [row.name, *([f"{row.steps:,}" if row.steps else ""] if steps else [])]
        cells += [row.words.get(key, "") for key in words]
        for name in shown:
            cells.append(_text(row.measured.get(name)))
            cells += [_number(row.paper.get(name))] if name in printed else []
        cells += [] if measured else [_number(row.paper.get(name)) for name in printed]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _text(cell: Cell | None) -> str:
    if cell is None:
        return MISSING
    return f"{cell.mean:.4g}" + (f" ± {cell.error:.2g}" if cell.error is not None else "")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
