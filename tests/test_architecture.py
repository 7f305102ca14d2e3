"""A later room imports an earlier one, never the reverse (DESIGN)."""

import ast
from pathlib import Path

import pytest

import lwd

ROOT = Path(lwd.__file__).parent
BASE = {"errors", "files", "version"}
CORE = {"groups", "schedule", "path", "objective", "probe", "solver", "sampler", "placement", "guidance"}
MODELS = {"models", "representations", "checkpoint", "pipeline"}
ALLOWED = {
    "errors": set(),
    "version": set(),
    "files": {"errors"},
    "groups": {"errors"},
    "schedule": {"errors", "files", "groups"},
    "path": {"errors", "groups"},
    "objective": {"errors", "groups"},
    "probe": {"errors", "files", "groups", "path", "schedule", "objective", "weights"},
    "solver": {"errors"},
    "sampler": {"errors", "groups", "schedule", "path", "solver"},
    "placement": {"errors", "groups", "path", "sampler", "schedule", "solver"},
    "guidance": {"errors", "groups", "path"},
    "jobs": {"errors", "files"},
    "fetch": {"errors"},
    "weights": {"errors", "files"},
    "models": {"errors", "groups", "weights"},
    "moments": {"errors"},
    "representations": {"assets", "errors", "moments", "fetch", "files", "groups", "weights", "models"},
    "assets": set(),
    "data": BASE | {"assets", "fetch", "groups", "weights", "representations"},
    "encode": BASE | {"groups", "jobs", "weights", "representations", "data"},
    "embedded": BASE | {"groups", "representations", "data"},
    "fit": BASE | {"groups", "weights", "representations", "data"},
    "checkpoint": BASE | CORE | {"weights", "models", "representations"},
    "convert": BASE | CORE | {"weights", "models", "representations", "checkpoint"},
    "pipeline": BASE | CORE | {"assets", "models", "representations", "checkpoint"},
    "config": {"errors"},
    "metrics": {"errors", "files", "moments", "weights"},
    "train": BASE | CORE | {"weights", "models", "representations", "data", "checkpoint", "config"},
    "report": BASE | CORE | {"models", "representations", "data", "pipeline", "train", "bench"},
    "stages": BASE | CORE | MODELS | {"data", "config", "train", "report", "weights"},
    "surface_probe": BASE | CORE | MODELS | {"data", "config", "train", "stages", "weights"},
    "bench": {"errors", "groups", "path", "placement", "sampler", "schedule", "solver"},
    "generator": BASE | CORE | MODELS | {"data", "jobs", "bench"},
    "evaluation": BASE
    | {"data", "jobs", "metrics", "moments", "representations", "report", "weights", "bench", "generator"},
    "samples": BASE | {"data", "jobs", "generator"},
    "demo": BASE
    | CORE
    | {
        "assets",
        "checkpoint",
        "config",
        "data",
        "embedded",
        "evaluation",
        "generator",
        "jobs",
        "report",
        "representations",
    }
    | {"samples", "stages", "surface_probe", "train"},
    "cli": BASE
    | CORE
    | MODELS
    | {
        "data",
        "encode",
        "embedded",
        "fit",
        "report",
        "demo",
        "convert",
        "config",
        "stages",
        "train",
        "metrics",
        "generator",
        "samples",
        "bench",
        "surface_probe",
        "evaluation",
        "jobs",
    },
}


def imports(path):
    """Absolute names that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write absolute imports"
            yield node.module


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path):
    room = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if room in ("__init__", "__main__"):
        return
    for name in imports(path):
        head, *rest = name.split(".")
        if head == "lwd":
            assert rest, f"{path.name}: import from a room, not from lwd"
            assert rest[0] == room or rest[0] in ALLOWED[room], f"{room} must not import {name}"
        elif room in CORE:
            assert head in {"torch", "numpy", *__import__("sys").stdlib_module_names}, f"{room} imports {head}"


def test_rooms_stay_small():
    """Oracle: DESIGN's 300 lines a room, 40 a function, with a little air."""
    for path in ROOT.rglob("*.py"):
        text = path.read_text()
        assert len(text.splitlines()) <= 330, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < 45, f"{path}: {node.name}"
