"""Loss surfaces as tables: losses and energies of a network as functions of the local times."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.groups import Layout
from lwd.path import Velocity, interpolate
from lwd.surfaces.band import Band, extended

BATCH = 256
"""Samples evaluated at once."""
LEAST = 32
"""Smallest number of samples for estimating a mean square."""
WALL = 100.0
"""Loss per squared distance from a band, in units of the largest loss inside."""
SHIFT = 0.01
"""Time step of the finite differences of the velocity."""


@dataclass(frozen=True)
class SurfaceTable:
    """l_g, n_g = mean |v_g|^2 and their standard errors at points of the time box.

    points: (m, n) local times; losses, energies and their errors: (m, n); bends: (m, n, 1 + n, 1 + n), Gram matrices of
    v_g and of its derivatives along the flow of each group, or None. axis: the values of a full grid whose points are
    in C order, or None if the points are scattered.
    """

    layout: Layout
    points: Tensor
    losses: Tensor
    energies: Tensor
    loss_errors: Tensor
    energy_errors: Tensor
    count: int
    axis: Tensor | None = None
    bends: Tensor | None = None
    band: Band | None = None
    """Where the network can be trusted (two groups); other points were not measured, and their values are 0."""

    def __post_init__(self) -> None:
        m, n = len(self.points), len(self.layout)
        names = ("points", "losses", "energies", "loss_errors", "energy_errors")
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(names, (m, n))
        if self.bends is not None:
            shapes["bends"] = (m, n, 1 + n, 1 + n)
        for name, shape in shapes.items():
            value = getattr(self, name)
            if tuple(value.shape) != shape:
                raise InputError(f"{name} of the surfaces must have shape {shape}, got {tuple(value.shape)}")
            if not torch.isfinite(value).all():
                bad = int((~torch.isfinite(value.reshape(m, -1))).any(1).sum())
                raise InputError(f"{name} of the surfaces has NaN or infinity at {bad} of {m} points; tabulate again")
        if ((self.points < 0) | (self.points > 1)).any():
            raise InputError("points of the surfaces must be in [0, 1]; 0 is noise, 1 is data")
        if (self.losses < 0).any() or (self.energies < 0).any():
            raise InputError("losses and energies of the surfaces are mean squares and cannot be negative")
        if self.count < LEAST:
            raise InputError(f"the surfaces were tabulated from {self.count} samples; at least {LEAST} are needed")
        if self.band is not None and (n != 2 or self.axis is None):
            raise InputError("a band needs surfaces of two groups on a grid")
        if self.axis is not None:
            a = self.axis
            if a.ndim != 1 or len(a) < 2 or a[0] != 0 or a[-1] != 1 or not (a.diff() > 0).all():
                raise InputError("the axis of the surfaces must increase from 0 to 1; tabulate again")
            if not torch.equal(self.points, grid_points(a, n)):
                raise InputError("the points of the surfaces are not the grid of their axis; tabulate again")

    @property
    def mask(self) -> Tensor:
        """Which points were measured: (m,)."""
        everywhere = torch.ones(len(self.points), dtype=torch.bool)
        return everywhere if self.band is None else self.band.contains(self.points)


def grid_points(axis: Tensor, groups: int) -> Tensor:
    """All combinations of the values of the axis: (p^n, n); the time of the last group varies fastest."""
    return torch.cartesian_prod(*[axis] * groups).reshape(-1, groups)


def scattered_points(count: int, groups: int) -> Tensor:
    """Sobol points in the box, and its corners."""
    engine = torch.quasirandom.SobolEngine(groups, scramble=True, seed=0)  # type: ignore[no-untyped-call]
    inner = engine.draw(count).double()
    corners = torch.tensor(list(product((0.0, 1.0), repeat=groups)), dtype=torch.float64)
    return torch.cat([corners, inner])


@torch.no_grad()
def tabulate(
    velocity: Velocity,
    data: Tensor,
    labels: Any,
    layout: Layout,
    points: int = 13,
    bends: bool = True,
    options: "TableOptions | None" = None,
) -> SurfaceTable:
    """Estimate the surfaces of a denoiser, with the same data and noise at every point.

    data: (m, c, ...) latents that the denoiser was not trained on, or a fresh draw; labels: (m,).
    points: grid points along each axis for two groups; 32 * points scattered points for three or more.
    """
    options = options or TableOptions()
    if len(data) < LEAST:
        raise InputError(f"surfaces need at least {LEAST} samples, got {len(data)}")
    axis = torch.linspace(0, 1, points, dtype=torch.float64) if len(layout) <= 2 else None
    places = grid_points(axis, len(layout)) if axis is not None else scattered_points(32 * points, len(layout))
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(data.shape, generator=generator, dtype=data.dtype).to(data.device)
    samples = split_samples(data, noise, labels)
    rank, world = options.share
    rows = [at_point(velocity, samples, layout, place, bends, options) for place in places[rank::world]]
    found = [torch.stack(part) for part in zip(*rows, strict=True)] if rows else []
    means, errors, grams = _merged(found, len(places), len(layout), bends, options)
    return SurfaceTable(
        layout, places, means[:, 0], means[:, 1], errors[:, 0], errors[:, 1], len(data), axis, grams if bends else None
    )


def split_samples(data: Tensor, noise: Tensor, labels: Any, batch: int = 0) -> list[tuple[Tensor, Tensor, Any]]:
    """Cut data, noise and conditions into batches (0: of BATCH samples)."""
    rows = torch.split(torch.arange(len(data)), batch or BATCH)
    return [(data[part], noise[part], labels[part]) for part in rows]


@dataclass(frozen=True)
class TableOptions:
    """Who computes a table, and how."""

    progress: Callable[[int], object] | None = None
    """Called with the number of samples that were just evaluated."""
    share: tuple[int, int] = (0, 1)
    """This process's rank and the number of processes; each takes every n-th point."""
    total: Callable[[Tensor], Tensor] | None = None
    """The sum of a tensor over all processes; needed with several."""
    fast: Velocity | None = None
    """The denoiser in lower precision, for losses and energies. Differences of velocities, which it would drown in
    rounding, then come from the first BATCH samples only."""


