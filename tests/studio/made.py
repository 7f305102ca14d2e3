"""Models for the studio's tests: three groups with exact surfaces, a surface probe, a broken directory."""

import torch

import lwd
from lwd.checkpoints.directory import Checkpoint, save
from lwd.io.files import write_json
from lwd.representations.texture import PatchAutoencoder
from lwd.sampling.pipeline import LWDPipeline
from lwd.studio.settings import StudioSettings
from lwd.surfaces.files import NAME, save_surfaces
from lwd.surfaces.table import SurfaceTable, grid_points, scattered_points
from reference import busy_network, small_config

THREE = ("texture", "depth", "semantic")
LAMBDAS = (0.02, 0.1)


def covariance(n):
    """Unit variances, correlation 0.6 with the last group."""
    matrix = torch.eye(n, dtype=torch.float64)
    matrix[-1, :-1] = matrix[:-1, -1] = 0.5
    return matrix


def exact_table(names, points):
    """Surfaces in closed form, with no bends."""
    layout = lwd.Layout.of(**dict.fromkeys(names, 1))
    axis = torch.linspace(0, 1, points, dtype=torch.float64) if len(names) == 2 else None
    places = grid_points(axis, 2) if axis is not None else scattered_points(32 * points, len(names))
    losses, energies = lwd.Gaussian(layout, covariance(len(names))).surfaces(places)
    none = torch.zeros_like(losses)
    wide = lwd.Layout.of(**dict.fromkeys(names, 2))
    return SurfaceTable(wide, places, losses.double(), energies.double(), none, none, 64, axis)


def probe(folder, names, any_schedule=True, decoder=False):
    """The directory of a surface probe: a random network of five classes, and exact surfaces of its groups."""
    layout = lwd.Layout.of(**dict.fromkeys(names, 2))
    network = busy_network(small_config(layout))
    about = {"any_schedule": True} if any_schedule else {}
    checkpoint = Checkpoint(network, lwd.Synchronous(tuple(names)), None, about)
    autoencoder = PatchAutoencoder.small(channels=2, patch=2, width=16, depth=1).eval() if decoder else None
    if decoder:
        LWDPipeline(checkpoint, autoencoder).save_pretrained(folder)
    else:
        save(checkpoint, folder)
    save_surfaces(exact_table(names, 7), folder / NAME, {"weights": {}, "reduction": "channels"})
    return folder


def broken(folder):
    """A model directory whose weights are cut off."""
    folder.mkdir()
    write_json(folder / "config.json", {"format": "lwd.model", "version": 1, "network": {"layout": {"texture": 2}}})
    return folder


def settings(*models, **changes):
    return StudioSettings(models=tuple(map(str, models)), threads=1, **changes)


def state(model="fashion", a=None, b=None, **changes):
    """A state as a page sends it."""
    one = {"schedule": lwd.Synchronous().to_dict(), "solver": "euler", "steps": 3}
    sides = {"a": one | (a or {}), "b": one | (b or {})}
    return {"format": "lwd.studio", "version": 1, "model": str(model), "count": 2} | sides | changes
