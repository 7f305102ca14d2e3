"""Reproduced tables: shared jobs, kills, tables that say what was measured, commands that do the same."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import lwd
import stand_ins
from commands import parsed
from lwd.cli import main
from lwd.evaluation.formats import EvaluationFile
from lwd.reproduce.formats import TableFile
from lwd.reproduce.jobs import ordered
from lwd.reproduce.run import SPECS, describe_plan, prepare
from lwd.reproduce.settings import TABLES, ReproduceSettings
from lwd.reproduce.stages import Drawn, Evaluated, Train
from lwd.sampling.generator import Generator
from lwd.training.interrupts import Interrupted
from lwd.training.trainer import Trainer
from messages import says
from reproduce.small import SMALL, silent
from stand_ins import quicken


@pytest.fixture(scope="module", autouse=True)
def few(tmp_path_factory):
    """The first embedded images, and a cache of our own."""
    with pytest.MonkeyPatch.context() as patch:
        quicken(patch.setattr)
        patch.setenv("LWD_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def cut(method, after):
    """The method as it is, until it is called once more than `after` times."""
    calls = 0

    def inner(*arguments):
        nonlocal calls
        calls += 1
        if calls > after:
            raise KeyboardInterrupt
        return method(*arguments)

    return inner


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """All tables, in one go; the directory's name is the same in every test, because the tables show commands."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        silent("all", "out")
    return folder / "out"


@pytest.fixture
def copy(whole, tmp_path, monkeypatch):
    shutil.copytree(whole, tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    return Path("out")


def tables_in(out):
    return {path.name: path.read_bytes() for path in out.glob("*.*") if path.stem in TABLES}


def test_all_tables_are_written(whole):
    """Oracle: three files for each, which read back; pictures are not blank."""
    assert {path.name for path in whole.glob("*.md")} == {f"{name}.md" for name in TABLES}
    for name in TABLES:
        table = TableFile.read(whole / f"{name}.json")
        assert (table.table, table.scale, table.seeds) == (name, "tiny", [0])
        assert np.asarray(Image.open(whole / f"{name}.png").convert("L")).std() > 1
        assert all(parsed(shlex.split(command)[1:]) is not None for command in table.commands)


def test_numbers_are_those_of_the_evaluations(whole):
    """Oracle: the files that `lwd evaluate` wrote; Inception's metrics are missing and the table says why."""
    for name, folder in (
        ("unguided", "{}-seed0-{}"),
        ("autoguidance", "{}-seed0-{}-guided"),
    ):
        table = TableFile.read(whole / f"{name}.json")
        assert {"fid", "inception_score"} <= set(table.unavailable)
        for row in table.rows:
            place = whole / "samples" / folder.format(row.name.replace(" ", "-"), row.steps)
            found = EvaluationFile.read(place / "evaluation.json").metrics
            assert {key: (cell.mean, cell.error) for key, cell in row.measured.items()} == {
                key: (metric.value, metric.error) for key, metric in found.items()
            }
            assert f"{found['frechet'].value:.4g} ± {found['frechet'].error:.2g}" in (whole / f"{name}.md").read_text()
    assert "Inception Score was not measured" in (whole / "unguided.md").read_text()


def test_curves_are_those_of_the_probes(whole):
    """Oracle: the schedule files."""
    table = TableFile.read(whole / "schedules.json")
    assert set(table.curves) == {"pca8", "pca2"}
    for row in table.rows:
        schedule = lwd.load_schedule(whole / "probe" / f"{row.name}-lambda0.02" / "schedule.json")
        assert row.measured["time 0.5"].mean == float(schedule.times(0.5)[0].detach())
    learned = lwd.load_schedule(whole / "train" / "learned-seed0" / "kept" / "00000004" / "schedule.json")
    rows = {row.name: row for row in TableFile.read(whole / "trajectory.json").rows}
    assert rows["tau = 0.4"].measured["time of texture"].mean == float(learned.times(0.4)[0].detach())
    assert [row.name for row in TableFile.read(whole / "lambda.json").rows] == ["lambda 0.016", "lambda 0.12"]


def test_jobs_are_shared_and_run_once(copy, monkeypatch):
    """Oracle: the outputs of all tables are distinct; a second call runs nothing and writes the same bytes."""
    _, ws = prepare("all", copy, None, SMALL)
    jobs = ordered(job for spec in SPECS.values() for job in spec.jobs(ws))
    assert len({job.out for job in jobs}) == len(jobs)
    assert sum(isinstance(job, Train) for job in jobs) == 5  # two models, the weak one, two on the other latent
    before = tables_in(copy)
    for kind in {type(job) for job in jobs}:
        monkeypatch.setattr(kind, "run", None)
    silent("all", copy)
    assert tables_in(copy) == before


def forget(out, *patterns):
    for path in [path for pattern in patterns for path in out.glob(pattern)]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_interrupted_samples_and_evaluations_end_with_the_same_tables(copy, monkeypatch):
    """Oracle: the tables of the run that was not interrupted, byte for byte; nothing is trained again."""
    before = tables_in(copy)
    forget(copy, "unguided.*", "samples/learned-seed0-4", "samples/offset-0.3-seed0-4/evaluation.json")
    monkeypatch.setattr(Trainer, "advance", None)
    for owner, name, after in ((Drawn, "run", 0), (Generator, "draw", 1), (Evaluated, "run", 0)):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, cut(getattr(owner, name), after))
            with pytest.raises((KeyboardInterrupt, Interrupted)):
                silent("unguided", copy)
        assert not (copy / "unguided.json").exists()
    silent("unguided", copy)
    assert tables_in(copy) == before