def _merged(
    found: Sequence[Tensor], points: int, groups: int, bends: bool, options: TableOptions
) -> tuple[Tensor, Tensor, Tensor]:
    """The rows of all processes, in the order of the points: the sum of what each has, with zeros elsewhere."""
    rank, world = options.share
    if world == 1:
        return found[0], found[1], found[2]
    shapes = [(2, groups), (2, groups), (groups, 1 + groups, 1 + groups) if bends else (0,)]
    merged = []
    for i, shape in enumerate(shapes):
        everything = torch.zeros(points, *shape, dtype=torch.float64)
        if found:
            everything[rank::world] = found[i].double()
        assert options.total is not None
        merged.append(options.total(everything) if everything.numel() else everything)
    return merged[0], merged[1], merged[2]


def at_point(
    velocity: Velocity,
    samples: Sequence[tuple[Tensor, Tensor, Any]],
    layout: Layout,
    place: Tensor,
    bends: bool,
    options: TableOptions,
) -> tuple[Tensor, Tensor, Tensor]:
    """Means and standard errors of l and n, (2, n) each, and the Gram matrices (n, 1 + n, 1 + n)."""
    rows: list[Tensor] = []
    grams: list[Tensor] = []
    count = 0
    first = options.fast or velocity
    for x, e, label in samples:
        times = place.expand(len(x), -1).to(x.device)
        z, target = interpolate(x, e, times, layout)
        v = first(z, times, label).to(z.dtype)
        rows.append(torch.stack([layout.means((v - target).square()), layout.means(v.square())], 1).double().cpu())
        if bends and (options.fast is None or not grams):
            v = v if options.fast is None else velocity(z, times, label).to(z.dtype)
            count += len(x)
            changes = [v, *(_change(velocity, z, v, times, label, layout, g) for g in range(len(layout)))]
            pairs = [torch.stack([layout.means(a * b).double().sum(0) for b in changes], -1) for a in changes]
            grams.append(torch.stack(pairs, 1).cpu())  # (n, 1 + n, 1 + n)
        if options.progress is not None:
            options.progress(len(x))
    values = torch.cat(rows)
    gram = torch.stack(grams).sum(0) / count if grams else torch.zeros(0)
    return values.mean(0), values.std(0) / len(values) ** 0.5, gram


def _change(velocity: Velocity, z: Tensor, v: Tensor, times: Tensor, label: Any, layout: Layout, group: int) -> Tensor:
    """d v / d t_g along the flow of group g: its clock and its state advance together."""
    step = -SHIFT if float(times[0, group]) + SHIFT > 1 else SHIFT
    moved = times.clone()
    moved[:, group] += step
    only = torch.zeros(1, len(layout), dtype=z.dtype, device=z.device)
    only[0, group] = step
    return (velocity(z + layout.expand(only, z.ndim) * v, moved, label).to(z.dtype) - v) / step


class GridSurfaces:
    """A full grid as smooth functions: tensor products of cubic Hermite splines with fourth-order slopes."""

    def __init__(self, table: SurfaceTable) -> None:
        if table.axis is None or len(table.axis) < 5:
            raise InputError("smooth surfaces need a grid of at least 5 points along each axis")
        self.axis, self.slopes = table.axis.double(), _slopes(table.axis.double())
        shape = (len(table.axis),) * len(table.layout)
        self.band = table.band
        values = self._extended(table, torch.stack([table.losses, table.energies], -1).double())
        self.values = values.reshape(*shape, len(table.layout), 2)
        bends = None if table.bends is None else self._extended(table, table.bends.double())
        self.bends = None if bends is None else bends.reshape(*shape, *bends.shape[1:])
        self.wall = WALL * float(table.losses.max())

    @staticmethod
    def _extended(table: SurfaceTable, values: Tensor) -> Tensor:
        if table.band is None:
            return values
        return extended(table.points.double(), values.flatten(1), table.mask).reshape(values.shape)

    def __call__(self, times: Tensor) -> tuple[Tensor, Tensor]:
        """times (b, n) -> l and n, (b, n) each; differentiable. Losses rise steeply outside the band."""
        found = self._at(times, self.values)
        if self.band is not None:
            wall = self.wall * self.band.outside(times).square()
            return found[..., 0].clamp(min=0) + wall[:, None], found[..., 1].clamp(min=0)
        # A mean square is never negative, but a cubic through noisy values near zero may be.
        return found[..., 0].clamp(min=0), found[..., 1].clamp(min=0)

    def gram(self, times: Tensor) -> Tensor:
        """times (b, n) -> Gram matrices of the velocity and its changes, (b, n, 1 + n, 1 + n)."""
        if self.bends is None:
            raise InputError(
                "the surfaces have no curvatures, so no error can be predicted; run the surface probe again",
                argument="steps",
            )
        return self._at(times, self.bends)

    def _at(self, times: Tensor, values: Tensor) -> Tensor:
        weights = [_hermite(times[:, i], self.axis, self.slopes) for i in range(times.shape[1])]
        found = torch.einsum("bp,p...->b...", weights[0], values)
        for weight in weights[1:]:
            found = torch.einsum("bp,bp...->b...", weight, found)
        return found


