"""The command line: its help as a snapshot, its answers to right and wrong use."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import lwd
from lwd.cli import build_parser, main
from messages import exit_code, says

SNAPSHOT = Path(__file__).parents[1] / "snapshots" / "cli.txt"


def help_texts() -> str:
    """Help of the command and of all its subcommands, at 80 columns."""
    texts = []

    def visit(parser):
        texts.append(parser.format_help())
        for action in parser._actions:
            for child in (action.choices or {}).values() if hasattr(action, "_name_parser_map") else ():
                visit(child)

    visit(build_parser())
    return "\n----\n".join(texts)


def test_help_is_the_snapshot_fits_a_screen_and_shows_an_example(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = help_texts()
    assert text == SNAPSHOT.read_text()
    for part in text.split("\n----\n"):
        assert len(part.splitlines()) <= 48
        assert "example: lwd " in part


def test_help_and_version_do_not_import_torch():
    """Oracle: sys.modules of a fresh interpreter."""
    code = "import sys; from lwd.cli import build_parser; build_parser(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"lwd {lwd.__version__}\n"


def test_show_prints_the_clocks(capsys):
    """Oracle: the numbers of Offset(0.3) at tau = 0.5."""
    assert main(["schedule", "show", "offset:0.3"]) == 0
    out = capsys.readouterr().out
    assert "breakpoints: 0.2308, 0.7692" in out
    assert " 0.5000     0.3500      0.6500        1.3000         1.3000" in out
    assert main(["schedule", "show", "offset:0.3", "--json"]) == 0
    assert lwd.schedule_from_dict(json.loads(capsys.readouterr().out)) == lwd.Offset(0.3)


def test_export_and_show_round_trip(tmp_path, capsys):
    path = tmp_path / "o.json"
    assert main(["schedule", "export", "offset:0.25", "--groups", "a,b,c", "--lead", "c", "--out", str(path)]) == 0
    assert lwd.load_schedule(path) == lwd.Offset(0.25, ("a", "b", "c"), "c")
    lwd.save_schedule(lwd.Offset(0.3), path, {"lambda": 0.04})
    assert main(["schedule", "show", str(path)]) == 0
    assert says("lambda", 0.04).search(capsys.readouterr().out)
    assert main(["schedule", "export", str(path), "--out", str(tmp_path / "copy.json")]) == 0
    assert (tmp_path / "copy.json").read_bytes() == path.read_bytes()
    capsys.readouterr()
    assert main(["schedule", "show", str(path), "--json"]) == 0
    assert capsys.readouterr().out == path.read_text()
    table = tmp_path / "o.csv"
    assert main(["schedule", "export", "polynomial", "--out", str(table), "--points", "5"]) == 0
    values = np.genfromtxt(table, delimiter=",", names=True)
    assert values.dtype.names == ("tau", "t_texture", "t_semantic", "rate_texture", "rate_semantic")
    assert np.array_equal(values["t_semantic"], [0, 0.25, 0.5, 0.75, 1])


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_plot_writes_a_picture(tmp_path, kind):
    """Oracle: the picture is not blank: each schedule's colour is in it."""
    out = tmp_path / f"s.{kind}"
    assert main(["schedule", "plot", "offset:0.3", "cascade", "--out", str(out)]) == 0
    if kind == "png":
        pixels = np.asarray(Image.open(out).convert("RGB")).reshape(-1, 3).astype(int)
        for colour in ((0x4C, 0x72, 0xB0), (0xDD, 0x84, 0x52)):
            assert (np.abs(pixels - colour).max(1) < 12).sum() > 200
    else:
        assert out.stat().st_size > 5000


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (
            ["schedul"],
            ("schedul", "demo", "sample", "data", "fit", "encode", "probe", "sweep", "train", "schedule"),
        ),
        (["schedule", "sho"], ("sho", "show", "plot", "export")),
        (["schedule"], "ACTION"),
        (["schedule", "show", "absent.json"], ("absent.json", "offset:0.3")),
        (["schedule", "show", "offset:2"], ("delta", "2.0")),
        (["schedule", "show", "offset:0.3", "--points", "1"], ("points", 1, 2, 100000)),
        (["schedule", "plot", "offset:0.3", "--out", "x.jpg"], ("x.jpg", "png", "pdf", "svg")),
        (["schedule", "export", "offset:0.3", "--out", "x.yaml"], ("x.yaml", "json", "csv")),
        (["schedule", "export", "offset:0.3", "--out", "x.json", "--points", "4"], ("--points", "json")),
        (["schedule", "export", "offset:0.3", "--out", "/proc/nowhere/x.json"], "/proc/nowhere/x.json"),
        (["schedule", "show", "offset:0.3", "--groups", "texture,texture"], "texture"),
        (["schedule", "show", "offset:0.3", "--groups", ""], "group"),
        (["schedule", "show", "offset:0.3", "--json", "--points", "4"], ("--points", "--json")),
        (["schedule", "show", "x" * 300], "x" * 300),
        (["it's"], "it's"),
        (["demo", "--out", "/proc/nowhere"], "/proc/nowhere"),
    ],
)
def test_wrong_use_gets_one_line_and_exit_code_2(arguments, facts, capsys):
    assert exit_code(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says(facts).search(captured.err), captured.err
    assert captured.err.count("\n") == 1


def _interrupt(*_):
    raise KeyboardInterrupt


def test_ctrl_c_exits_with_130_or_3_where_everything_is_saved(monkeypatch, capsys, tmp_path):
    """Oracle: the codes of docs/troubleshooting.md; one line, which promises a continuation only where there is one."""
    monkeypatch.setattr("lwd.report.plots.save_figure", _interrupt)
    assert main(["schedule", "plot", "synchronous", "--out", str(tmp_path / "a.png")]) == 130
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert says("interrupted").search(said[0])
    assert not says("saved").search(said[0])
    assert not says("same command").search(said[0])
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("lwd.demo.run.run_demo", _interrupt)
    monkeypatch.setattr("lwd.reproduce.run.reproduce", _interrupt)
    for command in (["demo"], ["reproduce", "unguided"]):
        assert main([*command, "--out", str(tmp_path / "out")]) == 3
        said = capsys.readouterr().err.splitlines()
        assert len(said) == 1
        assert says("interrupted", "saved", "same command").search(said[0])


def test_a_reader_may_close_the_pipe():
    """Oracle: `lwd ... | head -1` prints one line, and nothing about the pipe."""
    command = f"{sys.executable} -m lwd schedule show offset:0.3 --points 20000 | head -1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("Offset(")
    assert (done.returncode, done.stderr) == (0, "")


if __name__ == "__main__":
    import os

    os.environ["COLUMNS"] = "80"
    SNAPSHOT.parent.mkdir(exist_ok=True)
    SNAPSHOT.write_text(help_texts())
