"""Converting weights that a test holds in memory."""

import torch

import lwd
from lwd.checkpoints.convert import Options, convert
from reference import LAYOUT

SFD = Options(layout=LAYOUT, schedule="offset:0.3")


def converted(tmp_path, content, options=SFD, name="in.pt"):
    torch.save(content, tmp_path / name)
    convert(tmp_path / name, tmp_path / "out", options)
    return lwd.load(tmp_path / "out")