@pytest.mark.slow
def test_an_interrupted_run_ends_with_the_same_tables(whole, tmp_path, monkeypatch):
    """Oracle: the tables of the run that was not interrupted, byte for byte."""
    monkeypatch.chdir(tmp_path)
    stops = [(Trainer, "advance", 2), (Drawn, "run", 0), (Generator, "draw", 3), (Evaluated, "run", 1)]
    stops += [(Trainer, "save", 5)]
    for owner, name, after in stops:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, cut(getattr(owner, name), after))
            with pytest.raises((KeyboardInterrupt, Interrupted)):
                silent("all", "out")
        assert not (tmp_path / "out" / "grids.json").exists()
    silent("all", "out")
    assert tables_in(tmp_path / "out") == tables_in(whole)


def test_a_kill_between_saving_and_keeping_loses_nothing(copy):
    """Oracle: the kept model is made again from the last checkpoint."""
    kept = copy / "train" / "learned-seed0" / "kept" / "00000004"
    before = (kept / "model.safetensors").read_bytes()
    shutil.rmtree(kept)
    silent("unguided", copy)
    assert (kept / "model.safetensors").read_bytes() == before


def test_seeds_give_mean_and_standard_error_in_pairs(copy):
    """Oracle: the evaluations of both seeds, by hand; data, noise and sampling seeds are equal within a seed."""
    settings = ReproduceSettings(seeds=(0, 1))
    silent("unguided", copy, settings)
    table = TableFile.read(copy / "unguided.json")
    values = {}
    for row in table.rows:
        name = row.name.replace(" ", "-")
        files = [copy / "samples" / f"{name}-seed{seed}-{row.steps}" / "evaluation.json" for seed in (0, 1)]
        one, two = (EvaluationFile.read(file).metrics["frechet"].value for file in files)
        cell = row.measured["frechet"]
        assert cell.values == [one, two]
        assert (cell.mean, cell.error) == (pytest.approx((one + two) / 2), pytest.approx(abs(one - two) / 2))
        values[name, row.steps] = np.array([one, two])
    gap = values["learned", 4] - values["offset-0.3", 4]
    assert any(f"4 steps: {gap.mean():+.4g} ± {abs(gap[0] - gap[1]) / 2:.2g}" in note for note in table.notes)
    manifests = [json.loads(path.read_text()) for path in sorted((copy / "samples").glob("*-seed1-4/manifest.json"))]
    assert len({(m["settings"]["seed"], tuple(m["labels"])) for m in manifests}) == 1
    runs = [json.loads((copy / "train" / f"{n}-seed1" / "run.json").read_text()) for n in ("learned", "offset-0.3")]
    assert {run["config"]["run"]["seed"] for run in runs} == {1}


def test_the_printed_commands_draw_the_same(copy, capsys):
    """Oracle: the evaluation of the samples that the jobs drew."""
    place = copy / "samples" / "learned-seed0-4"
    before = EvaluationFile.read(place / "evaluation.json").metrics
    forget(copy, "samples/learned-seed0-4")
    lines = [line for line in describe_plan("unguided", "out", None, SMALL).splitlines() if str(place) in line]
    assert [shlex.split(line)[1] for line in lines] == ["sample", "evaluate"]
    assert [main(shlex.split(line)[1:]) for line in lines] == [0, 0]
    capsys.readouterr()
    assert EvaluationFile.read(place / "evaluation.json").metrics == before


@pytest.mark.slow
def test_the_printed_commands_do_the_same(tmp_path, monkeypatch, capsys):
    """Oracle: after the commands of the plan, nothing is missing."""
    monkeypatch.chdir(tmp_path)
    one = SMALL.changed(models=SMALL.models[1:], main="learned", baseline="learned", latents=SMALL.latents[:1])
    for line in describe_plan("unguided", "out", None, one).splitlines():
        assert line.startswith("#") or main(shlex.split(line)[1:]) == 0, line
    capsys.readouterr()
    for job in ordered(SPECS["unguided"].jobs(prepare("unguided", "out", None, one)[1])):
        assert job.is_done(), job.title
    silent("unguided", "out", None, one)


def test_other_settings_are_refused(copy):
    """Oracle: another scale in the same directory; a model that was trained otherwise."""
    with pytest.raises(lwd.InputError, match=says("count", 20, 30)):
        silent("unguided", copy, None, SMALL.changed(draw=SMALL.draw.changed(count=30)))
    with pytest.raises(lwd.InputError, match=says("lambdas")):
        silent("lambda", copy, None, SMALL.changed(lambdas=(0.5,)))
    with pytest.raises(lwd.InputError, match=says("batch", 8, 16)):
        silent("unguided", copy, None, SMALL.changed(train=(*SMALL.train, "run.batch=16")))


@pytest.mark.slow
def test_tiny_survives_kills_with_the_same_tables(tmp_path):
    """Oracle: `lwd reproduce all --scale tiny` in one go; killed by SIGKILL five times on the way, then finished."""
    words = [sys.executable, stand_ins.__file__, "reproduce", "all", "--scale", "tiny", "--out", "out"]
    path = os.pathsep.join([str(Path(stand_ins.__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "LWD_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    folders = [tmp_path / "whole", tmp_path / "killed"]
    for folder in folders:
        folder.mkdir()
    started = time.monotonic()
    subprocess.run(words, cwd=folders[0], env=environment, check=True, capture_output=True)
    seconds = time.monotonic() - started
    for share in (0.1, 0.15, 0.2, 0.2, 0.25):
        process = subprocess.Popen(words, cwd=folders[1], env=environment, stderr=subprocess.DEVNULL)
        try:
            process.wait(share * seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
    subprocess.run(words, cwd=folders[1], env=environment, check=True, capture_output=True)
    assert tables_in(folders[0] / "out") == tables_in(folders[1] / "out")
    assert len(tables_in(folders[0] / "out")) == 3 * len(TABLES)
