"""The objective against closed forms: Lemma 1, both weight gradients, every term by hand."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from torch.testing import assert_close

import lwd
from lwd import FlowObjective, Layout
from lwd.objective import misdirection
from messages import says
from strategies import polynomials, random_gaussian, scalar_pair

LAYOUT = Layout.of(texture=4, semantic=2)
NODES, WEIGHTS = (torch.from_numpy(x) for x in np.polynomial.legendre.leggauss(64))
TAU, DTAU = (NODES + 1) / 2, WEIGHTS / 2
RHO = torch.tensor([[0.3, -1.0, 0.5, 0.2, -0.4]], dtype=torch.float64)


def batch(b=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    v, u = torch.randn(2, b, 6, 3, 3, dtype=torch.float64, generator=generator)
    return v, u, torch.rand(b, 2, dtype=torch.float64, generator=generator) + 0.5


@pytest.mark.parametrize(("reduction", "scales"), [("channels", (4 / 6, 2 * 2 / 6)), ("groups", (1, 2))])
def test_every_term_by_hand(reduction, scales):
    """Oracle: the formula of each term written out with sums; w_sem = 2 balances 2:1 channels under "channels"."""
    v, u, rates = batch()
    p, f = torch.randn(2, 5, 7, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    objective = FlowObjective(LAYOUT, {"semantic": 2}, reduction, kinetic=0.3, cosine=0.7, align=0.5)
    losses = objective(v, u, rates, p, f)
    for i, (name, part) in enumerate({"texture": slice(0, 4), "semantic": slice(4, 6)}.items()):
        d = v[0, part].numel()
        error = (v - u)[:, part].square().sum((1, 2, 3)) / d
        energy = v[:, part].square().sum((1, 2, 3)) / d
        assert_close(losses.flow[name], (scales[i] * rates[:, i] * error).mean())
        share = (4 / 6, 2 / 6)[i] if reduction == "channels" else 1
        assert_close(losses.kinetic[name], 0.3 * share * (rates[:, i] ** 2 * energy).mean())
        assert_close(losses.errors[name], error.mean())
        assert_close(losses.energies[name], energy.mean())
    cosine = 1 - (v * u).sum(1) / v.square().sum(1).sqrt() / u.square().sum(1).sqrt()
    align = 1 - (p * f).sum(1) / p.square().sum(1).sqrt() / f.square().sum(1).sqrt()
    assert_close(losses.cosine, 0.7 * cosine.mean())
    assert_close(losses.align, 0.5 * align.mean())
    terms = (*losses.flow.values(), *losses.kinetic.values(), losses.cosine, losses.align)
    assert_close(losses.total, sum(terms))
    if reduction == "channels":
        balanced = FlowObjective(LAYOUT, {"semantic": 2})(v, u, torch.ones_like(rates))
        assert_close(balanced.total, 2 / 3 * sum(balanced.errors.values()))


def test_the_global_mean_with_group_weights_is_the_channel_reduction():
    """Oracle: SFD's loss, the mean over all channels with the semantic ones times 2, without correction."""
    v, u, rates = batch()
    weight = torch.tensor([1.0, 1, 1, 1, 2, 2], dtype=torch.float64)[:, None, None]
    expected = (weight * (v - u).square()).mean()
    losses = FlowObjective(LAYOUT, {"semantic": 2}, "channels", "none")(v, u, rates)
    assert_close(losses.total, expected)


@pytest.mark.parametrize("reduction", ["channels", "groups"])
def test_the_ratio_of_kinetic_to_flow_is_lambda_over_the_weight(reduction):
    """Oracle: by hand, at rate 1 with equal errors and energies; the scale before 0.2 had C / C_g times as much."""
    ones = torch.ones(1, 2, dtype=torch.float64)
    for average, factors in (("reduction", (1, 1)), ("groups", (6 / 4, 6 / 2) if reduction == "channels" else (1, 1))):
        objective = FlowObjective(LAYOUT, {"semantic": 2}, reduction, kinetic=0.04, kinetic_average=average)
        flow, kinetic = objective.weigh(ones, ones, ones)
        assert_close((kinetic / flow)[0], torch.tensor([0.04 * factors[0], 0.02 * factors[1]], dtype=torch.float64))


def test_every_configured_term_changes_the_total():
    """Oracle: all 16 subsets of the four optional settings give 16 different totals."""
    v, u, rates = batch()
    totals = set()
    for kinetic, cosine, align, weight in itertools.product((0.0, 0.1), (0.0, 1.0), (0.0, 1.0), (1.0, 2.0)):
        objective = FlowObjective(LAYOUT, {"semantic": weight}, kinetic=kinetic, cosine=cosine, align=align)
        features = (v.roll(1, 0), u) if align else ()
        totals.add(round(float(objective(v, u, rates, *features).total), 12))
    assert len(totals) == 16


