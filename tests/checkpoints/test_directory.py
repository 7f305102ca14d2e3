"""Model directories: save and load are inverse, and what is broken is refused."""

import pytest
import torch
from torch.testing import assert_close

import lwd
from checkpoints.converted import converted
from lwd.checkpoints.convert import Options, convert
from lwd.io.tensors import write_safetensors
from messages import says
from reference import LAYOUT, busy_network, sfd, small_config


def test_save_and_load_are_inverse(tmp_path):
    statistics = lwd.Statistics(
        {"texture": torch.randn(8), "semantic": torch.randn(4)},
        {"texture": torch.rand(8) + 0.5, "semantic": torch.ones(4)},
    )
    point = lwd.Checkpoint(busy_network(small_config()), lwd.Polynomial([[0.1, 0.2, 0.3]]).freeze(), statistics)
    lwd.save(point, tmp_path / "p")
    again = lwd.load(tmp_path / "p")
    assert (again.schedule, again.statistics, again.config) == (point.schedule, statistics, point.config)
    for name, tensor in point.velocity.state_dict().items():
        assert torch.equal(again.velocity.state_dict()[name], tensor)
    z = torch.randn(2, 12, 4, 4)
    latents = again.latents(statistics.normalize(z, LAYOUT))
    assert_close(latents["semantic"], z[:, 8:])
    assert "2 blocks of 48, texture=8,semantic=4" in repr(again)


def test_provenance_travels(tmp_path):
    """Oracle: load, save, load; the schedule's own provenance and the file's name."""
    lwd.save_schedule(lwd.Polynomial([[0.0, 1.0]]), tmp_path / "learned.json", {"lambda": 0.04})
    torch.save({"ema": sfd()[1]}, tmp_path / "xl.pt")
    convert(tmp_path / "xl.pt", tmp_path / "out", Options(LAYOUT, str(tmp_path / "learned.json")))
    lwd.save(lwd.load(tmp_path / "out"), tmp_path / "again")
    for name in ("config.json", "schedule.json", "model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    assert lwd.load(tmp_path / "again").provenance == {"converted_from": "xl.pt", "schedule": {"lambda": 0.04}}


def test_dtypes_and_devices_of_loaded_models(tmp_path):
    """Oracle: a float32 load, to the precision of the dtype; mixed files get the widest."""
    halves = {name: t.half() if name.startswith("blocks.0") else t for name, t in sfd()[1].items()}
    point = converted(tmp_path, {"ema": halves})
    assert {p.dtype for p in point.velocity.parameters()} == {torch.float32}
    stored = sfd()[0]
    times = torch.stack([stored["t_tex"], stored["t_sem"]], 1)
    for dtype, tolerance in ((torch.bfloat16, 0.1), (torch.float64, 2e-2)):
        network = lwd.load(tmp_path / "out", dtype=dtype).velocity
        assert_close(network(stored["x1"], times, stored["y"]).float(), stored["out"], atol=tolerance, rtol=0)
    with pytest.raises(lwd.InputError, match=says("gpu")):
        lwd.load(tmp_path / "out", "gpu")


def test_broken_directories_are_refused(tmp_path):
    converted(tmp_path, {"ema": sfd()[1]})
    out = tmp_path / "out"
    weights = (out / "model.safetensors").read_bytes()
    for content in (weights[:100], weights[:-10], b""):
        (out / "model.safetensors").write_bytes(content)
        with pytest.raises(lwd.InputError, match=says("model.safetensors")):
            lwd.load(out)
    write_safetensors(out / "model.safetensors", {"x": torch.zeros(1)})
    with pytest.raises(lwd.InputError, match=says("model.safetensors", "x")):
        lwd.load(out)
    for text, facts in (
        ('{"format": "other"}', ("lwd.model", "other")), ('{"format": "lwd.model", "version": 9}', ("version", 9)),
        ('{"format": "lwd.model", "version": 1, "architecture": "lightningdit"}', ("config.json", "network")),
        ('{"format": "lwd.model", "version": 1, "network": 5}', ("config.json", "network", 5)),
        ("{", ("config.json", "JSON")),
    ):  # fmt: skip
        (out / "config.json").write_text(text)
        with pytest.raises(lwd.InputError, match=says(facts)):
            lwd.load(out)
    with pytest.raises(lwd.InputError, match=says("in.pt", "lwd convert")):
        lwd.load(tmp_path / "in.pt")
