"""Documented commands are run: lwd probe and sweep. All but one of each kind are slow."""

import pytest

from cli.shown import check, in_part


@pytest.mark.parametrize("command", in_part("probe"))
def test_command_runs(command, shop, folder):
    check(command, shop, folder)
