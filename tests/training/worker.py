"""One process of a distributed or killed run: `python worker.py OUT '{"run": {...}}' [kind]`."""

import json
import os
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from lwd.probing.joint import probe
from lwd.training import shards
from lwd.training.devices import Devices
from lwd.training.task import RunOptions
from lwd.training.train import train
from train_data import images, settings

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    out, changes = sys.argv[1], json.loads(sys.argv[2])
    config = settings(**changes)
    if config.run.parallel == "hsdp":  # as if there were nodes of two processes
        os.environ["LOCAL_WORLD_SIZE"] = "2"
    if sys.argv[3:] == ["slow"]:
        write = shards.write_safetensors
        shards.write_safetensors = lambda *given: (time.sleep(3), write(*given))
    stage = probe if len(sys.argv) > 3 and sys.argv[3] == "probe" else train
    stage(config, images(), out, RunOptions(Devices(parallel=config.run.parallel, cpu=True)))
