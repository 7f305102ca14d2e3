"""Examples in docstrings are run; docs/formats.md is what the records say."""

import doctest
import importlib.util
from importlib import import_module
from pathlib import Path

import pytest
import torch

import lwd

ROOT = Path(lwd.__file__).parent
WITH_EXAMPLES = sorted(
    str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
    for path in ROOT.rglob("*.py")
    if ">>> " in path.read_text()
)
PUBLIC = ("Encoders", "encode", "evaluate", "probe", "sample", "sample_sde", "solve", "surface_probe", "sweep", "train")


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_in_docstrings(name, tmp_path, monkeypatch):
    """Oracle: the output that the docstring shows."""
    monkeypatch.chdir(tmp_path)
    module = import_module(f"lwd.{name}")
    result = doctest.testmod(module, extraglobs={"lwd": lwd, "torch": torch}, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted
    assert not result.failed


@pytest.mark.parametrize("name", PUBLIC)
def test_functions_that_a_user_needs_have_an_example(name):
    """Oracle: the list of what the command line does, as functions."""
    assert ">>> " in (getattr(lwd, name).__doc__ or "")


def test_the_formats_page_is_up_to_date():
    """Oracle: the page rendered again from the records."""
    path = ROOT.parents[1] / "tools" / "make_formats.py"
    spec = importlib.util.spec_from_file_location("make_formats", path)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    page = tool.PAGE.read_text()
    assert tool.render(page) == page, "run: python tools/make_formats.py"


def test_every_file_record_is_on_the_formats_page():
    """Oracle: all subclasses of FileRecord that have a format of their own."""
    from lwd.io.records import FileRecord

    for path in [*ROOT.rglob("formats.py"), ROOT / "demo" / "plan.py"]:
        import_module("lwd." + str(path.relative_to(ROOT).with_suffix("")).replace("/", "."))
    page, kinds = (ROOT.parents[1] / "docs" / "formats.md").read_text(), [FileRecord]
    for kind in kinds:
        kinds += kind.__subclasses__()
    leaves = [kind for kind in kinds if not kind.__subclasses__()]
    assert len(leaves) > 20
    for kind in leaves:
        assert f"<!-- record {kind.__module__}:{kind.__name__} -->" in page