def _hermite(t: Tensor, axis: Tensor, slopes: Tensor) -> Tensor:
    """Weights (b, p) of the grid values in a cubic Hermite interpolant at t (b,)."""
    t = t.double().clamp(0, 1)
    cell = (torch.bucketize(t.detach(), axis, right=True) - 1).clamp(0, len(axis) - 2)
    h = axis[cell + 1] - axis[cell]
    u = ((t - axis[cell]) / h)[:, None]
    one = torch.eye(len(axis), dtype=torch.float64)
    low, high = one[cell], one[cell + 1]
    start, end = h[:, None] * slopes[cell], h[:, None] * slopes[cell + 1]
    return (
        (1 + 2 * u) * (1 - u) ** 2 * low + u**2 * (3 - 2 * u) * high + u * (1 - u) ** 2 * start + u**2 * (u - 1) * end
    )


def _slopes(axis: Tensor) -> Tensor:
    """Derivative matrix (p, p): at each point, the derivative of the quartic through the five nearest points."""
    count = len(axis)
    matrix = torch.zeros(count, count, dtype=torch.float64)
    for i in range(count):
        low = min(max(i - 2, 0), count - 5)
        offsets = axis[low : low + 5] - axis[i]
        powers = offsets[None] ** torch.arange(5, dtype=torch.float64)[:, None]
        wanted = torch.tensor([0.0, 1, 0, 0, 0], dtype=torch.float64)
        matrix[i, low : low + 5] = torch.linalg.solve(powers, wanted)
    return matrix


class SmoothSurfaces:
    """Scattered points as Chebyshev polynomials, of the total degree with the smallest error on held-out points."""

    def __init__(self, table: SurfaceTable, largest: int = 8) -> None:
        values = torch.cat([table.losses, table.energies], 1).double()
        held = torch.arange(len(values)) % 5 == 4
        scores: dict[int, float] = {}
        for degree in range(1, largest + 1):
            terms = _terms(degree, table.points.shape[1])
            if len(terms) > 0.8 * int((~held).sum()):
                break
            basis = _chebyshev(table.points.double(), terms)
            fit = torch.linalg.lstsq(basis[~held], values[~held]).solution
            scores[degree] = float((basis[held] @ fit - values[held]).square().mean().sqrt())
        if not scores:
            raise InputError(f"{len(values)} points are too few for a smooth surface; tabulate more", argument="points")
        self.degree = min(scores, key=lambda degree: scores[degree])
        self.error = scores[self.degree]
        """Root mean square error on the held-out points."""
        self.terms = _terms(self.degree, table.points.shape[1])
        self.fit = torch.linalg.lstsq(_chebyshev(table.points.double(), self.terms), values).solution

    def __call__(self, times: Tensor) -> tuple[Tensor, Tensor]:
        found = _chebyshev(times.double().clamp(0, 1), self.terms) @ self.fit
        return found[:, : times.shape[1]].clamp(min=0), found[:, times.shape[1] :].clamp(min=0)


def _terms(degree: int, groups: int) -> list[tuple[int, ...]]:
    return [powers for powers in product(range(degree + 1), repeat=groups) if sum(powers) <= degree]


def _chebyshev(times: Tensor, terms: Sequence[tuple[int, ...]]) -> Tensor:
    """Products of Chebyshev polynomials on [0, 1]: (b, n) -> (b, terms)."""
    x = 2 * times - 1
    rows = [torch.ones_like(x), x]
    for _ in range(max(max(powers) for powers in terms) - 1):
        rows.append(2 * x * rows[-1] - rows[-2])
    columns = []
    for powers in terms:
        column = torch.ones_like(x[:, 0])
        for group, power in enumerate(powers):
            column = column * rows[power][:, group]
        columns.append(column)
    return torch.stack(columns, 1)


def smooth(table: SurfaceTable) -> "GridSurfaces | SmoothSurfaces":
    """Turn a table into functions: interpolate a grid, fit scattered points."""
    return GridSurfaces(table) if table.axis is not None else SmoothSurfaces(table)
