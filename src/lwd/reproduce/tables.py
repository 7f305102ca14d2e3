"""The paper's tables: which jobs each needs, and its rows from their results."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev

from lwd.evaluation.formats import EvaluationFile
from lwd.evaluation.score import SKIPPED, TITLES
from lwd.reproduce.formats import Cell, TableRow
from lwd.reproduce.jobs import Job
from lwd.reproduce.numbers import GuidedNumber, load_paper
from lwd.reproduce.scales import METRICS
from lwd.reproduce.stages import Evaluated
from lwd.reproduce.workspace import Workspace

PAPER_SCALE = "imagenet256"


def unguided_jobs(ws: Workspace) -> list[Job]:
    """Every model after each of its budgets, for each seed."""
    models = [model for model in ws.scale.models if model.unguided]
    return [ws.unguided(model, steps, seed) for seed in ws.settings.seeds for model in models for steps in model.steps]


def unguided_rows(ws: Workspace) -> list[TableRow]:
    """FID, or the encoder's Fréchet distance, against training steps."""
    rows = []
    for model in ws.scale.models:
        for steps in model.steps if model.unguided else ():
            found = _results({seed: ws.unguided(model, steps, seed) for seed in ws.settings.seeds})
            fid = load_paper().unguided_fid(model.paper, steps)
            paper = {"fid": fid} if fid is not None and ws.scale.name == PAPER_SCALE else {}
            rows.append(TableRow(name=model.name, steps=steps, measured=_cells(found), paper=paper))
    return rows


def unguided_context() -> list[TableRow]:
    """The paper's rows."""
    return [TableRow(name=row.model, steps=row.steps, paper={"fid": row.fid}) for row in load_paper().unguided]


def autoguidance_jobs(ws: Workspace) -> list[Job]:
    """Every guided row, for each seed."""
    return [ws.guided(row, seed) for seed in ws.settings.seeds for row in ws.scale.guided]


def autoguidance_rows(ws: Workspace) -> list[TableRow]:
    """Metrics with AutoGuidance."""
    rows = []
    for row in ws.scale.guided:
        jobs = {seed: ws.guided(row, seed) for seed in ws.settings.seeds}
        drawn = jobs[ws.settings.seeds[0]].drawn
        found = load_paper().guided_row(row.paper, row.epochs) if row.epochs else None
        words = {"guide": f"{drawn.needs[1].out.name}, {drawn.guide_steps} steps", "scale": f"{drawn.settings.scale:g}"}
        words |= {"epochs in the paper": str(row.epochs)} if row.epochs else {}
        paper = _paper_metrics(found) if found else {}
        rows.append(
            TableRow(name=row.model, steps=row.steps, measured=_cells(_results(jobs)), paper=paper, words=words)
        )
    return rows


def autoguidance_context() -> list[TableRow]:
    """The paper's rows."""
    return [
        TableRow(
            name=row.method, paper=_paper_metrics(row), words={"epochs": str(row.epochs), "parameters": row.parameters}
        )
        for row in load_paper().guided
    ]


def robustness_jobs(ws: Workspace) -> list[Job]:
    """The learned schedule and the baseline on each semantic latent."""
    models = [ws.scale.model(name) for name in (ws.scale.baseline, ws.scale.main)]
    steps = ws.scale.robustness_steps
    latents = ws.available()
    return [ws.unguided(m, steps, seed, latent) for seed in ws.settings.seeds for latent in latents for m in models]


def robustness_rows(ws: Workspace) -> list[TableRow]:
    """Unguided metrics on each semantic latent, by schedule."""
    rows, steps = [], ws.scale.robustness_steps
    for plan in ws.scale.latents:
        printed = next((r for r in load_paper().robustness if (r.features, r.latent) == plan.paper), None)
        for name in (ws.scale.baseline, ws.scale.main):
            measured = {}
            if plan.name in ws.available():
                jobs = {s: ws.unguided(ws.scale.model(name), steps, s, plan.name) for s in ws.settings.seeds}
                measured = _cells(_results(jobs))
            paper = {}
            if printed is not None and ws.scale.name == PAPER_SCALE:
                paper = {"fid": printed.sfd if name == ws.scale.baseline else printed.ours}
            words = {"semantic latent": plan.name, "channels": str(plan.channels)}
            rows.append(TableRow(name=name, steps=steps, measured=measured, paper=paper, words=words))
    return rows


