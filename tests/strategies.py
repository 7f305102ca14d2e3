"""Random schedules and data for property tests."""

import torch
from hypothesis import strategies as st
from torch import Tensor

import lwd

NAMES = ("texture", "semantic", "depth", "edges")
unit = st.floats(0, 1, allow_nan=False)


@st.composite
def rhos(draw: st.DrawFn, rows: int, limit: float = 30.0) -> Tensor:
    degree = draw(st.integers(0, 6))
    value = st.floats(-limit, limit, allow_nan=False)
    return torch.tensor([[draw(value) for _ in range(degree + 1)] for _ in range(rows)], dtype=torch.float64)


@st.composite
def polynomials(draw: st.DrawFn, groups: int | None = None, limit: float = 30.0) -> lwd.Polynomial:
    names = NAMES[: draw(st.integers(1, 4)) if groups is None else groups]
    lead = draw(st.sampled_from(names))
    rho = draw(rhos(len(names) - 1, limit)) if len(names) > 1 else None
    return lwd.Polynomial(rho, groups=names, lead=lead)


@st.composite
def knots(draw: st.DrawFn, groups: int | None = None) -> lwd.PiecewiseLinear:
    names = NAMES[: draw(st.integers(1, 4)) if groups is None else groups]
    inner = sorted(draw(st.sets(st.integers(1, 19), max_size=3)))
    row = st.lists(st.integers(0, 20), min_size=len(inner), max_size=len(inner)).map(sorted)
    times = {name: (0.0, *(k / 20 for k in draw(row)), 1.0) for name in names}
    return lwd.PiecewiseLinear((0.0, *(k / 20 for k in inner), 1.0), times)


@st.composite
def bernsteins(draw: st.DrawFn, groups: int | None = None, limit: float = 30.0) -> lwd.Bernstein:
    names = NAMES[: draw(st.integers(1, 4)) if groups is None else groups]
    rho = draw(rhos(len(names) - 1, limit)) if len(names) > 1 else None
    return lwd.Bernstein(rho, groups=names, lead=draw(st.sampled_from(names)), convex=draw(st.booleans()))


@st.composite
def schedules(draw: st.DrawFn, groups: int | None = None, limit: float = 30.0) -> lwd.Schedule:
    """Any family, one to four groups."""
    count = draw(st.integers(1, 4)) if groups is None else groups
    names = NAMES[:count]
    return draw(
        st.one_of(
            st.just(lwd.Synchronous(names)),
            st.builds(lambda d, lead: lwd.Offset(d, names, lead), st.floats(0.01, 0.99), st.sampled_from(names)),
            st.builds(
                lambda order, handover: lwd.Cascade(names, tuple(order), handover),
                st.permutations(names),
                st.one_of(st.just(1.0), st.floats(0.01, 0.99)),
            ),
            knots(count),
            polynomials(count, limit),
            bernsteins(count, limit),
        )
    )


def random_gaussian(names: tuple[str, ...], seed: int = 0, channels: int = 2, floor: float = 0.1) -> lwd.Gaussian:
    """A Gaussian with correlations between all channels of all groups."""
    layout = lwd.Layout.of(**dict.fromkeys(names, channels))
    d = layout.channels
    factor = torch.randn(d, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return lwd.Gaussian(layout, factor @ factor.T / d + floor * torch.eye(d, dtype=torch.float64))


def small_mixture(labels: list[int] | None = None) -> lwd.GaussianMixture:
    """Three correlated components over texture=2, semantic=1."""
    generator = torch.Generator().manual_seed(3)
    factor = torch.randn(3, 3, 3, generator=generator, dtype=torch.float64)
    covariances = 0.2 * factor @ factor.mT + 0.1 * torch.eye(3, dtype=torch.float64)
    means = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    weights = torch.tensor([0.5, 0.2, 0.3])
    return lwd.GaussianMixture(lwd.Layout.of(texture=2, semantic=1), means, covariances, weights, labels)


def scalar_pair(correlation: float = 0.6) -> lwd.Gaussian:
    """METHOD 3.2's toy: one texture and one semantic scalar of unit variance."""
    return lwd.Gaussian(lwd.Layout.of(texture=1, semantic=1), torch.tensor([[1.0, correlation], [correlation, 1.0]]))
