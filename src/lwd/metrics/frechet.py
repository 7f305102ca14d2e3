"""Fréchet distance between Gaussians: |m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2))."""

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.metrics.moments import Moments


def frechet_distance(ref: Tensor, sample: Tensor) -> float:
    """Between the Gaussians fitted to two feature matrices (n, d) and (m, d): FID when they are Inception's."""
    a, b = Moments().update(ref), Moments().update(sample)
    return frechet_from_moments(a.mean, a.covariance, b.mean, b.covariance)


def frechet_from_moments(mean: Tensor, covariance: Tensor, other_mean: Tensor, other_covariance: Tensor) -> float:
    """The same from means (d,) and covariances (d, d); never negative, never complex, also where they are singular."""
    m1, s1, m2, s2 = (
        torch.as_tensor(x).to("cpu", torch.float64) for x in (mean, covariance, other_mean, other_covariance)
    )
    d = len(m1)
    if m1.shape != (d,) or m2.shape != (d,) or s1.shape != (d, d) or s2.shape != (d, d):
        shapes = ", ".join(str(tuple(x.shape)) for x in (m1, s1, m2, s2))
        raise InputError(f"two means (d,) and covariances (d, d) of one d are needed, got {shapes}")
    if not all(torch.isfinite(x).all() for x in (m1, s1, m2, s2)):
        raise InputError("means or covariances hold NaN or infinity")
    distance = (m1 - m2).square().sum() + s1.trace() + s2.trace() - 2 * root_trace(s1, s2)
    return max(float(distance), 0.0)


def root_trace(a: Tensor, b: Tensor) -> Tensor:
    """tr (a b)^(1/2) for symmetric positive semidefinite matrices.

    With a = F F^T and b = G G^T it is the sum of the singular values of F^T G: no general matrix root (scipy's is far
    slower) and no imaginary parts to throw away. Eigenvalues of a b would be exact only to the root of the precision.
    """
    return torch.linalg.svdvals(factor(a).T @ factor(b)).sum()


def factor(matrix: Tensor) -> Tensor:
    """F (d, r) with F F^T = matrix: Cholesky's, or the eigenvectors of its r eigenvalues above rounding."""
    lower, problem = torch.linalg.cholesky_ex(matrix)
    if not problem:
        return lower
    values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
    kept = values > len(values) * torch.finfo(values.dtype).eps * values.max().clamp(min=0)
    return vectors[:, kept] * values[kept].sqrt()
