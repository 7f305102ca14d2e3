"""The paper's numbers and the costs of plans."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import lwd
from lwd.models.lightningdit import LightningDiT, LightningDiTConfig
from lwd.models.operations import forward_operations, parameters
from lwd.reproduce.cost import Cost, training_cost
from lwd.reproduce.numbers import load_paper
from lwd.reproduce.scales import IMAGENET256, SCALES
from lwd.training.config import load_config

PAPER = load_paper()


@pytest.mark.parametrize(
    ("model", "steps", "fid"),
    [
        ("DiT-XL/2", 7_000_000, 9.62),
        ("LightningDiT", 400_000, 9.29),
        ("LightningDiT + REPA", 2_000_000, 5.87),
        ("SFD", 70_000, 8.79),
        ("SFD", 4_000_000, 2.54),
        ("Ours", 400_000, 2.87),
        ("Ours", 800_000, 2.53),
        ("Ours", 3_000_000, 2.14),
        ("Ours", 4_000_000, None),
    ],
)
def test_unguided_numbers(model, steps, fid):
    """Oracle: typed by hand from the paper's table."""
    assert PAPER.unguided_fid(model, steps) == fid


@pytest.mark.parametrize(
    ("method", "epochs", "values"),
    [
        ("DiT-XL", 1400, ("675M", 2.27, 4.60, 278.2, 0.83, 0.57)),
        ("DDT", 400, ("675M", 1.26, None, 310.6, 0.79, 0.65)),
        ("RAE-DiTDH", 800, ("839M", 1.13, None, 262.6, 0.78, 0.67)),
        ("SFD-XXL", 80, ("1.0B", 1.19, 4.00, 240.4, 0.78, 0.65)),
        ("Ours-XL", 200, ("675M", 1.05, 3.79, 273.0, 0.78, 0.72)),
        ("Ours-XL", 600, ("675M", 1.02, 3.78, 270.8, 0.78, 0.66)),
    ],
)
def test_guided_numbers(method, epochs, values):
    """Oracle: typed by hand from the paper's table."""
    row = PAPER.guided_row(method, epochs)
    assert (row.parameters, row.fid, row.sfid, row.inception_score, row.precision, row.recall) == values


def test_all_rows_are_there():
    """Oracle: the rows of the paper's tables, counted; the lambdas of its text."""
    assert (len(PAPER.unguided), len(PAPER.guided), len(PAPER.robustness)) == (23, 21, 3)
    assert [(row.sfd, row.ours) for row in PAPER.robustness] == [(3.53, 2.87), (4.06, 2.97), (4.89, 4.54)]
    assert {one.kinetic for one in PAPER.sweep if one.word == "collapsed"} == {0.01, 0.02, 0.03}
    assert IMAGENET256.lambdas == tuple(one.kinetic for one in PAPER.sweep)


def test_every_row_of_the_papers_own_models_is_planned():
    """Oracle: the paper's tables; DiT and other people's systems are only quoted."""
    planned = {(model.paper, steps) for model in IMAGENET256.models for steps in model.steps}
    assert {(row.model, row.steps) for row in PAPER.unguided if row.model != "DiT-XL/2"} <= planned
    guided = {(row.paper, row.epochs) for row in IMAGENET256.guided}
    assert {(row.method, row.epochs) for row in PAPER.guided if row.method[:4] in ("SFD-", "Ours")} <= guided
    assert {plan.paper for plan in IMAGENET256.latents} == {(row.features, row.latent) for row in PAPER.robustness}


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
def test_plans_agree_with_their_presets(scale):
    """Oracle: the presets: budgets, schedules and guides."""
    for row in scale.guided:
        model = scale.model(row.model)
        config = load_config(model.preset + (f"@{row.budget}" if row.budget else ""))
        assert row.steps in model.steps
        assert not row.budget or config.run.steps == row.steps
        assert load_config(config.sampling.guide).run.steps
    for model in scale.models:
        assert load_config(model.preset).schedule in ("", model.schedule)
        assert list(model.steps) == sorted(model.steps)
    assert scale.robustness_steps in scale.model(scale.main).steps


@pytest.mark.parametrize("changes", [{}, {"tap": 1}, {"patch": 2}, {"mlp": "gelu"}, {"learned_sigma": True}], ids=str)
def test_operations_are_those_torch_counts(changes):
    """Oracle: torch's counter of matrix products on a forward pass."""
    layout = lwd.Layout.of(texture=4, semantic=2)
    config = LightningDiTConfig(
        layout, 2, 32, 2, classes=3, grid=(4, 4), **{"projector_width": 24, "features": 20} | changes
    )
    network = LightningDiT(config)
    inputs = torch.randn(1, 6, 4, 4), torch.rand(1, 2), torch.zeros(1, dtype=torch.long)
    # The counter does not know the CPU's fused attention.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        network(*inputs, features=bool(config.tap))
    assert forward_operations(config) == counter.get_total_flops()


def test_the_cost_of_the_main_model():
    """Oracle: docs/many-gpus.md: 241 GFLOP an image, 682,470,512 parameters, 185 TFLOP a step."""
    config = LightningDiTConfig.of("XL/1", lwd.Layout.of(texture=32, semantic=16), tap=2)
    assert forward_operations(config) == pytest.approx(241.5e9, rel=0.003)
    assert parameters(config) == 682_470_512
    cost = training_cost(config, 400_000, 256, checkpoints=3, kept=1)
    assert cost.training == pytest.approx(400_000 * 185e12, rel=0.005)
    assert cost.gpu_hours == pytest.approx(400_000 * 185e12 / (0.4 * 989e12) / 3600, rel=0.005)
    assert (cost.memory, cost.disk) == (20 * 682_470_512, (3 * 16 + 4) * 682_470_512)
    assert cost + Cost(memory=1.0, disk=2.0) == Cost(cost.training, 0.0, cost.disk + 2.0, cost.memory)
