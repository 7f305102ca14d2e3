"""Arithmetic of samples: fp32 to the bit, bf16 by autocast, recorded in the manifest."""

import json

import numpy as np
import pytest
import torch

import lwd
from lwd.compute.devices import Autocast, choose_precision, float32_to_the_bit
from lwd.sampling.generator import Generator
from lwd.sampling.samples import generate
from lwd.sampling.settings import SampleSettings
from pipelines import three_classes

STEPS = {"solver": "heun", "steps": 4, "count": 12, "batch": 8, "threads": 1}


def drawn(out, world=1, **settings):
    generator = Generator(three_classes(), SampleSettings(**STEPS | settings))
    for rank in range(world):
        generate(generator, out, rank, world)
    return np.load(out / "samples.npz")["arr_0"], json.loads((out / "manifest.json").read_text())


def test_bf16_is_near_and_recorded_and_does_not_depend_on_processes(tmp_path):
    """Oracle: float32; and the same set by two processes, byte for byte."""
    exact, about = drawn(tmp_path / "exact")
    low, lower = drawn(tmp_path / "low", precision="bf16")
    again, _ = drawn(tmp_path / "again", world=2, precision="bf16")
    asked, _ = drawn(tmp_path / "asked", precision="fp32")
    assert about["settings"]["precision"] == "fp32"  # what auto means on a CPU
    assert lower["settings"]["precision"] == "bf16"
    assert np.array_equal(low, again)
    assert np.array_equal(exact, asked)
    assert not np.array_equal(exact, low)
    assert np.abs(exact.astype(int) - low.astype(int)).mean() < 8


def test_guided_networks_are_combined_in_float32():
    """Oracle: the same combination of the two networks' own values, to float32's rounding; bf16 would lose 1e-2."""
    pipe, weak = three_classes(), three_classes(seed=1)
    z, times, label = torch.randn(8, 6, 4, 4), torch.full((8, 2), 0.4).double(), torch.zeros(8, dtype=torch.int64)
    with torch.no_grad():
        guided = pipe.guided(weak, 3.0, None, "bf16")(z, times, label)
        main, guide = (Autocast(one.checkpoint.velocity)(z, times, label) for one in (pipe, weak))
    assert guided.dtype == torch.float32
    torch.testing.assert_close(guided, guide + 3 * (main - guide), atol=1e-5, rtol=1e-5)


def test_what_auto_means(monkeypatch):
    """Oracle: the table of devices; a GPU is only asked whether it has bfloat16."""
    assert choose_precision("auto", torch.device("cpu")) == "fp32"
    for has, word in ((True, "bf16"), (False, "fp32")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda has=has: has)
        assert choose_precision("auto", torch.device("cuda")) == word
    assert choose_precision("fp32", torch.device("cuda")) == "fp32"
    before = torch.backends.cudnn.allow_tf32
    with float32_to_the_bit():
        assert not torch.backends.cudnn.allow_tf32
        assert not torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cudnn.allow_tf32 == before
    with pytest.raises(lwd.InputError, match="precision"):
        SampleSettings(precision="fp8")


def test_a_set_of_an_earlier_version_is_complete(tmp_path):
    """Oracle: its manifest without the setting, as earlier versions wrote it."""
    drawn(tmp_path)
    path = tmp_path / "manifest.json"
    about = json.loads(path.read_text())
    del about["settings"]["precision"]
    path.write_text(json.dumps(about))
    time = (tmp_path / "samples.npz").stat().st_mtime_ns
    drawn(tmp_path)
    assert (tmp_path / "samples.npz").stat().st_mtime_ns == time
    with pytest.raises(lwd.InputError, match="precision"):
        drawn(tmp_path, precision="bf16")
