"""What a sample costs: samples that are done leave the batch, and only the rows that are needed are evaluated."""

from dataclasses import replace

import pytest
import torch

import lwd
from lwd.compute.rounding import is_intel
from lwd.sampler import FlowField
from pipelines import LAYOUT
from reference import busy_network, small_config
from strategies import small_mixture


def rows_evaluated(network):
    """A velocity that notes the size of every batch it is called with."""
    sizes = []

    def velocity(z, times, label):
        sizes.append(len(z))
        return network(z, times, label)

    return velocity, sizes


def test_samples_that_are_done_leave_the_batch_and_keep_their_bytes():
    """Oracle: the same solve with every sample in the batch to the end, bit for bit; and the calls each needs alone."""
    network = busy_network(small_config(LAYOUT, classes=3, depth=1), 0)

    def uneven(z, times, label):  # a class whose flow turns quickly needs more steps
        turn = torch.cos(8 * times[:, :1].to(z.dtype) * (label == 2)[:, None])[:, :, None, None]
        return 0.2 * network(z, times, label) * turn

    run = {"seeds": range(16), "labels": [0, 2] * 8, "size": network.config.grid, "adaptive": "sample"}
    results = {}
    for drop in (8, 16):
        velocity, sizes = rows_evaluated(uneven)
        results[drop] = lwd.sample(velocity, lwd.Offset(0.3), LAYOUT, drop=drop, rtol=1e-2, **run), sizes
    (dropped, sizes), (kept, all_of_them) = results[8], results[16]
    assert torch.equal(dropped.z, kept.z)
    assert torch.equal(dropped.nfe_per_sample, kept.nfe_per_sample)
    assert dropped.nfe == kept.nfe == len(sizes)
    assert set(all_of_them) == {16}
    assert all(size % 8 == 0 for size in sizes)
    need = int(kept.nfe_per_sample.sum())
    assert need <= sum(sizes) < sum(all_of_them)
    # Padding to 8 rows costs at most 7 of them a call.
    assert sum(sizes) <= need + 7 * len(sizes)


def test_each_sample_keeps_its_label_when_others_leave():
    """Oracle: class 0 is one Gaussian far away, so that a sample with another's label would end elsewhere."""
    means = torch.tensor([[10.0, 10, 10], [0, 0, 0], [1, 0, 0]])
    layout = lwd.Layout.of(texture=2, semantic=1)
    data = lwd.GaussianMixture(layout, means, 0.1 * torch.eye(3).expand(3, 3, 3), labels=[0, 1, 1])
    labels = [0, 1, 1] * 8
    velocity, sizes = rows_evaluated(data)
    z = lwd.sample(velocity, lwd.Offset(0.3), layout, seeds=range(24), labels=labels, size=(1, 1), adaptive="sample").z
    assert min(sizes) < 24
    assert [bool(row.min() > 5) for row in z] == [label == 0 for label in labels]


def test_a_field_that_cannot_be_divided_is_solved_as_before():
    """Oracle: the same field as a plain function."""
    data = small_mixture()
    noise = lwd.seeded_noise(range(24), (3, 1, 1)).double()
    field = FlowField(data, lwd.Synchronous(), data.layout, torch.zeros(24, dtype=torch.int64))
    whole = lwd.solve(lambda z, tau: field(z, tau), noise, adaptive="sample", rtol=1e-3)
    parts = lwd.solve(field, noise, adaptive="sample", rtol=1e-3)
    torch.testing.assert_close(parts.z, whole.z, atol=1e-12, rtol=0)
    assert torch.equal(replace(field, label=torch.arange(24)).rows(torch.tensor([3, 5])).label, torch.tensor([3, 5]))


@pytest.mark.parametrize(
    ("text", "intel"), [("vendor_id\t: GenuineIntel\n", True), ("vendor_id\t: AuthenticAMD\n", False)]
)
def test_only_intel_machines_get_the_setting(tmp_path, text, intel):
    """Oracle: the vendor's name; no file, as on other systems, is not an error."""
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{text}")
    assert is_intel(tmp_path / "cpuinfo") is intel
    assert not is_intel(tmp_path / "missing")
