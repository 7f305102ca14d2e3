"""A table of surfaces by several processes, and in lower precision."""

import torch

from lwd.surfaces import table as tables
from lwd.surfaces.table import TableOptions, tabulate
from strategies import small_mixture

DATA = small_mixture()


def test_processes_share_the_points():
    """Oracle: one process, bit for bit; every point is evaluated by one of them."""
    data, labels = torch.randn(40, 3, 1, 1).double(), torch.zeros(40, dtype=torch.int64)
    one = tabulate(DATA, data, labels, DATA.layout, 5)
    seen, parts = [], []
    for rank in range(3):

        def total(value):
            parts[-1].append(value)
            return value

        parts.append([])
        tabulate(DATA, data, labels, DATA.layout, 5, True, TableOptions(seen.append, (rank, 3), total))
    assert sum(seen) == 25 * 40
    means, errors, grams = (sum(part[i] for part in parts) for i in range(3))
    assert torch.equal(means[:, 0], one.losses)
    assert torch.equal(means[:, 1], one.energies)
    assert torch.equal(errors[:, 0], one.loss_errors)
    assert torch.equal(grams, one.bends)


def test_lower_precision_is_for_losses_and_not_for_differences(monkeypatch):
    """Oracle: calls by kind; a fast denoiser that is the denoiser itself gives the same losses."""
    monkeypatch.setattr(tables, "BATCH", 16)
    data, labels = torch.randn(40, 3, 1, 1).double(), torch.zeros(40, dtype=torch.int64)
    calls = {"exact": 0, "fast": 0}

    def counted(name):
        def velocity(z, times, label):
            calls[name] += len(z)
            return DATA(z, times, label)

        return velocity

    exact, fast = counted("exact"), counted("fast")
    found = tabulate(exact, data, labels, DATA.layout, 5, True, TableOptions(fast=fast))
    assert calls == {"exact": 25 * 16 * 3, "fast": 25 * 40}
    whole = tabulate(DATA, data, labels, DATA.layout, 5)
    assert torch.equal(found.losses, whole.losses)
