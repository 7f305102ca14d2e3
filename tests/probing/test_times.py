"""The independent times of a surface probe: their distribution, a focus on schedules, and resuming with both."""

import pytest
import torch

import lwd
from lwd.probing.surface import surface_probe
from lwd.training.config import with_changes
from lwd.training.draws import Focus, draw
from messages import says
from train_data import MatrixNet, cpu, gaussian, memory, settings


def test_local_times_can_be_logit_normal():
    """Oracle: the distribution's quartiles, for each group; the strata are those of the uniform times."""
    even = draw((0, 0, 5), (4096, 1), slice(None), groups=2).local
    bell = draw((0, 0, 5), (4096, 1), slice(None), ("logit-normal", -0.5), groups=2).local
    assert torch.equal(bell.argsort(0), even.argsort(0))
    for share in (0.25, 0.5, 0.75):
        expected = torch.sigmoid(-0.5 + torch.special.ndtri(torch.tensor(share, dtype=torch.float64)))
        assert torch.allclose(bell.quantile(share, dim=0), expected, atol=2e-3)


@pytest.fixture
def asked(monkeypatch):
    """The times that the network of a probe is asked for while it trains, one row for each image."""
    found = []
    forward = MatrixNet.forward

    def watch(self, z, times, label):
        if self.training and torch.is_grad_enabled():
            found.append(times.detach().clone())
        return forward(self, z, times, label)

    monkeypatch.setattr(MatrixNet, "forward", watch)
    return found


def probed(out, run=None, **probe):
    """Run a tiny surface probe on Gaussian data."""
    data = memory(gaussian(), 512)
    config = settings(run={"batch": 64, "steps": 4} | (run or {}), probe={"steps": 4, "burn_in": 0, "points": 5})
    config = with_changes(config, probe={"samples": 64} | probe)
    return surface_probe(config, data, out, cpu(network=MatrixNet(data.layout.channels)))


def test_a_probe_trains_at_the_times_of_its_setting(tmp_path, asked):
    """Oracle: what its network is asked for: with a mean of -3 most times are noisy; run.tau has no part in it."""
    probed(tmp_path, {"tau": "logit-normal"}, times="logit-normal", times_mean=-3.0)
    trained = torch.cat(asked)
    assert len(trained) == 4 * 64
    assert float(trained.median()) < 0.1
    assert float(trained.mean()) < 0.15


def test_a_probe_trains_at_the_times_of_its_focus(tmp_path, asked):
    """Oracle: half of the rows lie on one clock, in one part or in two; without a focus none does."""
    for name, parts in (("one", 1), ("two", 2)):
        probed(tmp_path / name, {"accumulate": parts}, focus=("synchronous",), focus_share=0.5)
    probed(tmp_path / "none")
    one, two, none = (torch.cat(asked[start : start + count]) for start, count in ((0, 4), (4, 8), (12, 4)))
    assert torch.equal(one, two)
    assert [int((rows[:, 0] == rows[:, 1]).sum()) for rows in (one, none)] == [2 * 64, 0]


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"times": "logit-normal"}, "probe.times"), ({"focus": ("offset:0.2",)}, "probe.focus"), ({"focus": ()}, "focus")],
)
def test_a_probe_does_not_continue_at_other_times(tmp_path, changes, name):
    """Oracle: it would mix two distributions, or call an old network by the new settings."""
    probed(tmp_path, focus=("offset:0.3",))
    with pytest.raises(lwd.InputError, match=says(name)):
        probed(tmp_path, **{"focus": ("offset:0.3",)} | changes)


@pytest.mark.parametrize(
    ("changes", "name"), [({"times": "logit-normal"}, "times"), ({"focus": ("cascade",)}, "focus")]
)
def test_a_joint_probe_has_no_independent_times(tmp_path, changes, name):
    """Oracle: a setting without effect is an error."""
    data = memory(gaussian(), 512)
    config = with_changes(settings(run={"batch": 64}), probe=changes)
    with pytest.raises(lwd.InputError, match=says(f"probe.{name}")):
        lwd.probe(config, data, tmp_path, cpu(network=MatrixNet(data.layout.channels)))


def test_a_probe_does_not_continue_with_another_curve_of_the_same_name(tmp_path):
    """Oracle: the file of the schedule is not what it was."""
    file = tmp_path / "curve.json"
    lwd.save_schedule(lwd.Offset(0.3), file)
    probed(tmp_path / "run", focus=(str(file),))
    lwd.save_schedule(lwd.Offset(0.2), file)
    with pytest.raises(lwd.InputError, match=says("schedule")):
        probed(tmp_path / "run", focus=(str(file),))


def test_a_focus_replaces_a_share_of_the_independent_times():
    """Oracle: the schedules themselves, in turn; the same rows for any division of the batch; the rest is unchanged."""
    names = ("texture", "semantic")
    curves = [lwd.Cascade(handover=0.8), lwd.Offset(0.3)]
    plain = draw((0, 0, 5), (64, 1), slice(None), groups=2)
    mixed = Focus(curves, 0.375)(plain, 0)
    times, rates = mixed.clocks(None)
    found = [[bool(torch.equal(times[row], curve.times(plain.tau[row]))) for row in range(64)] for curve in curves]
    assert [sum(rows) for rows in found] == [12, 12]
    for row in range(64):
        curve = next((c for c, rows in zip(curves, found, strict=True) if rows[row]), None)
        assert torch.equal(times[row], plain.local[row] if curve is None else curve.times(plain.tau[row]))
        assert torch.equal(rates[row], torch.ones(2) if curve is None else curve.rates(plain.tau[row]))
    parts = [Focus(curves, 0.375)(draw((0, 0, 5), (64, 1), slice(k, k + 16), groups=2), k) for k in range(0, 64, 16)]
    assert torch.equal(torch.cat([part.local for part in parts]), times)
    assert torch.equal(Focus()(plain, 0).local, plain.local)
    assert Focus([lwd.Synchronous(names)], 1.0)(plain, 0).local.eq(plain.tau[:, None]).all()
