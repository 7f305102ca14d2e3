"""Fréchet distance between Gaussians: |m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2))."""

from collections.abc import Callable

import torch
from torch import Tensor

from lwd.compute.moments import Moments
from lwd.errors import InputError


def frechet_distance(ref: Tensor, sample: Tensor) -> float:
    """Distance between Gaussians fitted to two feature matrices (n, d) and (m, d); with Inception features, FID."""
    a, b = Moments().update(ref), Moments().update(sample)
    return frechet_from_moments(a.mean, a.covariance, b.mean, b.covariance)


def frechet_from_moments(mean: Tensor, covariance: Tensor, other_mean: Tensor, other_covariance: Tensor) -> float:
    """The same from means (d,) and covariances (d, d), which may be singular; never negative or complex."""
    m1, s1, m2, s2 = (
        torch.as_tensor(x).to("cpu", torch.float64) for x in (mean, covariance, other_mean, other_covariance)
    )
    d = len(m1)
    if m1.shape != (d,) or m2.shape != (d,) or s1.shape != (d, d) or s2.shape != (d, d):
        shapes = ", ".join(str(tuple(x.shape)) for x in (m1, s1, m2, s2))
        raise InputError(f"two means (d,) and two covariances (d, d) with equal d are needed, got {shapes}")
    if not all(torch.isfinite(x).all() for x in (m1, s1, m2, s2)):
        raise InputError("means or covariances contain NaN or infinity")
    return frechet_to(m1, s1)(m2, s2)


def frechet_to(mean: Tensor, covariance: Tensor, rough: bool = False) -> Callable[[Tensor, Tensor], float]:
    """Return the distance to one reference, whose factor is computed once, as a function of mean and covariance.

    With S1 = F F^T and S2 = G G^T, tr (S1 S2)^(1/2) is the sum of the singular values of F^T G: no general matrix root
    (scipy's is much slower) and no imaginary parts. rough: use eigenvalues of S1 S2, which have only half the digits
    but are three times as fast and good enough for a standard error.
    """
    root, trace = factor(covariance), covariance.trace()

    def distance(other_mean: Tensor, other_covariance: Tensor) -> float:
        if rough:
            cross = torch.linalg.eigvalsh(root.T @ other_covariance @ root).clamp(min=0).sqrt().sum()
        else:
            cross = torch.linalg.svdvals(root.T @ factor(other_covariance)).sum()
        return max(float((mean - other_mean).square().sum() + trace + other_covariance.trace() - 2 * cross), 0.0)

    return distance


def factor(matrix: Tensor) -> Tensor:
    """F (d, r) with F F^T = matrix: the Cholesky factor, or scaled eigenvectors of the r eigenvalues above rounding."""
    lower, problem = torch.linalg.cholesky_ex(matrix)
    if not problem:
        return lower
    values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
    kept = values > len(values) * torch.finfo(values.dtype).eps * values.max().clamp(min=0)
    return vectors[:, kept] * values[kept].sqrt()
