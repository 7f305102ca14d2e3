"""Exact velocities and loss surfaces of Gaussian data and mixtures: the output of a perfect network.

Data N(m, S), noise N(0, I), A = diag(t_g), B = diag(1 - t_g): z has mean A m and covariance A S A + B^2, the target
u = data - noise has covariance S A - B with z, so E[u | z] = m + (S A - B)(A S A + B^2)^-1 (z - A m).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.groups import Layout


class GaussianMixture:
    """A mixture of Gaussians over the composite state, with class labels; implements `Velocity`.

    means: (k, d), covariances: (k, d, d) with d = channels x positions, channels first; weights: (k,), uniform by
    default; labels: (k,), the class of each component (default: all of class 0). A label selects the velocity of its
    class; `null_label` selects the full mixture. All arithmetic is float64.
    """

    def __init__(
        self,
        layout: Layout,
        means: Tensor,
        covariances: Tensor,
        weights: Tensor | None = None,
        labels: Sequence[int] | None = None,
        size: Sequence[int] | None = None,
    ) -> None:
        self.layout = layout
        self.means = torch.as_tensor(means, dtype=torch.float64)
        self.covariances = torch.as_tensor(covariances, dtype=torch.float64)
        k = len(self.means)
        weights = torch.ones(k) if weights is None else torch.as_tensor(weights)
        self.weights = weights.to(torch.float64) / weights.to(torch.float64).sum()
        self.labels = torch.zeros(k, dtype=torch.int64) if labels is None else torch.as_tensor(labels)
        positions = self.means.shape[-1] // layout.channels
        self.size = ((1, 1) if positions == 1 else (positions, 1)) if size is None else tuple(size)
        self._check(k)

    def _check(self, k: int) -> None:
        d = self.layout.channels * math.prod(self.size)
        if k < 1 or self.means.shape != (k, d) or self.covariances.shape != (k, d, d):
            raise InputError(
                f"layout {self.layout} on {'x'.join(map(str, self.size))} positions needs means (k, {d}) and "
                f"covariances (k, {d}, {d}), got {tuple(self.means.shape)} and {tuple(self.covariances.shape)}"
            )
        if self.weights.shape != (k,) or self.labels.shape != (k,) or not (self.weights > 0).all():
            raise InputError(f"{k} components need {k} positive weights and {k} labels")
        if set(self.labels.tolist()) != set(range(self.classes)):
            raise InputError(f"labels must use every class from 0 up, got {sorted(set(self.labels.tolist()))}")
        if not (torch.isfinite(self.means).all() and torch.isfinite(self.covariances).all()):
            raise InputError("means and covariances must be finite")
        asymmetry = (self.covariances - self.covariances.mT).abs().max()
        if asymmetry > 1e-10 or torch.linalg.eigvalsh(self.covariances).min() <= 0:
            raise InputError("covariances must be symmetric and positive definite, or there is no velocity at t = 1")

    @property
    def classes(self) -> int:
        return int(self.labels.max()) + 1

    @property
    def null_label(self) -> int:
        """The label that means "any class"."""
        return self.classes

    def draw(self, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Draw `count` data points (count, c, *size) float64 and their labels (count,)."""
        generator = torch.Generator().manual_seed(seed)
        component = torch.multinomial(self.weights, count, replacement=True, generator=generator)
        white = torch.randn(count, self.means.shape[1], dtype=torch.float64, generator=generator)
        factor = torch.linalg.cholesky(self.covariances)[component]
        data = self.means[component] + torch.einsum("bij,bj->bi", factor, white)
        return data.reshape(count, self.layout.channels, *self.size), self.labels[component]

    def __call__(self, z: Tensor, times: Tensor, label: Tensor) -> Tensor:
        """E[u | z, label] at local times (b, n) (Eq. ideal-local-flow)."""
        velocity, _ = self._posterior(self._flat(z), times, label)
        return velocity.reshape(z.shape).to(z.dtype)

    def log_density(self, z: Tensor, times: Tensor, label: Tensor) -> Tensor:
        """log p_t(z | label) of the noised distribution (Eq. async-density-convolution): (b,)."""
        return self._posterior(self._flat(z), times, label)[1][:, 0]

    def surfaces(self, times: Tensor, samples: int = 512) -> tuple[Tensor, Tensor]:
        """Component losses l_g(t) and energies n_g(t) = mean |v_g|^2 of the perfect network: (*b, n) -> two (*b, n).

        Their sum is mean |u_g|^2 at all times. In closed form if each class is one Gaussian; otherwise the energies are
        averages over `samples` quasi-random points per component, the same at all times.
        """
        flat = times.reshape(-1, len(self.layout)).to(torch.float64)
        if len(set(self.labels.tolist())) == len(self.labels):
            energies = self._exact_energies(flat)
        else:
            energies = self._averaged_energies(flat, samples)
        second = self.means.square() + self.covariances.diagonal(dim1=1, dim2=2) + 1
        powers = self._group_means((self.weights[:, None] * second).sum(0, keepdim=True))
        energies = energies.reshape(times.shape)
        return powers.reshape(-1) - energies, energies

    def _exact_energies(self, times: Tensor) -> Tensor:
        cross, covariance, _ = self._moments(times)
        explained = (cross * torch.linalg.solve(covariance, cross.mT).mT).sum(-1)  # diag(C V^-1 C^T)
        return self._group_means((self.weights[:, None] * (explained + self.means.square())).sum(1))

    def _averaged_energies(self, times: Tensor, samples: int) -> Tensor:
        sobol = torch.quasirandom.SobolEngine(self.means.shape[1], scramble=True, seed=0)  # type: ignore[no-untyped-call]
        uniform = sobol.draw(samples, dtype=torch.float64)
        white = math.sqrt(2) * torch.erfinv(2 * uniform.clamp(1e-12, 1 - 1e-12) - 1)
        _, covariance, t = self._moments(times)
        factor = torch.linalg.cholesky(covariance)
        energy = torch.zeros_like(times)
        for k, weight in enumerate(self.weights):
            z = (t * self.means[k])[:, None] + white @ factor[:, k].mT
            velocity, _ = self._posterior(z, times, self.labels[k].expand(len(times)))
            energy = energy + weight * self._group_means(velocity.square().mean(1))
        return energy

    def _moments(self, times: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """cov(u, z) and cov(z) of each component (b, k, d, d), and the local time of each coordinate (b, d)."""
        t = self.layout.expand(times, 2).repeat_interleave(math.prod(self.size), 1)
        a, b = t[:, None, None, :], (1 - t)[:, None, :]
        scaled = self.covariances * a
        return scaled - torch.diag_embed(b), a.mT * scaled + torch.diag_embed(b.square()), t

    def _posterior(self, z: Tensor, times: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """E[u | z, label] and log p(z | label) for s states at each of b times: (b, s, d) -> (b, s, d), (b, s)."""
        label = self._checked(label)
        cross, covariance, t = self._moments(times.to(torch.float64))
        factor = torch.linalg.cholesky(covariance)
        centred = (z[:, None] - (t[:, None] * self.means)[:, :, None]).mT  # (b, k, d, s)
        solved = torch.cholesky_solve(centred, factor)
        velocity = self.means[:, :, None] + cross @ solved
        log_determinant = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)[..., None]
        log_normal = -0.5 * ((centred * solved).sum(2) + log_determinant + z.shape[-1] * math.log(2 * math.pi))
        member = (self.labels == label[:, None]) | (label[:, None] == self.null_label)
        prior = torch.where(member, self.weights, 0.0)
        log_joint = (prior / prior.sum(1, keepdim=True)).log()[..., None] + log_normal  # (b, k, s)
        return (log_joint.softmax(1)[:, :, None] * velocity).sum(1).mT, log_joint.logsumexp(1)

    def _flat(self, z: Tensor) -> Tensor:
        if z.numel() != len(z) * self.means.shape[1]:
            expected = (self.layout.channels, *self.size)
            raise InputError(f"these data have shape {expected}, got a state {tuple(z.shape)}; pass size={self.size}")
        return z.reshape(len(z), 1, -1).to(torch.float64)

    def _checked(self, label: Tensor) -> Tensor:
        if ((label < 0) | (label > self.null_label)).any():
            raise InputError(f"labels must be in 0..{self.classes - 1}, or {self.null_label} for any class")
        return label

    def _group_means(self, x: Tensor) -> Tensor:
        return self.layout.means(x.reshape(len(x), self.layout.channels, -1))


class Gaussian(GaussianMixture):
    """One Gaussian N(mean, covariance); everything is in closed form, including the loss surfaces."""

    def __init__(
        self, layout: Layout, covariance: Tensor, mean: Tensor | None = None, size: Sequence[int] | None = None
    ) -> None:
        covariance = torch.as_tensor(covariance, dtype=torch.float64)
        mean = torch.zeros(covariance.shape[-1]) if mean is None else torch.as_tensor(mean)
        super().__init__(layout, mean.reshape(1, -1), covariance[None], size=size)
