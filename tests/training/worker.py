"""One process of a distributed or killed run: `python worker.py OUT '{"run": {...}}' [kind]`."""

import json
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from lwd.probing.joint import probe
from lwd.training.devices import Devices
from lwd.training.task import RunOptions
from lwd.training.train import train
from train_data import images, settings

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    out, changes = sys.argv[1], json.loads(sys.argv[2])
    config = settings(**changes)
    stage = probe if len(sys.argv) > 3 and sys.argv[3] == "probe" else train
    stage(config, images(), out, RunOptions(Devices(parallel=config.run.parallel, cpu=True)))
