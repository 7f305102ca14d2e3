"""Small worlds for the training tests: latents in memory, a network that can be exact on them, one-line runs."""

import torch
from torch import nn

from lwd.groups import Layout
from lwd.latents.memory import MemoryReader
from lwd.models.exact import Gaussian
from lwd.training.config import config_from_dict
from lwd.training.devices import Devices
from lwd.training.task import RunOptions
from lwd.training.trainer import Trainer

PAIR = Layout.of(texture=1, semantic=1)


class MatrixNet(nn.Module):
    """v = W(times) z with a small MLP for W: it can represent the exact velocity of Gaussian data."""

    def __init__(self, channels, width=64, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.channels = channels
        self.mlp = nn.Sequential(
            nn.Linear(channels, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, channels**2)
        )

    def forward(self, z, times, label):
        del label
        matrix = self.mlp(2 * times.float() - 1).reshape(-1, self.channels, self.channels)
        return (matrix @ z.flatten(1)[..., None]).reshape(z.shape)


class ScaledExact(nn.Module):
    """A number times the exact velocity of Gaussian data: its surfaces are known for every value of the number."""

    def __init__(self, exact, scale=1.0):
        super().__init__()
        self.exact, self.scale = exact, nn.Parameter(torch.tensor(scale, dtype=torch.float64))

    def forward(self, z, times, label):
        return self.scale * self.exact(z, times, label)

    def surfaces(self, times):
        """Errors and energies: |s v - u|^2 is (1 - s)^2 |v|^2 above its minimum at v = E[u | z]."""
        losses, energies = self.exact.surfaces(times)
        return losses + (1 - self.scale) ** 2 * energies, self.scale**2 * energies


def first_losses(config, exact, out, task):
    """The losses of a run's first batch, of a size that leaves little sampling error."""
    trainer = Trainer(config, memory(exact, 200_000), out, task, cpu())
    (batch,) = trainer._fetch()
    return trainer.losses(batch, trainer._draws(0, len(batch.labels)))


def gaussian(correlation=0.6, groups=2):
    """Unit variances, one correlation between all groups of one channel each."""
    names = ("texture", "depth", "semantic") if groups == 3 else ("texture", "semantic")
    layout = Layout.of(**dict.fromkeys(names, 1))
    covariance = torch.full((groups, groups), correlation) + (1 - correlation) * torch.eye(groups)
    return Gaussian(layout, covariance)


def memory(exact, count=200_000):
    """Draws of a Gaussian, whitened to have its covariance exactly: no sampling error in the second moments."""
    data, labels = exact.draw(count)
    flat = data.flatten(1)
    flat = flat - flat.mean(0)
    root = torch.linalg.cholesky(flat.T @ flat / count)
    wanted = torch.linalg.cholesky(exact.covariances[0])
    flat = flat @ torch.linalg.inv(root).T @ wanted.T
    return MemoryReader(flat.reshape(data.shape).float(), labels, exact.layout)


def images(count=96, channels=(4, 2), side=4, classes=3, seed=0):
    """Random latents for a LightningDiT."""
    generator = torch.Generator().manual_seed(seed)
    layout = Layout.of(texture=channels[0], semantic=channels[1])
    latents = torch.randn(count, layout.channels, side, side, generator=generator)
    labels = torch.arange(count) % classes
    return MemoryReader(latents, labels, layout)


def settings(**sections):
    """A configuration for tests: small network, everything logged."""
    base = {
        "network": {"depth": 2, "width": 32, "heads": 2},
        "optimizer": {"lr": 1e-3},
        "run": {"steps": 8, "batch": 16, "log_every": 1, "save_every": 4},
        "objective": {},
        "probe": {"burn_in": 2},
        "schedule": "offset:0.3",
    }
    for name, changes in sections.items():
        base[name] = {**base[name], **changes} if isinstance(changes, dict) else changes
    base["probe"].setdefault("steps", base["run"]["steps"])
    return config_from_dict(base)


def cpu(**options):
    """Options of a run on the CPU."""
    return RunOptions(Devices(cpu=True), **options)