@given(polynomials(groups=2, limit=3.0))
def test_corrected_weights_keep_local_times_uniform_lemma_1(schedule):
    """Oracle: the local-time integral with the inverse curve, by its own quadrature (<= 1e-8); omega = 1 differs."""
    data = scalar_pair()
    objective = FlowObjective(data.layout, {"semantic": 1.5}, "groups")
    corrected = lwd.path_objective(schedule, data.surfaces, objective, nodes=64).detach()
    # Substituting s = x^6 tames the inverse, whose slope is infinite at 0 for tau^(M+1); the curve's ends stay put.
    s, ds = TAU**6, DTAU * 6 * TAU**5
    inverse = schedule.tau_of(schedule.followers[0], s).detach()
    follower, lead = (data.layout.index(name) for name in (schedule.followers[0], schedule.lead))
    paired = torch.empty(64, 2, dtype=torch.float64)
    paired[:, follower], paired[:, lead] = s, inverse
    weights = torch.tensor([1.0, 1.5], dtype=torch.float64)
    own = weights[follower] * (ds * data.surfaces(paired)[0][:, follower]).sum()
    other = weights[lead] * (DTAU * data.surfaces(schedule.times(TAU).detach())[0][:, lead]).sum()
    assert_close(corrected, own + other, atol=1e-8, rtol=0)
    if (schedule.times(0.5)[follower] - 0.5).abs() > 0.05:
        uncorrected = FlowObjective(data.layout, {"semantic": 1.5}, "groups", "none")
        assert (lwd.path_objective(schedule, data.surfaces, uncorrected).detach() - corrected).abs() > 1e-4


def sampled_gradient(weight_gradient, kinetic=0.0):
    """d total / d rho through interpolate -> exact velocity -> FlowObjective, with expectations that are exact.

    The points +-sqrt(2d) L e_i have the mean and covariance of (data, noise), so all quadratic means are exact.
    """
    data, schedule = scalar_pair(), lwd.Polynomial(RHO)
    objective = FlowObjective(data.layout, {"semantic": 1.5}, "groups", weight_gradient, kinetic)
    root = torch.block_diag(torch.linalg.cholesky(data.covariances[0]), torch.eye(2, dtype=torch.float64))
    points = torch.cat([root.T, -root.T]) * 2.0
    x1, x0 = (part[..., None, None] for part in points.split(2, dim=1))
    total = torch.zeros((), dtype=torch.float64)
    for tau, weight in zip(TAU, DTAU, strict=True):
        many = tau.expand(len(points))
        times, rates = schedule.times(many), schedule.rates(many)
        z, target = lwd.interpolate(x1, x0, times, data.layout)
        velocity = data(z, times, torch.zeros(len(points), dtype=torch.int64))
        total = total + weight * objective(velocity, target, rates).total
    return torch.autograd.grad(total, schedule.rho)[0]


def loss(a, b):
    """l_tex at times (a, b) for correlation 0.6, from 2x2 algebra; l_sem(a, b) = l_tex(b, a)."""
    c = 0.6
    va, vb, cross = a**2 + (1 - a) ** 2, b**2 + (1 - b) ** 2, c * a * b
    ca, cb = a - (1 - a), c * b  # cov(u_tex, z_tex), cov(u_tex, z_sem)
    det = va * vb - cross**2
    return 2 - (ca**2 * vb - 2 * ca * cb * cross + cb**2 * va) / det


def closed_form_gradient(weight_gradient):
    """METHOD 3.2: int of [first-order terms] x d_rho t, with partial derivatives of `loss` by central differences."""
    h = 1e-6
    shift = torch.eye(5, dtype=torch.float64)[:, None] * h
    moved = [(lwd.Polynomial(RHO + e).times(TAU) - lwd.Polynomial(RHO - e).times(TAU))[:, 0] / (2 * h) for e in shift]
    d_rho_t = torch.stack(moved).detach()
    schedule = lwd.Polynomial(RHO)
    a, b, rate = schedule.times(TAU)[:, 0].detach(), TAU, schedule.rates(TAU)[:, 0].detach()
    by_own = (loss(a + h, b) - loss(a - h, b)) / (2 * h)
    by_other = (loss(a, b + h) - loss(a, b - h)) / (2 * h)
    semantic = 1.5 * (loss(b, a + h) - loss(b, a - h)) / (2 * h)
    texture = {"exact": -by_other, "stop": rate * by_own, "none": by_own}[weight_gradient]
    return ((texture + semantic) * DTAU * d_rho_t).sum(1)[None]


def local_time_difference():
    """Central difference in rho of E_s[l_tex(s, t^-1(s))] + 1.5 E_s[l_sem(t(s), s)]."""

    def value(rho):
        schedule = lwd.Polynomial(rho)
        s, ds = TAU**6, DTAU * 6 * TAU**5
        texture = (ds * loss(s, schedule.tau_of("texture", s).detach())).sum()
        return texture + 1.5 * (DTAU * loss(TAU, schedule.times(TAU)[:, 0].detach())).sum()

    h = 1e-5
    return torch.stack([(value(RHO + e) - value(RHO - e)) / (2 * h) for e in torch.eye(5).double() * h])[None]


