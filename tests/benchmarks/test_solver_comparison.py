"""The claims of benchmarks/solver.py, held as tests."""

import importlib.util
from pathlib import Path

import pytest
from torch.testing import assert_close

import lwd

PATH = Path(__file__).parents[2] / "benchmarks" / "solver.py"
spec = importlib.util.spec_from_file_location("solver_benchmark", PATH)
benchmark = importlib.util.module_from_spec(spec)
__import__("sys").modules[spec.name] = benchmark
spec.loader.exec_module(benchmark)

SMOOTH = {p.name: p for p in benchmark.smooth_problems()}
KINKED = {p.name: p for p in benchmark.kinked_problems()}
FLOWS = [name for name in SMOOTH if "/" in name]


@pytest.mark.parametrize("name", FLOWS)
def test_on_smooth_flows_no_larger_error_at_no_more_evaluations(name):
    """Oracle: torchdiffeq's dopri5, at each rtol: both numbers at the same rtol, and matched for error."""
    for row in benchmark.compare(SMOOTH[name], (1e-3, 1e-5, 1e-6)):
        assert row["nfe ratio"] <= 1, row
        assert row["error ratio"] <= 1, row
        assert row["matched"] <= 1, row


@pytest.mark.parametrize("name", KINKED)
def test_on_kinked_flows_at_most_half_the_evaluations_at_equal_or_smaller_error(name):
    """Oracle: torchdiffeq's dopri5 for rtol <= 1e-4."""
    for row in benchmark.compare(KINKED[name], (1e-4, 1e-5, 1e-6)):
        assert row["matched"] <= 0.5, row
        assert row["error ratio"] <= 1, row


def test_the_benchmarks_own_truth():
    """Oracle: an independent integrator, rk4 with 1000 steps."""
    for problem in (SMOOTH["mixture/polynomial"], KINKED["mixture/offset"]):
        fine = lwd.solve(problem.field, problem.start, "rk4", steps=1000, breakpoints=problem.breakpoints).z
        assert_close(benchmark.reference(problem), fine, atol=1e-9, rtol=0)
