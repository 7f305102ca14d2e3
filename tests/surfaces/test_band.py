"""Surfaces of somebody else's network: bands of offsets, measured and estimated."""

import pytest
import torch
from torch.testing import assert_close

import lwd
from lwd.cli import main
from lwd.latents.shards import write_manifest, write_shard
from lwd.latents.statistics import unit_statistics
from lwd.surfaces.band import Band, extended, parse_band
from lwd.surfaces.family import between, descend
from lwd.surfaces.files import load_surfaces, save_surfaces
from lwd.surfaces.lambda_path import MARGIN, farthest_outside, lambda_path
from lwd.surfaces.measure import Samples, compare_offsets, estimate_band, offset_schedule, tabulate_band
from lwd.surfaces.settings import MeasureSettings, PathSettings
from lwd.surfaces.table import SHIFT, GridSurfaces
from messages import exit_code, says
from sefi import write_autoencoder, write_model, write_text_encoder

LAYOUT = lwd.Layout.of(semantic=1, texture=2)
SETTINGS = MeasureSettings(points=13, batch=4000)


def gaussian():
    """Correlated groups: each tells something about the other."""
    factor = torch.tensor([[1.0, 0.0, 0.0], [0.8, 0.5, 0.0], [-0.5, 0.2, 0.6]], dtype=torch.float64)
    return lwd.Gaussian(LAYOUT, factor @ factor.T)


class Published:
    """A perfect network inside a band; outside it is wrong, or refuses to be asked."""

    def __init__(self, band, refuse=False):
        self.data, self.band, self.refuse = gaussian(), band, refuse

    def __call__(self, z, times, label):
        inside = self.band.contains(times, SHIFT + 1e-9)
        assert inside.all() or not self.refuse, times[~inside]
        return torch.where(inside[:, None, None, None], 1.0, -2.0) * self.data(z, times, label)


def samples(count=1000):
    data, labels = gaussian().draw(count)
    return Samples(data, labels, LAYOUT)


@pytest.mark.parametrize(("low", "high"), [(0.05, 0.3), (0.1, 0.1), (-0.2, 0.2), (-0.4, -0.1), (0.0, 1.0)])
def test_a_band_is_its_offsets(low, high):
    """Oracle: the paths of offsets inside it, and of one beyond each end."""
    band, tau = Band(low, high), torch.linspace(0, 1, 201, dtype=torch.float64)
    for offset in torch.linspace(low, high, 5).tolist():
        assert band.contains(offset_schedule(offset, LAYOUT.names, 0).times(tau), 1e-6).all()
    for beyond in (low - 0.1, high + 0.1):
        if -1 < beyond < 1:
            times = offset_schedule(beyond, LAYOUT.names, 0).times(tau)
            assert float(band.outside(times).max()) == pytest.approx(0.1, abs=0.01)


