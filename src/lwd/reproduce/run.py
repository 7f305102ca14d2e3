"""`lwd reproduce`: run what is missing of a table, then write it as Markdown, picture and data."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure

from lwd.compute.devices import threads
from lwd.errors import InputError, nearest
from lwd.evaluation.score import title
from lwd.io.clock import Clock
from lwd.io.files import changes, check_writable, write_bytes
from lwd.io.jobs import process
from lwd.io.locks import alone
from lwd.report.plots import save_figure
from lwd.reproduce import curves, figures, tables
from lwd.reproduce.cost import BF16_PEAK, DOPRI5_NFE, FP32_PEAK, UTILISATION, Cost
from lwd.reproduce.formats import ReproductionFile, TableFile, TableRow
from lwd.reproduce.jobs import Job, ordered
from lwd.reproduce.markdown import markdown
from lwd.reproduce.numbers import load_paper
from lwd.reproduce.scales import SCALES, Scale
from lwd.reproduce.settings import ALL, TABLES, ReproduceSettings
from lwd.reproduce.workspace import Workspace
from lwd.version import __version__

FILE = "reproduce.json"
Rows = Callable[[Workspace], list[TableRow]]


@dataclass(frozen=True)
class Spec:
    """A table: its jobs, rows, context and picture."""

    title: str
    jobs: Callable[[Workspace], list[Job]]
    rows: Rows
    draw: Callable[[Workspace, TableFile], Figure | bytes]
    context: Callable[[], list[TableRow]] | None = None


SPECS = {
    "unguided": Spec(
        "Unguided quality against training steps",
        tables.unguided_jobs,
        tables.unguided_rows,
        lambda _, table: figures.plot_budgets(table),
        tables.unguided_context,
    ),
    "autoguidance": Spec(
        "Quality with AutoGuidance",
        tables.autoguidance_jobs,
        tables.autoguidance_rows,
        lambda _, table: figures.plot_bars(table),
        tables.autoguidance_context,
    ),
    "robustness": Spec(
        "Unguided quality by semantic latent",
        tables.robustness_jobs,
        tables.robustness_rows,
        lambda _, table: figures.plot_bars(table),
        tables.robustness_context,
    ),
    "lambda": Spec(
        "Learned schedules by lambda (the paper's Figure 2)",
        curves.lambda_jobs,
        curves.lambda_rows,
        lambda ws, _: figures.plot_lambdas(ws),
        curves.lambda_context,
    ),
    "schedules": Spec(
        "Learned schedules by semantic latent (the paper's Figure 3)",
        curves.schedules_jobs,
        curves.schedules_rows,
        lambda ws, _: figures.plot_latents(ws),
    ),
    "trajectory": Spec(
        "States along the global time (the paper's Figure 1)",
        curves.trajectory_jobs,
        curves.trajectory_rows,
        lambda ws, _: figures.plot_states(ws),
    ),
    "grids": Spec(
        "Samples of the main model with AutoGuidance, by class",
        curves.trajectory_jobs,
        curves.grids_rows,
        lambda ws, _: figures.grid_picture(ws),
    ),
}


def reproduce(
    table: str,
    out: str | os.PathLike[str],
    settings: ReproduceSettings | None = None,
    show: Callable[[str], object] = print,
    scale: Scale | None = None,
) -> list[Path]:
    """Run the missing jobs of a table (or of all), and write TABLE.md, TABLE.png and TABLE.json; returns the .md files.

    Run again to continue after an interruption. scale: other sizes than those of settings.scale.
    """
    names, ws = prepare(table, out, settings, scale)
    if process()[1] > 1:
        raise InputError("a reproduction runs in one process; start the commands of its plan under torchrun instead")
    jobs = ordered(job for name in names for job in SPECS[name].jobs(ws))
    missing = [job for job in jobs if not job.is_done()]
    for job in _one_of_each(jobs, missing):
        job.check()
    _keep(ws)
    with alone(ws.out), threads(ws.scale.threads):
        return list(_run(names, ws, missing, show))


def prepare(
    table: str, out: str | os.PathLike[str], settings: ReproduceSettings | None, scale: Scale | None = None
) -> tuple[tuple[str, ...], Workspace]:
    """The names of the tables, and their workspace."""
    if table != ALL and table not in SPECS:
        raise InputError(f"there is no table {table!r}; {nearest(table, (*TABLES, ALL))}", argument="table")
    settings = settings or ReproduceSettings()
    ws = Workspace(Path(out), scale or SCALES[settings.scale], settings)
    return (TABLES if table == ALL else (table,)), ws


def _one_of_each(jobs: Sequence[Job], missing: Sequence[Job]) -> list[Job]:
    """Latents that are used, and the first missing job of each kind: what they need is the same for all of a kind."""
    first: dict[str, Job] = {}
    for job in missing:
        first.setdefault(job.kind, job)
    used = {need.out for job in missing for need in job.needs}
    given = [job for job in jobs if not job.words() and job.out in used]
    return [*given, *first.values()]


def _run(names: Sequence[str], ws: Workspace, missing: Sequence[Job], show: Callable[[str], object]) -> Iterator[Path]:
    """Run the missing jobs of each table, then write it; the clock learns how fast this machine is."""
    clock = Clock({job.title: 3.0 + job.cost().training / 3e10 + job.cost().sampling / 3e10 for job in missing}, show)
    left = {job.out: job for job in missing}
    for name in names:
        for job in [left.pop(job.out) for job in ordered(SPECS[name].jobs(ws)) if job.out in left]:
            with clock.stage(job.title) as advance:
                job.run(advance)
        yield write_table(name, ws)


def _keep(ws: Workspace) -> None:
    """Write reproduce.json; raise an error if the directory has results of another scale or other data."""
    path, s = ws.out / FILE, ws.settings
    check_writable(ws.out)
    given = {name: str(place) for name, place in ws.given.items()}
    mine = ReproductionFile(
        scale=ws.scale.to_dict(),
        latents=given,
        decoder=s.decoder,
        reference=s.reference,
        encoder=s.encoder,
        repeat_probe=s.repeat_probe,
    )
    if path.exists():
        try:
            old = ReproductionFile.read(path).to_dict()
        except InputError as error:
            raise InputError(f"{error}; use another directory", argument="out") from error
        if changed := changes(old, mine.to_dict()):
            raise InputError(
                f"{ws.out} has results of other settings ({'; '.join(changed)}); use another directory", argument="out"
            )
    mine.write(path)


def write_table(name: str, ws: Workspace) -> Path:
    """Write the picture, the Markdown and, last, the data of a table whose jobs are done."""
    table = make_table(name, ws)
    picture = SPECS[name].draw(ws, table)
    if isinstance(picture, bytes):
        write_bytes(ws.out / f"{name}.png", picture)
    else:
        save_figure(picture, ws.out / f"{name}.png")
    path = ws.out / f"{name}.md"
    write_bytes(path, markdown(table).encode())
    table.write(ws.out / f"{name}.json")
    return path


def make_table(name: str, ws: Workspace) -> TableFile:
    """Collect a table from the files of its jobs."""
    spec, comparable = SPECS[name], ws.scale.name == tables.PAPER_SCALE
    jobs, rows = ordered(spec.jobs(ws)), spec.rows(ws)
    context = spec.context() if spec.context else []
    if comparable:
        rows = tables.with_quoted(rows, context)
    measured = dict.fromkeys(key for row in rows for key in row.measured)
    # The metric of the figure comes first.
    ordered_keys = sorted(measured, key=lambda key: key != figures.main_metric(rows))
    encoder = ws.settings.encoder or ws.scale.draw.encoder
    titles = {key: curves.TIMES.get(key) or title(key, encoder) for key in ordered_keys}
    return TableFile(
        table=name,
        title=spec.title,
        scale=ws.scale.name,
        seeds=list(ws.settings.seeds),
        metrics=titles,
        rows=rows,
        context=[] if comparable else context,
        curves=_curves(name, ws),
        unavailable=tables.unavailable(jobs, ws.scale.draw.metrics),
        notes=[*_notes(name, ws, rows), *tables.dependent(jobs)],
        source=load_paper().source,
        commands=[job.command for job in jobs if job.words()],
        versions={"lwd": __version__, "torch": torch.__version__},
    )


def _curves(name: str, ws: Workspace) -> dict[str, dict[str, list[float]]]:
    if name == "lambda":
        return curves.points_of({f"{k:g}": schedule for k, (schedule, _) in curves.lambda_curves(ws).items()})
    if name == "schedules":
        return curves.points_of(curves.schedules_curves(ws))
    return curves.points_of({"learned": curves.main_schedule(ws)}) if name == "trajectory" else {}


def _notes(name: str, ws: Workspace, rows: list[TableRow]) -> list[str]:
    notes = []
    if name in ("unguided", "robustness", "autoguidance"):
        notes.append(
            f"{ws.scale.draw.count:,} samples per row; all models of a seed have the same data order, noise and "
            f"sampling seeds. {_probes(ws)}"
        )
        notes += tables.pairs(rows, figures.main_metric(rows), ws.scale.baseline, ws.scale.main)
        used, wanted = ws.settings.reference, ws.scale.draw.paper_reference
        if wanted and Path(used).name != wanted:
            notes.append(f"The reference is {used}; the paper's is {wanted}.")
    missing = [plan.name for plan in ws.scale.latents if plan.name not in ws.available()]
    if name in ("robustness", "schedules") and missing:
        notes.append(f"Not measured, because no latents were given: {', '.join(missing)}.")
    if ws.scale.name == "tiny":
        notes.append("A test of the machinery: the networks are hardly trained.")
    return notes


def _probes(ws: Workspace) -> str:
    if ws.settings.repeat_probe:
        return "The schedule is learned again for each seed: its spread is part of the errors."
    return "The schedule is learned once, so its own spread is not part of the errors."


def describe_plan(
    table: str, out: str | os.PathLike[str], settings: ReproduceSettings | None = None, scale: Scale | None = None
) -> str:
    """The commands of a table, and what they cost, without running anything."""
    names, ws = prepare(table, out, settings, scale)
    jobs = ordered(job for name in names for job in SPECS[name].jobs(ws))
    lines, total = list[str](), Cost()
    for job in jobs:
        done = job.is_done() and bool(job.words())
        total = total + job.cost()
        cost = "done" if done else f"{job.cost().gpu_hours:.3g} GPU hours, {job.cost().disk / 1e9:.3g} GB"
        lines += [f"# {job.title}: {cost}", job.command] if job.words() else [f"# {job.title}: {job.out}"]
    lines.append(f"# {len(jobs)} jobs: {total.gpu_hours:.4g} GPU hours, {total.disk / 1e9:.4g} GB of disk, at least")
    lines.append(f"#   {total.memory / 1e9:.3g} GB of GPU memory (20 bytes per parameter, without activations).")
    lines.append(
        f"# Assumed, not measured: {UTILISATION:.0%} of {BF16_PEAK / 1e12:.0f} TFLOP/s (bf16) in training and of "
        f"{FP32_PEAK / 1e12:.0f} (float32) in sampling,"
    )
    lines.append(
        f"#   {DOPRI5_NFE} evaluations per sample of dopri5; without encoding images, decoding samples and metrics."
    )
    return "\n".join(lines)
