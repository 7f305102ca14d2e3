import numpy as np
import torch
from PIL import Image

import lwd
from lwd import demo
from lwd.cli import main


def test_the_demo_learns_a_lead_and_draws_it(tmp_path, monkeypatch, capsys):
    """Oracle: the learned curve lowers the objective against both baselines' flow loss, and lags semantic."""
    monkeypatch.setattr(demo, "SAMPLES", 64)
    assert main(["demo", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    flow = {line[:11].strip(): float(line[11:].split()[0]) for line in out.splitlines() if line[:4] in ("sync", "lear")}
    assert flow["learned"] < flow["synchronous"] - 0.1
    schedule = lwd.load_schedule(tmp_path / "schedule.json")
    assert 0.05 < float(schedule.times(0.5)[0]) < 0.3
    image = np.asarray(Image.open(tmp_path / "demo.png"))
    assert image.shape[0] > 300
    assert image.std() > 10


def test_the_demo_mixture_has_the_surfaces_of_its_samples():
    """Oracle: quasi-random averages of 128 points against 8192."""
    data, times = demo.mixture(), torch.tensor([[0.3, 0.6], [0.8, 0.9]])
    coarse, fine = data.surfaces(times, 128)[0], data.surfaces(times, 8192)[0]
    assert (coarse - fine).abs().max() < 0.05
