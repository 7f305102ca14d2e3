"""`lwd studio` on the command line."""

import types

from lwd.cli import main
from messages import exit_code, says


def test_a_model_that_does_not_exist_ends_the_command(capsys, tmp_path, monkeypatch):
    """Oracle: the error, before Gradio (seconds to import) is used."""
    monkeypatch.setitem(__import__("sys").modules, "gradio", types.ModuleType("gradio"))
    assert main(["studio", "--model", str(tmp_path / "nothing")]) == 2
    assert says("nothing", "fashion").search(capsys.readouterr().err)


def test_bad_ports_are_refused(capsys):
    assert exit_code(["studio", "--port", "99999"]) == 2
    assert says("port", 65535).search(capsys.readouterr().err)


def test_without_gradio_the_error_names_the_extra(capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "gradio", None)
    assert main(["studio"]) == 2
    assert "lwd[studio]" in capsys.readouterr().err