def robustness_context() -> list[TableRow]:
    """The paper's rows."""
    found = []
    for row in load_paper().robustness:
        words = {"semantic latent": f"{row.features}, {row.latent}"}
        for name, value in (("SFD", row.sfd), ("Ours", row.ours)):
            found.append(TableRow(name=name, steps=row.steps, paper={"fid": value}, words=words))
    return found


def unavailable(jobs: Sequence[Job], metrics: Sequence[str]) -> dict[str, str]:
    """Why metrics of the paper's table are missing, from the first evaluation."""
    first = next((job for job in jobs if isinstance(job, Evaluated)), None)
    found = first.result.unavailable if first is not None else {}
    encoder = first.settings.encoder if first is not None else ""
    instead = f"these samples were evaluated with the encoder {encoder} instead of Inception"
    return {name: instead if reason == SKIPPED else reason for name, reason in found.items() if name in metrics}


def dependent(jobs: Sequence[Job]) -> list[str]:
    """A note if the encoder of the metrics made the latents of some models."""
    found = [job for job in jobs if isinstance(job, Evaluated) and job.result.dependent]
    if not found:
        return []
    names = ", ".join(job.samples.name for job in found)
    return [
        f"Not independent: the encoder {found[0].settings.encoder} also made the latents of these models, so that its "
        f"metrics favour what it sees: {names}."
    ]


def with_quoted(rows: Sequence[TableRow], context: Sequence[TableRow]) -> list[TableRow]:
    """The rows, and those of the paper that were not run here."""
    mine = {(steps, *row.paper.items()) for row in rows for steps in (row.steps, None)}
    return [*rows, *(row for row in context if row.paper and (row.steps, *row.paper.items()) not in mine)]


def pairs(rows: Sequence[TableRow], metric: str, baseline: str, main: str) -> list[str]:
    """The differences between the learned schedule and the baseline, in pairs over seeds."""
    by_name = {(row.name, row.steps, row.words.get("semantic latent", "")): row for row in rows}
    found = []
    for (name, steps, latent), row in by_name.items():
        other = by_name.get((baseline, steps, latent))
        if name != main or other is None or not {metric} <= set(row.measured) & set(other.measured):
            continue
        gaps = [a - b for a, b in zip(row.measured[metric].values, other.measured[metric].values, strict=True)]
        cell = cell_of(gaps)
        if cell.error is not None:
            where = f"{latent}, {steps} steps" if latent else f"{steps} steps"
            found.append(f"{main} minus {baseline}, {where}: {cell.mean:+.4g} ± {cell.error:.2g} ({len(gaps)} pairs)")
    return found


def cell_of(values: Sequence[float], error: float | None = None) -> Cell:
    """Mean and standard error over seeds; with one value, the error that is given."""
    if len(values) > 1:
        error = stdev(values) / len(values) ** 0.5
    return Cell(mean=mean(values), error=error, values=list(values))


def _results(jobs: Mapping[int, Evaluated]) -> list[EvaluationFile]:
    return [job.result for job in jobs.values()]


def _cells(found: Sequence[EvaluationFile]) -> dict[str, Cell]:
    """The metrics of several seeds; only those that all of them have."""
    names = [name for name in TITLES if all(name in one.metrics for one in found)]
    return {name: cell_of([one.metrics[name].value for one in found], found[0].metrics[name].error) for name in names}


def _paper_metrics(row: GuidedNumber) -> dict[str, float]:
    values = {name: getattr(row, name) for name in METRICS}
    return {name: value for name, value in values.items() if value is not None}