def test_the_lead_may_be_any_column():
    """Oracle: exchange the columns."""
    times = torch.rand(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(Band(0.1, 0.2, 0).outside(times), Band(0.1, 0.2, 1).outside(times.flip(1)))


def test_extension_is_linear():
    """Oracle: a plane is continued exactly."""
    points = torch.cartesian_prod(*[torch.linspace(0, 1, 9, dtype=torch.float64)] * 2)
    values = torch.stack([2 * points[:, 0] - points[:, 1], torch.ones(81, dtype=torch.float64)], 1)
    inside = Band(-0.1, 0.3).contains(points)
    broken = torch.where(inside[:, None], values, torch.zeros_like(values))
    near = Band(-0.25, 0.45).contains(points)
    assert_close(extended(points, broken, inside)[near], values[near], atol=2e-2, rtol=0)


def test_measured_surfaces_are_exact_within_their_errors():
    """Oracle: the closed form inside the band; outside the network is never asked, and the table is masked."""
    band = Band(0.05, 0.3)
    table = tabulate_band(Published(band, refuse=True), samples(), band, SETTINGS)
    inside = table.mask
    assert torch.equal(inside, band.contains(table.points))
    assert 0.2 < inside.double().mean() < 0.7
    losses, energies = gaussian().surfaces(table.points)
    assert ((table.losses - losses).abs() <= 5 * table.loss_errors + 1e-9)[inside].all()
    assert ((table.energies - energies).abs() <= 5 * table.energy_errors + 1e-9)[inside].all()
    assert (table.losses[~inside] == 0).all()
    assert (table.loss_errors[inside] > 0).any()
    smooth = GridSurfaces(table)
    middle = torch.tensor([[0.55, 0.4], [0.8, 0.62]], dtype=torch.float64)
    assert_close(smooth(middle)[0], gaussian().surfaces(middle)[0], atol=0.05, rtol=0.1)
    far = torch.tensor([[0.9, 0.1]], dtype=torch.float64)
    assert (smooth(far)[0] > losses.max()).all()


def test_the_band_is_estimated_by_where_the_loss_breaks_down():
    """Oracle: the edges of a network that is wrong beyond them, to one step of the grid."""
    settings = MeasureSettings(points=26, batch=1000, breakdown=1.0)
    found = estimate_band(Published(Band(0.02, 0.22)), samples(), 0.1, settings)
    assert found.low == pytest.approx(0.02, abs=0.05)
    assert found.high == pytest.approx(0.22, abs=0.05)
    assert found.low <= 0.1 <= found.high


def test_curves_stay_inside(tmp_path):
    """Oracle: the band; on the exact surfaces, the best curve leaves it. The band survives a file."""
    band, tau = Band(0.0, 0.15), torch.linspace(0, 1, 101, dtype=torch.float64)
    save_surfaces(tabulate_band(Published(band), samples(), band, SETTINGS), tmp_path / "surfaces.safetensors")
    table = load_surfaces(tmp_path)[0]
    assert table.band == band
    objective, family = lwd.FlowObjective(LAYOUT, kinetic=0.02), lwd.Polynomial(groups=LAYOUT.names)
    start = between(family, family.extremes()[0], 0.4)  # outside
    inside = descend(start, GridSurfaces(table), objective, steps=40)
    assert farthest_outside(inside, GridSurfaces(table)) <= MARGIN
    free = descend(start, gaussian().surfaces, objective, steps=20)
    assert float(band.outside(free.times(tau).detach()).max()) > 2 * MARGIN


@pytest.mark.slow
def test_the_path_and_its_commands_stay_inside(tmp_path):
    """Oracle: the band along the chosen curve."""
    band, tau = Band(0.0, 0.15), torch.linspace(0, 1, 101, dtype=torch.float64)
    save_surfaces(tabulate_band(Published(band), samples(), band, SETTINGS), tmp_path / "surfaces.safetensors")
    objective, family = lwd.FlowObjective(LAYOUT), lwd.Polynomial(groups=LAYOUT.names)
    surfaces = GridSurfaces(load_surfaces(tmp_path)[0])
    path = lambda_path(family, surfaces, objective, PathSettings(lambdas=(0.01, 0.1)))
    assert path.weakest is not None
    assert path.weakest.outside <= MARGIN
    assert float(band.outside(path.weakest.schedule.times(tau).detach()).max()) <= MARGIN
    command = ["schedule", "path", str(tmp_path), "--lambdas", "0.1", "--steps", "20", "--out", str(tmp_path / "path")]
    assert main(command) == 0
    chosen = lwd.load_schedule(tmp_path / "path" / "chosen.json")
    assert float(band.outside(chosen.times(tau).detach()).max()) <= MARGIN
    assert main(["surfaces", "show", str(tmp_path), "offset:0.1", "--out", str(tmp_path / "s.png")]) == 0


def test_offsets_are_compared_on_the_surfaces():
    """Oracle: the path integral of the exact surfaces under each offset."""
    band = Band(0.0, 0.3)
    table = tabulate_band(Published(band), samples(), band, SETTINGS)
    rows = compare_offsets(table, lwd.FlowObjective(LAYOUT), steps=50, count=3)
    for row in rows:
        schedule = offset_schedule(row.offset, LAYOUT.names, 0)
        exact = float(lwd.path_objective(schedule, gaussian().surfaces, lwd.FlowObjective(LAYOUT, kinetic=0.0)))
        assert row.flow == pytest.approx(exact, rel=0.1)
    assert [row.offset for row in rows] == [0.0, 0.15, 0.3]


def test_bad_bands():
    """Oracle: the message names the band."""
    with pytest.raises(lwd.InputError, match=says("0.1:0.11", 13)):
        tabulate_band(gaussian(), samples(32), Band(0.1, 0.11), SETTINGS)
    for text in ("0.3", "0.3:0.1", "a:b", "0:2"):
        with pytest.raises(lwd.InputError, match=says("LOW:HIGH")):
            parse_band(text)


def write_latents(root, layout, grid, captions=None, count=40):
    """Random latents on the network's own scale, with labels 0 and 1."""
    noise = torch.randn(count, layout.channels, *grid, generator=torch.Generator().manual_seed(0))
    keys = {"texture": "latents", "semantic": "latents_sv"}
    parts = {keys[name]: part.contiguous() for name, part in layout.split(noise).items()}
    root.mkdir()
    line = write_shard(root / "shard-00000.safetensors", parts | {"labels": torch.arange(count) % 2})
    write_manifest(root, layout, 2, [line], unit_statistics(layout))
    if captions:
        from lwd.latents.formats import CaptionsFile

        CaptionsFile(captions=captions).write(root / "captions.json")
    return root


def test_the_command_on_a_text_model(tmp_path, monkeypatch, capsys):
    """Oracle: the table is that of the library with the captions' embeddings."""
    monkeypatch.setenv("LWD_CACHE", str(tmp_path / "cache"))
    model = write_text_encoder(write_autoencoder(write_model(tmp_path / "model")))
    layout = lwd.Layout.of(texture=8, semantic=4)
    latents = write_latents(tmp_path / "latents", layout, (1, 2), ["a red apple", "a blue mug"] * 20)
    command = ["surfaces", "measure", str(latents), "--model", str(model), "--band", "0:0.3", "--points", "7"]
    command += ["--samples", "32", "--batch", "32", "--calibration", "0", "--device", "cpu"]
    assert main([*command, "--out", str(tmp_path / "found")]) == 0
    assert says("band", "0:0.3", "offset").match(capsys.readouterr().out)
    table, about = load_surfaces(tmp_path / "found")
    assert table.layout.names == ("semantic", "texture")
    assert about["offset"] == 0.1
    assert table.band == Band(0.0, 0.3)
    assert exit_code([*command[:-1], "cpu", "--samples", "41", "--out", tmp_path / "x"]) == 2
    assert says(40, 41, "--samples").match(capsys.readouterr().err)
    assert not (tmp_path / "x").exists()


def test_class_conditional_models(tmp_path):
    """Oracle: labels are the conditions; a network of a learned curve needs a band."""
    from lwd.probing.measure import measure_surfaces
    from pipelines import three_classes

    pipe = three_classes()
    latents = write_latents(tmp_path / "latents", pipe.checkpoint.layout, (4, 4))
    small = MeasureSettings(points=7, samples=32, batch=32, calibration=0)
    found = measure_surfaces(pipe.checkpoint, latents, tmp_path / "out", small, "0.1:0.4")
    assert found.trained == 0.3
    assert found.table.layout.names == ("texture", "semantic")
    assert found.band.lead == 1
    assert found.steps_for(0.05, 50) >= 1
    curve = three_classes(schedule=lwd.Polynomial([[0.0, 1.0]]).freeze())
    with pytest.raises(lwd.InputError, match=says("band")):
        measure_surfaces(curve.checkpoint, latents, tmp_path / "out", small)
