"""Tensors on disk: our safetensors writer, and every wrapping of other people's files."""

import zipfile

import pytest
import torch

import lwd
from lwd.io.tensors import read_safetensors, read_state, write_safetensors
from messages import says
from reference import sfd


def test_compressed_archives_and_all_prefixes_are_read(tmp_path):
    """Oracle: the stored weights; a deflated archive cannot be memory-mapped, so it must not be."""
    torch.save({"ema": {f"_orig_mod.module.{name}": t for name, t in sfd()[1].items()}}, tmp_path / "plain.pt")
    with zipfile.ZipFile(tmp_path / "plain.pt") as old, zipfile.ZipFile(tmp_path / "small.pt", "w") as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry), compress_type=zipfile.ZIP_DEFLATED)
    for name in ("plain.pt", "small.pt"):
        state = read_state(tmp_path / name)
        assert all(torch.equal(state[key], tensor) for key, tensor in sfd()[1].items())
    torch.save({"ema": {"a": torch.zeros(1), "module.a": torch.zeros(1)}}, tmp_path / "twice.pt")
    with pytest.raises(lwd.InputError, match=says("twice.pt", "module.")):
        read_state(tmp_path / "twice.pt")


def test_our_safetensors_writer_is_the_formats(tmp_path):
    """Oracle: the safetensors library reads back every dtype, empty and scalar tensors, and views."""
    tensors = {
        "a": torch.randn(3, 4).T, "b": torch.tensor(2.5), "c": torch.zeros(0, 3), "d": torch.randn(5).bfloat16(),
        "é": torch.arange(3), "f": torch.tensor([True, False]), "g": torch.randn(2).half(),
    }  # fmt: skip
    write_safetensors(tmp_path / "t.safetensors", tensors)
    again = read_safetensors(tmp_path / "t.safetensors")
    assert again.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert again[name].dtype == tensor.dtype
        assert torch.equal(again[name], tensor)


def test_a_process_of_a_cpu_group_reads_too(tmp_path):
    """Oracle: accelerate names the device of a gloo process "cpu:0"; the tensors are the same."""
    write_safetensors(tmp_path / "a.safetensors", {"x": torch.arange(4.0)})
    assert torch.equal(read_safetensors(tmp_path / "a.safetensors", "cpu:0")["x"], torch.arange(4.0))
