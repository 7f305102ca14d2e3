"""docs/architecture.md as tests: layers, a method that fits one sitting, files and functions of readable size."""

import ast
import re
import sys
from pathlib import Path

import pytest

import lwd

ROOT = Path(lwd.__file__).parent
METHOD = ("groups", "path", "schedule", "objective", "solver", "sampler", "guidance")
LAYERS = (
    *("version", "errors", "assets", "io", "compute"),
    *METHOD,
    *("models", "surfaces", "images", "representations", "latents", "checkpoints"),
    *("training", "probing", "sampling", "evaluation", "report", "reproduce", "demo", "studio", "cli"),
)
"""A package imports those before it, never the reverse."""
LOOSE = ("__init__", "__main__")


def imports(path):
    """Absolute names that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write absolute imports"
            yield node.module


def package_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path):
    """Oracle: the list of layers; the method knows torch, numpy and the standard library only."""
    package = package_of(path)
    if package in LOOSE:
        return
    allowed = LAYERS[: LAYERS.index(package) + 1]
    for name in imports(path):
        head, *rest = name.split(".")
        if head == "lwd":
            assert rest, f"{path.name}: import from a module, not from lwd"
            assert rest[0] in allowed, f"{package} must not import {name}"
        elif package in METHOD:
            assert head in {"torch", "numpy", *sys.stdlib_module_names}, f"{package} imports {head}"


def test_few_modules_are_loose():
    """Oracle: the issue that asked for this tree: at most ten modules beside the packages."""
    assert len(list(ROOT.glob("*.py"))) <= 10


def test_the_method_fits_one_sitting():
    """Oracle: fewer than 1,500 lines that are not blank."""
    paths = [p for name in METHOD for p in [ROOT / f"{name}.py", *(ROOT / name).glob("*.py")] if p.exists()]
    assert sum(bool(line.strip()) for path in paths for line in path.read_text().splitlines()) < 1500


REPOSITORY = Path(__file__).parents[1]


def listed():
    """The modules in the tables of docs/architecture.md; in a row, later names are in the folder of the first."""
    page = (REPOSITORY / "docs" / "architecture.md").read_text().split("## The tree")[1].split("## Principles")[0]
    for row in re.findall(r"^\| (`[^|]+`) \|", page, re.MULTILINE):
        names = re.findall(r"`([^`]+)`", row)
        folder = Path(names[0]).parent
        yield from (str(Path(name) if "/" in name else folder / name) for name in names if name.endswith(".py"))


def test_every_module_is_on_the_page():
    """Oracle: the files themselves, both ways; `cli/NAME.py` stands for the commands."""
    names = list(listed())
    there = {str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py")}
    assert len(names) == len(set(names))
    assert set(names) - there == {"cli/NAME.py"}
    missing = there - set(names)
    assert {name for name in missing if not name.startswith("cli/") and not name.endswith("__init__.py")} == set()


OURS = [path for folder in ("src", "tests", "tools", "benchmarks") for path in (REPOSITORY / folder).rglob("*.py")]


def test_files_stay_readable():
    """Oracle: at most 350 lines a file, whether it is source, test, tool or benchmark."""
    assert {"src", "tests", "tools", "benchmarks"} == {path.relative_to(REPOSITORY).parts[0] for path in OURS}
    assert [str(path) for path in OURS if len(path.read_text().splitlines()) > 350] == []


def test_functions_stay_readable():
    """Oracle: at most 45 lines a function, 7 parameters a function."""
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                doc = ast.get_docstring(node, clean=False) or ""
                assert node.end_lineno - node.lineno - doc.count("\n") < 45, f"{path}: {node.name}"
                names = {a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
                assert len(names - {"self", "cls"}) <= 7, f"{path}: {node.name}"
