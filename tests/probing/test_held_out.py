"""Surfaces on held-out images: other images, on the scale of the training latents."""

import pytest
import torch

import lwd
from lwd.checkpoints.directory import load, locate
from lwd.compute.order import mix
from lwd.latents.reader import LatentReader
from lwd.latents.shards import write_manifest, write_shard
from lwd.latents.statistics import Statistics
from lwd.probing.surface import surface_probe
from lwd.surfaces.files import load_surfaces
from lwd.surfaces.table import tabulate
from messages import says
from train_data import cpu, settings

LAYOUT = lwd.Layout.of(texture=2, semantic=1)
PROBE = {"steps": 3, "burn_in": 1, "points": 5, "samples": 32}


def write(folder, seed, scale=1.0, classes=2, grid=4):
    """Random latents with their own statistics."""
    z = scale * torch.randn(40, 3, grid, grid, generator=torch.Generator().manual_seed(seed))
    parts = {"latents": z[:, :2].contiguous(), "latents_sv": z[:, 2:].contiguous()}
    folder.mkdir()
    line = write_shard(folder / "shard-00000.safetensors", parts | {"labels": torch.arange(40) % classes})
    own = (LAYOUT.split(part[None]) for part in (z.mean((0, 2, 3)), z.std((0, 2, 3))))
    write_manifest(folder, LAYOUT, classes, [line], Statistics(*({n: v[0] for n, v in part.items()} for part in own)))
    return folder


def config(held_out):
    small = {"depth": 1, "width": 16, "heads": 2, "patch": 1}
    return settings(network=small, run={"batch": 8}, probe=PROBE | {"held_out": str(held_out)})


def test_the_table_is_that_of_the_held_out_images(tmp_path, monkeypatch):
    """Oracle: tabulate() on these images, divided by the training latents' standard deviation, not by their own."""
    monkeypatch.setattr("lwd.probing.surface.calibrate", lambda *_, **__: {})  # test_surface.py measures it
    train, held = write(tmp_path / "train", 0), write(tmp_path / "held", 1, scale=3.0)
    _, table = surface_probe(config(held), train, tmp_path / "run", cpu())
    network = load(locate(tmp_path / "run")).velocity
    reader = LatentReader(held, LAYOUT.names, LatentReader(train).statistics)
    batch = reader.batch(0, 32, mix(0, 1) % 2**32, 0, 1, False)
    assert batch.latents.std() == pytest.approx(3, rel=0.1)
    expected = tabulate(network, batch.latents, batch.labels, LAYOUT, 5)
    torch.testing.assert_close(table.losses, expected.losses)
    about = load_surfaces(tmp_path / "run")[1]
    assert about["held_out"] == reader.fingerprint
    _, other = surface_probe(config(""), train, tmp_path / "run", cpu())
    assert not torch.allclose(other.losses, table.losses)
    assert "held_out" not in load_surfaces(tmp_path / "run")[1]


@pytest.mark.parametrize(
    ("made", "facts"),
    [
        ({"seed": 0}, ("held", "training")),
        ({"seed": 1, "grid": 2}, ("held", "2", "4")),
        ({"seed": 1, "classes": 5}, ("0..1", "4")),
    ],
)
def test_images_that_do_not_fit(tmp_path, made, facts):
    """Oracle: an error before training, with the numbers that differ."""
    train, held = write(tmp_path / "train", 0), write(tmp_path / "held", **made)
    with pytest.raises(lwd.InputError, match=says(*facts)):
        surface_probe(config(held), train, tmp_path / "run", cpu())
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
