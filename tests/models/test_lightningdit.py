"""The network against the reference's stored numbers, and against what it must be by construction."""

import copy

import pytest
import torch
from torch.testing import assert_close

import lwd
from lwd.models.layers import rotary_table, rotate
from lwd.models.lightningdit import LightningDiT, LightningDiTConfig, parameter_count
from messages import says
from reference import LAYOUT, busy_network, sfd, sfd_network, small_config

PAPER = lwd.Layout.of(texture=32, semantic=16)
COUNTS = {
    "S/1": (32_827_056, 39_385_520),
    "B/1": (130_090_800, 137_435_696),
    "L/1": (457_402_384, 465_271_568),
    "XL/1": (674_339_184, 682_470_512),
    "1p0B/1": (1_027_880_496, 1_036_798_256),
    "1p6B/1": (1_629_763_680, 1_639_205_728),
}


def inputs(config, batch=3, grid=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(batch, config.layout.channels, *(grid or config.grid), generator=generator)
    times = torch.rand(batch, len(config.layout), generator=generator)
    return z, times, torch.randint(0, config.classes + 1, (batch,), generator=generator)


def test_output_is_the_references():
    """Oracle: stored output of SFD's network at independent local times (<= 2e-5)."""
    stored = sfd()[0]
    out = sfd_network()(stored["x1"], torch.stack([stored["t_tex"], stored["t_sem"]], 1), stored["y"])
    assert_close(out, stored["out"], atol=2e-5, rtol=0)


def test_losses_are_the_references():
    """Oracle: stored flow (semantic weight 2, mean over channels, no correction), cosine and alignment per sample."""
    stored = sfd()[0]
    schedule = lwd.Offset(sfd()[2]["delta"])
    times = schedule.times(stored["tau"])
    z, target = lwd.interpolate(stored["x1"], stored["x0"], times, LAYOUT)
    velocity, features = sfd_network().with_features(z, times, stored["y"])
    assert_close(velocity, stored["pred"], atol=2e-5, rtol=0)
    assert torch.equal(velocity, sfd_network()(z, times, stored["y"]))
    objective = lwd.FlowObjective(LAYOUT, {"semantic": 2}, "channels", "none", cosine=1, align=1)
    for i in range(len(z)):
        one = slice(i, i + 1)
        parts = velocity[one], target[one], schedule.rates(stored["tau"])[one], features[one], stored["features"][one]
        losses = objective(*parts)
        assert_close(sum(losses.flow.values()), stored["loss_flow"][i], atol=2e-5, rtol=0)
        assert_close(losses.cosine, stored["loss_cos"][i], atol=2e-5, rtol=0)
        assert_close(losses.align, stored["loss_repa"][i], atol=2e-5, rtol=0)


def test_samples_are_the_references():
    """Oracle: stored Euler sample (26 points on [0, 1.3], <= 2e-5) and dopri5 sample (tolerance 1e-7, <= 1e-3)."""
    stored, _, about = sfd()
    schedule = lwd.Offset(about["delta"])
    field = lwd.flow_field(sfd_network(), schedule, LAYOUT, stored["y"])
    with torch.no_grad():
        euler = lwd.solve(field, stored["x0"], "euler", steps=about["euler_points"] - 1).z
        tight = {"atol": 1e-5, "rtol": 1e-5}  # the stored sample has 1e-7, which in float32 takes many steps
        dopri5 = lwd.solve(field, stored["x0"], breakpoints=schedule.breakpoints, max_nfe=100_000, **tight).z
    assert_close(euler, stored["sample_euler"], atol=2e-5, rtol=0)
    assert_close(dopri5, stored["sample_dopri5"], atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_counts_are_the_papers(name):
    """Oracle: the published counts, without and with a projector to 768 features."""
    with torch.device("meta"):
        plain, tapped = (LightningDiT(LightningDiTConfig.of(name, PAPER, tap=tap)) for tap in (0, 2))
    assert (parameter_count(plain), parameter_count(tapped)) == COUNTS[name]


@pytest.mark.parametrize(
    "changes", [{}, {"patch": 2}, {"norm": "layer", "mlp": "gelu", "qk_norm": False}, {"shift": False}]
)
def test_output_is_exactly_zero_at_initialisation(changes):
    config = small_config(**changes)
    assert (LightningDiT(config)(*inputs(config)) == 0).all()


def test_rotary_embedding_keeps_norms_and_sees_relative_positions_only():
    """Oracle: |rotate(x)| = |x|; the dot product of q at (i, j) and k at (k, l) depends on (i - k, j - l) alone."""
    cos, sin = rotary_table(7, 5, 24)
    q, k = torch.randn(2, 24, generator=torch.Generator().manual_seed(0))
    turned_q, turned_k = rotate(q.expand(35, 24), cos, sin), rotate(k.expand(35, 24), cos, sin)
    assert_close(turned_q.norm(dim=1), q.norm().expand(35))
    dots = (turned_q @ turned_k.T).reshape(7, 5, 7, 5)
    for di, dj in ((0, 0), (2, 1), (-3, 2), (1, -4)):
        same = [dots[i, j, i + di, j + dj] for i in range(7) for j in range(5) if 0 <= i + di < 7 and 0 <= j + dj < 5]
        assert_close(torch.stack(same), same[0].expand(len(same)), atol=1e-5, rtol=1e-5)
    assert (dots[0, 0] - dots[0, 0, 0, 0]).abs().max() > 0.1


def test_a_sample_does_not_depend_on_its_batch():
    """Oracle: the same sample alone, with others, and in another place."""
    config = small_config(tap=1, features=7)
    network = busy_network(config)
    z, times, label = inputs(config, batch=6)
    with torch.no_grad():
        together = network(z, times, label)
        for i in (0, 3, 5):
            assert_close(
                network(z[i : i + 1], times[i : i + 1], label[i : i + 1])[0], together[i], atol=1e-5, rtol=1e-5
            )
        flipped = network(z.flip(0), times.flip(0), label.flip(0)).flip(0)
    assert_close(flipped, together, atol=1e-5, rtol=1e-5)


def test_each_clock_and_the_label_are_heard():
    """Oracle: changing one input changes the output; the clocks are not interchangeable."""
    config = small_config()
    network = busy_network(config)
    z, times, label = inputs(config)
    out = network(z, times, label)
    later = times.clone()
    later[:, 1] += 0.3
    for other in (network(z, later, label), network(z, times.flip(1), label), network(z, times, (label + 1) % 6)):
        assert (other - out).abs().max() > 1e-3


@pytest.mark.parametrize(("patch", "grid"), [(1, (4, 7)), (1, (9, 9)), (2, (4, 4)), (2, (6, 10))])
def test_other_grids_work_and_a_patch_moves_with_its_position(patch, grid):
    """Oracle: shapes, and locality: after patching, out channel layout puts each patch back where it came from."""
    config = small_config(patch=patch, tap=2, features=5)
    network = busy_network(config)
    z, times, label = inputs(config, grid=grid)
    velocity, features = network.with_features(z, times, label)
    assert velocity.shape == z.shape
    assert features.shape == (3, 5, grid[0] // patch, grid[1] // patch)
    for block in network.blocks:  # with attention and MLP gated off, tokens cannot mix
        torch.nn.init.zeros_(block.adaLN_modulation[1].weight)
        torch.nn.init.zeros_(block.adaLN_modulation[1].bias)
    changed = z.clone()
    changed[:, :, grid[0] - 1, grid[1] - 1] += 1
    moved = (network(changed, times, label) - network(z, times, label)).abs().amax((0, 1)) > 0
    expected = torch.zeros(grid, dtype=torch.bool)
    expected[grid[0] - patch :, grid[1] - patch :] = True
    assert torch.equal(moved, expected)


def test_one_three_and_four_groups():
    """Oracle: every clock is heard, whatever their number; widths share out the conditioning."""
    for count in (1, 3, 4):
        layout = lwd.Layout.of(**{f"g{i}": 2 for i in range(count)})
        network = busy_network(small_config(layout))
        z, times, label = inputs(network.config)
        assert sum(clock.mlp[2].out_features for clock in network.clocks.values()) == 48
        for i in range(count):
            later = times.clone()
            later[:, i] = 1 - later[:, i]
            assert (network(z, later, label) - network(z, times, label)).abs().max() > 1e-4


def test_gradient_checkpointing_changes_nothing_but_memory():
    """Oracle: the same gradients, to rounding."""
    config = small_config(tap=1, features=3)
    plain, saving = busy_network(config), LightningDiT(config, checkpoint=True)
    saving.load_state_dict(plain.state_dict())
    grads = []
    for network in (plain, saving):
        velocity, features = network.with_features(*inputs(config))
        (velocity.square().mean() + features.square().mean()).backward()
        grads.append([p.grad for p in network.parameters()])
    for a, b in zip(*grads, strict=True):
        assert_close(a, b, atol=1e-6, rtol=1e-5)


@pytest.mark.slow
def test_compiled_equals_eager():
    """Oracle: the same network uncompiled, forward and backward."""
    config = small_config(tap=1, features=3)
    plain, compiled = busy_network(config), LightningDiT(config, compile=True)
    compiled.load_state_dict(plain.state_dict())
    results = []
    for network in (plain, compiled):
        out = network(*inputs(config))
        out.square().mean().backward()
        results.append((out.detach(), network.x_embedder.proj.weight.grad))
    assert_close(results[0], results[1], atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_a_copy_of_a_compiled_network_runs_its_own_weights():
    """Oracle: a deep copy with all parameters zero gives zero."""
    config = small_config()
    network = LightningDiT(config, compile=True)
    network.load_state_dict(busy_network(config).state_dict())
    network(*inputs(config))
    other = copy.deepcopy(network)
    for parameter in other.parameters():
        torch.nn.init.zeros_(parameter)
    assert (other(*inputs(config)) == 0).all()


def test_a_preview_in_inference_mode_does_not_stop_training():
    """Oracle: backward works after a first call under inference_mode, and after one on the meta device."""
    config = small_config(grid=(4, 6))
    network = busy_network(config)
    with torch.inference_mode():
        network(*inputs(config))
    network(*inputs(config)).square().mean().backward()
    with torch.device("meta"):
        LightningDiT(config)(*inputs(config))
    LightningDiT(config)(*inputs(config)).square().mean().backward()


def test_autocast_stays_close():
    """Oracle: float32, within bfloat16's 2^-8; the residual stream stays float32."""
    network = busy_network(small_config(tap=1, features=3))
    z, times, label = inputs(network.config)
    velocity, features = network.with_features(z, times, label)
    with torch.autocast("cpu", torch.bfloat16):
        low, low_features = network.with_features(z, times, label)
    assert_close(low.float(), velocity, atol=0.05 * velocity.abs().max().item(), rtol=0)
    assert_close(low_features.float(), features, atol=0.05 * features.abs().max().item(), rtol=0)


def test_low_precision_stays_close():
    """Oracle: float32, within bfloat16's 2^-8."""
    network = busy_network(small_config())
    z, times, label = inputs(network.config)
    out = network(z, times, label)
    low = network.bfloat16()(z.bfloat16(), times, label)
    assert low.dtype == torch.bfloat16
    assert_close(low.float(), out, atol=0.1 * out.abs().max().item(), rtol=0)


def test_the_configuration_survives_json():
    config = LightningDiTConfig.of("XL/2", PAPER, tap=2, grid=(32, 16))
    assert LightningDiTConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (lambda: LightningDiTConfig.of("XXL/1", PAPER), ("XXL/1", "XL/1")),
        (lambda: LightningDiTConfig.of("XL/4", PAPER), ("XL/4", "XL/2")),
        (lambda: small_config(width=50), ("width", 50, "heads")),
        (lambda: small_config(tap=3), ("tap", 3, 2)),
        (lambda: small_config(norm="batch"), ("norm", "batch", "rms", "layer")),
        (lambda: small_config(patch=3), ("4x4", 3)),
        (lambda: small_config(depth=0), ("depth", 0)),
        (lambda: LightningDiTConfig.from_dict({"depht": 1}), ("depht", "depth")),
        (lambda: LightningDiTConfig.from_dict({"layout": {"a": 1}, "depth": 1, "width": 8}), "heads"),
        (lambda: busy_network(small_config()).with_features(*inputs(small_config())), "tap=2"),
        (
            lambda: LightningDiT(small_config())(torch.zeros(1, 12, 4, 4), torch.zeros(1, 3), torch.zeros(1)),
            ("times", "(1, 3)"),
        ),
        (lambda: small_config(rotary="no"), ("rotary", "'no'")),
        (lambda: small_config(tap=1.5), ("tap", 1.5)),
        (lambda: small_config(grid=(True, True)), "TruexTrue"),
        (
            lambda: LightningDiT(small_config())(*inputs(small_config())[:2], torch.tensor([0, 1, 6])),
            ("labels", "0..5", 6),
        ),
        (lambda: LightningDiT(small_config())(*inputs(small_config())[:2], torch.zeros(3)), ("labels", "float32")),
        (
            lambda: LightningDiT(small_config())(torch.zeros(1, 9, 4, 4), torch.zeros(1, 2), torch.zeros(1)),
            "(1, 9, 4, 4)",
        ),
    ],
)
def test_bad_settings_are_refused_with_a_sentence(make, facts):
    with pytest.raises(lwd.InputError, match=says(facts)):
        make()
