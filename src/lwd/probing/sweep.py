"""The paper's Figure 2: a joint probe for each lambda, and the weakest one that does not collapse."""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lwd.errors import InputError
from lwd.io.files import read_json
from lwd.probing.formats import SweepFile, SweepLine
from lwd.probing.joint import SCHEDULE, probe, probe_config
from lwd.schedule.base import Schedule
from lwd.schedule.io import load_schedule, read_provenance
from lwd.schedule.learned import Learnable
from lwd.surfaces.verdict import Verdict, judge
from lwd.training.config import Config, with_changes
from lwd.training.formats import RunFile
from lwd.training.snapshot import differences
from lwd.training.task import OnStep, RunOptions, prepare
from lwd.training.train import Data, open_data

SWEEP = "sweep.json"


@dataclass(frozen=True)
class SweepRow:
    """One probe of a sweep."""

    kinetic: float
    schedule: Schedule
    verdict: Verdict


def sweep(
    config: Config,
    data: Data,
    out: str | os.PathLike[str],
    kinetics: Sequence[float],
    options: RunOptions | None = None,
    on_probe: Callable[[float], OnStep | None] | None = None,
) -> tuple[list[SweepRow], bool]:
    """Run a probe for each lambda, unless it is finished; returns the rows, and whether all probes are finished.

    Example:
        >>> latents, labels = torch.randn(64, 6, 4, 4), torch.arange(64) % 2
        >>> data = lwd.MemoryReader(latents, labels, lwd.Layout.of(texture=4, semantic=2))
        >>> changes = ["probe.steps=4", "probe.burn_in=2", "run.batch=8", "network.depth=1", "network.width=16"]
        >>> rows, finished = lwd.sweep(lwd.load_config("cifar-small", changes), data, "runs/sweep", [0.02, 0.04])
        >>> [row.kinetic for row in rows], finished
        ([0.02, 0.04], True)
    """
    options, devices = prepare(options, config)
    data = open_data(data, config)
    out, rows = Path(out), list[SweepRow]()
    for kinetic in sorted(set(kinetics)):
        folder = out / f"lambda-{kinetic:g}"
        one = with_changes(config, probe={"kinetic": kinetic})
        # Only the main process checks: others might see the directory in another state.
        if not devices.from_main(_is_done(folder, one, data.fingerprint) if devices.main else 0):
            on_step = on_probe(kinetic) if on_probe else options.on_step
            if not probe(one, data, folder, replace(options, on_step=on_step)).outcome.finished:
                return rows, False
        schedule = load_schedule(folder / SCHEDULE)
        assert isinstance(schedule, Learnable)
        found = read_provenance(folder / SCHEDULE).get("verdict", {})
        numbers = {key: found[key] for key in ("word", "distance", "moved", "departure", "travelled") if key in found}
        rows.append(SweepRow(kinetic, schedule, Verdict(**numbers) if len(numbers) >= 4 else judge(schedule)))
    if devices.main:
        _write(out, rows)
    return rows, True


def weakest_stable(rows: Sequence[SweepRow]) -> float | None:
    """The paper's rule: the smallest lambda whose curve is stable, and above which none collapsed.

    A curve that still moves is neither: it is passed over, and a smaller lambda may only follow if it has converged.
    """
    stable = None
    for row in sorted(rows, key=lambda row: -row.kinetic):
        if row.verdict.word == "collapsed":
            break
        stable = row.kinetic if row.verdict.word == "converged" else stable
    return stable


def still_moving(rows: Sequence[SweepRow]) -> list[float]:
    """lambdas whose curves have not settled."""
    return [row.kinetic for row in rows if row.verdict.word == "moving"]


def _is_done(folder: Path, config: Config, data: str) -> bool:
    """Whether a probe is finished; an error if it has other data or settings."""
    if not (folder / SCHEDULE).exists():
        return False
    about = RunFile.parse(read_json(folder / "run.json"), str(folder / "run.json"))
    changed = differences(about.config, probe_config(config), "joint")
    steps = dict(about.config.get("probe", {})).get("steps")
    changed += [f"probe.steps ({steps} -> {config.probe.steps})"] if steps != config.probe.steps else []
    changed += ["the data"] if about.data != data else []
    if changed:
        raise InputError(
            f"{folder} was started with different settings: {', '.join(changed)}; use another directory",
            argument="out",
        )
    return True


def _write(out: Path, rows: Sequence[SweepRow]) -> None:
    lines = [SweepLine(kinetic=row.kinetic, schedule=row.schedule.to_dict(), **asdict(row.verdict)) for row in rows]
    SweepFile(weakest=weakest_stable(rows), probes=lines).write(out / SWEEP)
