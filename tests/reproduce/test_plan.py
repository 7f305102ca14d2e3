"""Plans of the paper's tables: commands, costs, rows, and what is refused before anything runs."""

import shlex
from pathlib import Path

import pytest

import lwd
from commands import parsed
from lwd.cli import main
from lwd.reproduce.formats import TableFile, TableRow
from lwd.reproduce.jobs import Job, ordered
from lwd.reproduce.markdown import markdown
from lwd.reproduce.run import SPECS, describe_plan, prepare
from lwd.reproduce.scales import IMAGENET256
from lwd.reproduce.settings import ReproduceSettings, parse_latents, parse_seeds
from lwd.reproduce.stages import Train
from lwd.reproduce.tables import cell_of, with_quoted
from messages import exit_code, says
from reproduce.small import SMALL, silent


@pytest.fixture(autouse=True)
def empty_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("LWD_CACHE", str(tmp_path_factory.mktemp("cache")))


def test_mean_and_error_by_hand():
    """Oracle: 1, 2, 3 have mean 2 and standard error 1 / sqrt(3); one value keeps the error of its metric."""
    assert cell_of([1.0, 2.0, 3.0], 9.0).error == pytest.approx(3**-0.5)
    assert cell_of([2.0], 0.5).to_dict() == {"mean": 2.0, "error": 0.5, "values": [2.0]}


@pytest.mark.parametrize("scale", ["tiny", "cifar10", "imagenet256"])
def test_a_plan_runs_nothing(scale, tmp_path, monkeypatch, capsys):
    """Oracle: the empty directory; every command parses, and the assumptions are printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Job, "check", None)
    assert main(["reproduce", "all", "--scale", scale, "--out", "out", "--seeds", "0,1", "--plan"]) == 0
    text = capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    lines = [line for line in text.splitlines() if line.startswith("lwd ")]
    assert len(lines) > 20
    assert all(parsed(shlex.split(line)[1:]) is not None for line in lines)
    assert len(set(lines)) == len(lines)
    assert says("40%", "989", "67", 100, "GPU hours", "GB").search(text)


def test_the_plan_of_the_paper_is_the_paper():
    """Oracle: the paper's hyperparameters in the commands."""
    text = describe_plan("autoguidance", "out", None, IMAGENET256)
    assert "lwd probe latents --preset lwd-xl --set probe.kinetic=0.04" in text
    assert "--preset lwd-b-weak --set run.steps=70000" in text
    assert "--scale 1.3 --decoder ae --count 50000 --seed 0 --solver dopri5 --atol 1e-06 --rtol 0.001" in text


def test_rows_without_latents_are_marked(tmp_path):
    """Oracle: at the paper's scale only the main latents were given: the other rows are not measured."""
    settings = ReproduceSettings(scale="imagenet256", latents=parse_latents("somewhere"))
    ws = prepare("robustness", tmp_path, settings)[1]
    assert ws.available() == ["semvae"]
    assert {job.data for job in ordered(SPECS["robustness"].jobs(ws)) if isinstance(job, Train)} == {Path("somewhere")}
    both = ReproduceSettings(scale="imagenet256", latents=parse_latents("semvae=a, clip-pca=b"))
    assert prepare("schedules", tmp_path, both)[1].available() == ["semvae", "clip-pca"]


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["unguide"], ("unguide", "unguided", "all")),
        (["all", "--scale", "huge"], ("huge", "tiny", "imagenet256")),
        (["unguided", "--scale", "imagenet256"], ("latents", "--latents")),
        (["unguided", "--scale", "imagenet256", "--latents", "absent"], ("absent", "--latents")),
        (["schedules", "--latents", "semvae=x"], ("semvae", "pca8")),
        (["schedules", "--latents", "pca8="], "--latents"),
        (["unguided", "--seeds", "0,x"], ("0,x", "--seeds")),
        (["unguided", "--seeds", "1,1"], ("seeds", "--seeds")),
        (["unguided", "--scale", "cifar10"], "cifar10"),
    ],
)
def test_bad_input_gets_one_line(words, facts, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert exit_code(["reproduce", *words, "--out", "out"]) == 2
    captured = capsys.readouterr()
    assert says(facts).search(captured.err), captured.err
    assert captured.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_unknown_guide_is_found_before_anything_runs(tmp_path):
    """Oracle: a preset whose guide does not exist, and one without a guide."""
    for name, guide in (("bad", "nobody"), ("none", "''")):
        preset = tmp_path / f"{name}.yaml"
        preset.write_text(f"base: fashion-small\nsampling: {{guide: {guide}}}\n")
        models = [model.changed(preset=str(preset)) for model in SMALL.models]
        with pytest.raises(lwd.InputError, match=says("nobody" if name == "bad" else "partner")):
            silent("autoguidance", tmp_path / "out", None, SMALL.changed(models=tuple(models)))
    assert not (tmp_path / "out").exists()


def test_several_processes_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(lwd.InputError, match=says("torchrun")):
        silent("schedules", tmp_path / "out")


def test_seeds_and_latents_are_parsed():
    assert parse_seeds("0, 1,2") == (0, 1, 2)
    assert parse_latents("dir") == {"main": "dir"}


@pytest.mark.parametrize(("name", "steps", "method"), [("unguided", 400_000, ""), ("autoguidance", 400_000, "Ours-XL")])
def test_rows_of_the_paper_that_were_not_run_are_quoted_once(name, steps, method):
    """Oracle: as many rows as the paper has; the quoted ones say that nothing was measured."""
    context = SPECS[name].context()
    paper = next(row.paper for row in context if row.name in (method, "Ours") and row.steps in (None, steps))
    mine = TableRow(name="learned", steps=steps, paper=paper, measured={"fid": cell_of([2.5], 0.1)})
    rows = with_quoted([mine], context)
    assert len(rows) == len(context)
    about = {"table": name, "title": "x", "scale": "imagenet256", "seeds": [0], "source": "", "commands": []}
    text = markdown(TableFile(**about, metrics={"fid": "FID"}, rows=rows, versions={}))
    line = next(line for line in text.splitlines() if line.startswith("| learned"))
    assert says("2.5 ± 0.1", paper["fid"]).search(line)
    assert sum("not measured" in line for line in text.splitlines()) >= len(context) - 1