@pytest.mark.parametrize("weight_gradient", ["exact", "stop", "none"])
def test_weight_gradients_equal_their_closed_forms(weight_gradient):
    """Oracle: METHOD 3.2's formulas on Gaussian data (<= 1e-6), through the code that training uses."""
    assert_close(sampled_gradient(weight_gradient), closed_form_gradient(weight_gradient), atol=1e-6, rtol=0)


def test_exact_is_the_gradient_of_the_local_time_objective_and_stop_is_not():
    """Oracle: finite differences of the local-time form (<= 1e-6)."""
    truth = local_time_difference()
    assert_close(sampled_gradient("exact"), truth, atol=1e-6, rtol=0)
    assert (sampled_gradient("stop") - truth).abs().max() > 1e-2


def test_kinetic_gradient_reaches_rho_and_the_network():
    """Oracle: central differences of the value for rho; for the network, 2 lambda rate^2 v / (d b)."""
    v, u, rates = batch()
    v.requires_grad_()
    rates.requires_grad_()
    objective = FlowObjective(LAYOUT, kinetic=0.3, weight_gradient="stop", kinetic_average="groups")
    with_kinetic = torch.autograd.grad(objective(v, u, rates).total, [v, rates])
    without = torch.autograd.grad(FlowObjective(LAYOUT, weight_gradient="none")(v, u, rates).total, v)[0]
    energy = LAYOUT.means(v.detach().square())
    assert_close(with_kinetic[1], 0.6 * rates.detach() * energy / 5)
    expected = 0.6 * LAYOUT.expand((rates.detach() ** 2 / torch.tensor([36.0, 18.0])), 5 - 1) * v.detach() / 5
    flow = LAYOUT.expand(rates.detach()) * without
    assert_close(with_kinetic[0], flow + expected)


def test_low_precision_predictions_are_weighed_in_float32():
    v, u, rates = batch()
    losses = FlowObjective(LAYOUT)(v.bfloat16(), u.bfloat16(), rates)
    assert losses.total.dtype == torch.float32


def test_three_groups():
    """Oracle: the sum over groups, by hand."""
    data = random_gaussian(("a", "b", "c"), seed=1)
    errors, energies, rates = torch.rand(3, 4, 3, dtype=torch.float64)
    flow, kinetic = FlowObjective(data.layout, {"b": 3}, "groups", kinetic=0.2).weigh(errors, energies, rates)
    assert_close(flow, errors * rates * torch.tensor([1, 3, 1]))
    assert_close(kinetic, 0.2 * rates**2 * energies)


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"weights": {"semantics": 2}}, ("weights", "semantics", "semantic")),
        ({"weights": {"semantic": -1}}, ("semantic", -1)),
        ({"reduction": "mean"}, ("reduction", "mean", "channels, groups")),
        ({"weight_gradient": "exakt"}, ("weight_gradient", "exakt", "exact")),
        ({"kinetic": float("nan")}, ("kinetic", "nan")),
        ({"cosine": -1}, ("cosine", -1)),
    ],
)
def test_bad_settings_are_refused_with_a_sentence(settings, facts):
    with pytest.raises(lwd.InputError, match=says(facts)):
        FlowObjective(LAYOUT, **settings)


def test_inputs_without_effect_or_missing_are_errors():
    v, u, rates = batch()
    with pytest.raises(lwd.InputError, match=says("features", "align", 0)):
        FlowObjective(LAYOUT)(v, u, rates, v, u)
    with pytest.raises(lwd.InputError, match=says("align", "projected", "features")):
        FlowObjective(LAYOUT, align=1)(v, u, rates)
    with pytest.raises(lwd.InputError, match=says("(5, 6, 3, 3)", "(5, 3, 3, 3)")):
        FlowObjective(LAYOUT, align=1)(v, u, rates, v, u[:, :3])
    with pytest.raises(lwd.InputError, match=says("rates", "(5, 2)", "(5, 1)")):
        FlowObjective(LAYOUT)(v, u, rates[:, :1])
    with pytest.raises(lwd.InputError, match=says("target", "(2, 6, 3, 3)")):
        FlowObjective(LAYOUT)(v, u[:2], rates)


def test_a_network_that_starts_at_zero_has_a_bounded_cosine_gradient():
    """Oracle: at v = 0 the gradient of 1 - cosine is -u / (0.1 |u|^2); far from 0 the term is torch's cosine."""
    target = torch.randn(3, 4, 2, 2, generator=torch.Generator().manual_seed(0))
    velocity = torch.zeros_like(target, requires_grad=True)
    misdirection(velocity, target).sum().backward()
    expected = -target / (0.1 * target.square().sum(1, keepdim=True)) / 4
    torch.testing.assert_close(velocity.grad, expected)
    other = torch.randn(3, 4, 2, 2, generator=torch.Generator().manual_seed(1))
    reference = (1 - torch.nn.functional.cosine_similarity(other, target, dim=1)).flatten(1).mean(1)
    torch.testing.assert_close(misdirection(other, target), reference)
