"""Documented commands are run: lwd schedule, surfaces, evaluate, compare, bench. All but one of each kind are slow."""

import pytest

from cli.shown import check, in_part


@pytest.mark.parametrize("command", in_part("schedule"))
def test_command_runs(command, shop, folder):
    check(command, shop, folder)
