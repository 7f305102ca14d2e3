"""Violations that fuzzing found in weights of others."""

import pytest
import torch

import lwd
from lwd.io.tensors import read_state
from lwd.representations.ldm import autoencoder_from_ldm
from messages import says
from reference import ldm


def test_weights_that_the_disk_does_not_give(tmp_path):
    """OSError (EIO): /proc/self/mem is a regular file whose first byte cannot be read."""
    (tmp_path / "weights.pt").symlink_to("/proc/self/mem")
    with pytest.raises(lwd.InputError, match=says("weights.pt")):
        read_state(tmp_path / "weights.pt")


def test_a_run_whose_latest_checkpoint_cannot_be_read(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "latest").symlink_to("/proc/self/mem")
    with pytest.raises(lwd.InputError, match=says("latest")):
        lwd.load(tmp_path)


def test_an_autoencoder_of_impossible_widths():
    """ValueError of GroupNorm: 3 channels in 32 groups."""
    with pytest.raises(lwd.InputError, match=says(3, 32)):
        autoencoder_from_ldm(ldm()[1] | {"encoder.down.0.block.0.conv1.weight": torch.zeros(3, 3, 3, 3)})
