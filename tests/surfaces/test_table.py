"""Tables of losses: interpolated, fitted, estimated from data, read and written."""

import itertools
import json

import pytest
import torch
from torch.testing import assert_close

import lwd
from lwd.surfaces.files import load_surfaces, save_surfaces
from lwd.surfaces.table import (
    GridSurfaces,
    SmoothSurfaces,
    SurfaceTable,
    scattered_points,
    smooth,
    tabulate,
)
from messages import says
from surfaces.exact import AXIS, DATA, SURFACES, exact_table
from train_data import gaussian


def test_a_grid_is_interpolated_to_fourth_order():
    """Oracle: the closed form between the points; halving the spacing divides the error by about 16; gradients too."""
    times = torch.rand(400, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    errors = []
    for count in (9, 17):
        surfaces = GridSurfaces(exact_table(axis=torch.linspace(0, 1, count, dtype=torch.float64)))
        errors.append(
            max(float((a - b).abs().max()) for a, b in zip(surfaces(times), DATA.surfaces(times), strict=True))
        )
    assert errors[1] < 1e-4
    assert errors[0] / errors[1] > 8
    times.requires_grad_(True)
    mine, theirs = (torch.autograd.grad(f(times)[0].sum(), times)[0] for f in (SURFACES, DATA.surfaces))
    assert_close(mine, theirs, atol=5e-3, rtol=0)


def test_scattered_points_are_fitted_and_the_degree_is_chosen():
    """Oracle: three correlated groups in closed form; a polynomial of known degree is found exactly."""
    data = gaussian(0.4, groups=3)
    points = scattered_points(352, 3)
    losses, energies = data.surfaces(points)
    table = SurfaceTable(data.layout, points, losses, energies, 0 * losses, 0 * losses, 1000)
    surfaces = smooth(table)
    assert isinstance(surfaces, SmoothSurfaces)
    times = torch.rand(300, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = surfaces(times)
    assert max(float((a - b).abs().max()) for a, b in zip(found, data.surfaces(times), strict=True)) < 0.05
    assert surfaces.error < 0.01
    cubic = 2 + points[:, :1] ** 3 - points[:, 1:2] * points[:, 2:]
    both = (cubic.expand(-1, 3), cubic.expand(-1, 3), 0 * losses, 0 * losses)
    assert SmoothSurfaces(SurfaceTable(data.layout, points, *both, 99)).error < 1e-10
    with pytest.raises(lwd.InputError, match=says(4)):
        SmoothSurfaces(SurfaceTable(data.layout, points[:4], losses[:4], energies[:4], losses[:4], losses[:4], 1000))


def test_information_gain_does_not_depend_on_the_path():
    """Oracle: I-MMSE. With weights d_g t_g / (1 - t_g) the objective is a line integral of a gradient field."""
    factor = torch.randn(3, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    covariance = factor @ factor.T + 0.2 * torch.eye(3, dtype=torch.float64)
    data = lwd.Gaussian(lwd.Layout.of(texture=2, semantic=1), covariance)  # groups of different size: d_g counts

    def integral(schedule):
        edges = torch.tensor([0.0, *schedule.breakpoints, 1.0], dtype=torch.float64)
        total = torch.zeros(())
        for low, high in itertools.pairwise(edges.tolist()):
            nodes = torch.linspace(low, high, 20_001, dtype=torch.float64)
            tau = (nodes[1:] + nodes[:-1]) / 2
            times = 0.9 * schedule.times(tau)  # from the origin to (0.9, 0.9): at 1 the weight is infinite
            losses, _ = data.surfaces(times)
            weights = torch.tensor([group.channels for group in data.layout]) * times / (1 - times)
            total = total + (weights * losses * 0.9 * schedule.rates(tau)).sum() * (high - low) / 20_000
        return float(total.detach())

    values = [
        integral(one)
        for one in (
            lwd.Synchronous(),
            lwd.Offset(0.3),
            lwd.Offset(0.3, lead="texture"),
            lwd.Polynomial.from_shares([[0, 0, 1]]),
            lwd.Cascade(("texture", "semantic"), ("texture", "semantic")),
        )
    ]
    assert max(values) - min(values) < 1e-6 * abs(values[0])


def test_estimated_surfaces_are_within_their_errors():
    """Oracle: the closed form of the exact velocity: 3 standard errors at 99% of the points, none beyond 6; bends by
    autograd of the closed form."""
    data, labels = DATA.draw(1500, seed=1)
    table = tabulate(DATA, data, labels, DATA.layout, points=5)
    losses, energies = DATA.surfaces(table.points)
    for mine, theirs, error in (
        (table.losses, losses, table.loss_errors),
        (table.energies, energies, table.energy_errors),
    ):
        away = (mine - theirs).abs() / error.clamp(min=1e-12)
        away = away[(mine - theirs).abs() > 1e-9]
        assert (away < 3).double().mean() > 0.97
        assert away.max() < 6
    middle = table.bends[12, 0]  # the point (0.5, 0.5)
    assert_close(table.points[12], torch.tensor([0.5, 0.5], dtype=torch.float64))
    matrix = torch.tensor([[1.0, 0.6], [0.6, 1.0]], dtype=torch.float64)

    def linear(t):
        a, b = torch.diag(t), torch.diag(1 - t)
        return (matrix @ a - b) @ torch.linalg.inv(a @ matrix @ a + b @ b)

    t = torch.tensor([0.5, 0.5], dtype=torch.float64)
    m, covariance = linear(t), matrix / 4 + torch.eye(2) / 4
    jacobian = torch.autograd.functional.jacobian(linear, t)
    rows = [m[0]] + [jacobian[0, :, g] + m[0, g] * m[g] for g in range(2)]
    expected = torch.stack([torch.stack([a @ covariance @ b for b in rows]) for a in rows])
    assert_close(middle, expected, atol=0.1, rtol=0.08)


def test_files_round_trip_and_bad_ones_are_refused(tmp_path):
    """Oracle: equality; each defect by its sentence."""
    data, labels = DATA.draw(64)
    table = tabulate(DATA, data, labels, DATA.layout, points=5)
    save_surfaces(table, tmp_path / "surfaces.safetensors", {"by": "a test"})
    again, provenance = load_surfaces(tmp_path)
    assert provenance == {"by": "a test"}
    for name in ("points", "losses", "energies", "loss_errors", "energy_errors", "axis", "bends"):
        assert torch.equal(getattr(again, name), getattr(table, name)), name

    def with_changes(**changes):
        fields = {name: getattr(table, name) for name in SurfaceTable.__dataclass_fields__}
        return SurfaceTable(**(fields | changes))

    hole = table.losses.clone()
    hole[3, 1] = torch.nan
    for changes, facts in (
        ({"losses": hole}, ("losses", "NaN", 1, 25)),
        ({"losses": table.losses[:-1]}, ("losses", "(25, 2)", "(24, 2)")),
        ({"energies": -table.energies}, "energies"),
        ({"points": 2 * table.points}, "points"),
        ({"count": 8}, (8, 32)),
        ({"axis": AXIS[:5]}, "axis"),
        ({"axis": AXIS.flip(0)}, "axis"),
        ({"axis": torch.cat([AXIS[:5], AXIS[4:-1]])}, "axis"),
        ({"axis": torch.linspace(0, 1, 17).double().square()}, "points"),
        ({"axis": torch.tensor(0.5).double()}, "axis"),
    ):
        with pytest.raises(lwd.InputError, match=says(facts)):
            with_changes(**changes)
    with pytest.raises(lwd.InputError, match=says(32, 8)):
        tabulate(DATA, data[:8], labels[:8], DATA.layout)
    about = json.loads((tmp_path / "surfaces.json").read_text())
    for change, facts in (
        ({"format": "x"}, ("surfaces.json", "x")),
        ({"layout": [1]}, ("surfaces.json", "layout")),
        ({"count": 3}, (3, 32)),
        ({"layout": {"texture": 1, "semantic": 1, "depth": 1}}, ("(25, 3)", "(25, 2)")),
    ):
        (tmp_path / "surfaces.json").write_text(json.dumps(about | change))
        with pytest.raises(lwd.InputError, match=says(facts)):
            load_surfaces(tmp_path)
    (tmp_path / "surfaces.json").write_text(json.dumps(about))
    (tmp_path / "surfaces.safetensors").write_bytes((tmp_path / "surfaces.safetensors").read_bytes()[:300])
    with pytest.raises(lwd.InputError, match=says("surfaces.safetensors")):
        load_surfaces(tmp_path)
