"""The audit of installed packages: an answer that looked nothing up is not a clean one."""

import importlib.util
import json
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("audit", Path(__file__).parents[1] / "tools" / "audit.py")
AUDIT = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(AUDIT)
SKIPPED = {"name": "a", "skip_reason": "not found on PyPI"}
CLEAN = {"name": "b", "version": "1", "vulns": []}
BAD = {"name": "c", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}


@pytest.mark.parametrize(
    ("packages", "code", "facts"),
    [
        ([SKIPPED, SKIPPED], 0, ("SKIPPED", "2")),
        ([SKIPPED, CLEAN], 0, ("0 of 1", "1 not looked up")),
        ([CLEAN, BAD], 1, ("c 2", "CVE-1", "1 of 2")),
    ],
)
def test_the_report_says_how_many_packages_were_looked_up(capsys, packages, code, facts):
    """Oracle: pip-audit's own JSON, which reports no vulnerabilities if it reached no database."""
    assert AUDIT.report(json.dumps({"dependencies": packages}), "") == code
    printed = capsys.readouterr().out
    assert all(fact in printed for fact in facts)


def test_without_pip_audit_the_line_says_so(capsys):
    assert AUDIT.report("", "python: No module named pip_audit\n") == 0
    assert "SKIPPED" in capsys.readouterr().out
