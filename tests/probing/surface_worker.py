"""One process of a surface probe: `python surface_worker.py OUT`."""

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from lwd.probing.surface import surface_probe
from lwd.training.devices import Devices
from lwd.training.task import RunOptions
from train_data import images, settings

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    changes = {"probe": {"steps": 4, "burn_in": 1, "points": 5, "samples": 64}}
    surface_probe(settings(**changes), images(), sys.argv[1], RunOptions(Devices(cpu=True)))
