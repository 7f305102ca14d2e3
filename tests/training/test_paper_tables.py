"""The rows of the paper's two hyperparameter tables that are settings, against lwd-xl and lwd-b-weak."""

import pytest
import torch

import lwd
from lwd.models.lightningdit import LightningDiT, LightningDiTConfig, parameter_count
from lwd.training.config import load_config, weak_partner

LAYOUT = lwd.Layout.of(texture=32, semantic=16)
PAPER = load_config("lwd-xl")
WEAK = load_config(weak_partner("lwd-xl"))
NETWORK = LightningDiTConfig.of(PAPER.network.size, LAYOUT, tap=PAPER.network.tap)
IDENTITY = lwd.Polynomial(degree=PAPER.probe.degree)
TAU = torch.linspace(0, 1, 101, dtype=torch.float64)


def parameters(config):
    with torch.device("meta"):
        return parameter_count(LightningDiT(config))


SCHEDULE_LEARNING = {  # Table: hyperparameters introduced in this work
    "Polynomial degree M": (PAPER.probe.degree, 4),
    "rho initialization: identity": (PAPER.probe.start, 0.0),
    "rho initialization: t = tau": (bool((IDENTITY.times(TAU)[:, 0] - TAU).abs().max() < 2e-3), True),
    "Group weight w_tex": (PAPER.objective.weights["texture"], 1),
    "Group weight w_sem": (PAPER.objective.weights["semantic"], 2),
    "Stop-grad on the rate factor": (PAPER.objective.weight_gradient, "stop"),
    "Probe steps": (PAPER.probe.steps, 10_000),
    "Burn-in steps": (PAPER.probe.burn_in, 5_000),
    "Kinetic regularizer lambda": (PAPER.probe.kinetic, 4e-2),
    "lambda's scale": (PAPER.objective.kinetic_average, "reduction"),
    "Probe learning rate, denoiser": (PAPER.optimizer.lr, 1e-4),
    "Probe learning rate, rho": (PAPER.probe.rho_lr, 1e-2),
    "Probe batch size": (PAPER.run.batch, 256),
}
INHERITED = {  # Table: hyperparameters inherited from SFD and LightningDiT
    "Backbone": (PAPER.network.size, "XL/1"),
    "Parameters": (abs(parameters(LightningDiTConfig.of("XL/1", LAYOUT)) / 1e6 - 675) < 1, True),
    "DiT blocks": (NETWORK.depth, 28),
    "Hidden dim": (NETWORK.width, 1152),
    "Attention heads": (NETWORK.heads, 16),
    "MLP ratio 4.0, as SwiGLU's 2/3 x 4": (NETWORK.mlp_width, int(2 / 3 * 4.0 * 1152)),
    "Patch size": (NETWORK.patch, 1),
    "Texture latent shape": ((LAYOUT.groups[0].channels, *NETWORK.grid), (32, 16, 16)),
    "Semantic latent shape": ((LAYOUT.groups[1].channels, *NETWORK.grid), (16, 16, 16)),
    "Batch size": (PAPER.run.batch, 256),
    "Learning rate": (PAPER.optimizer.lr, 1e-4),
    "beta_1": (PAPER.optimizer.beta1, 0.9),
    "beta_2": (PAPER.optimizer.beta2, 0.999),
    "Weight decay": (PAPER.optimizer.weight_decay, 0),
    "LR warmup": (PAPER.optimizer.warmup, 0),
    "LR schedule": (PAPER.optimizer.decay, "constant"),
    "Gradient clipping": (PAPER.optimizer.clip, 0),
    "EMA decay": (PAPER.optimizer.ema, 0.9999),
    "Precision (bf16 mixed on a GPU)": (PAPER.run.precision, "auto"),
    "REPA from DiT block": (PAPER.network.tap, 2),
    "REPA loss weight": (PAPER.objective.align, 1.0),
    "Cosine-direction loss weight": (PAPER.objective.cosine, 1.0),
    "Reduction: global mean": (PAPER.objective.reduction, "channels"),
    "tau": (PAPER.run.tau, "uniform"),
    "ODE solver": (PAPER.sampling.solver, "dopri5"),
    "atol": (PAPER.sampling.atol, 1e-6),
    "rtol": (PAPER.sampling.rtol, 1e-3),
    "AutoGuidance scale w": (PAPER.sampling.scale, 1.5),
    "AutoGuidance scale at 600 epochs": (load_config("lwd-xl@3m").sampling.scale, 1.3),
    "Weak model": (WEAK.network.size, "B/1"),
    "Weak model training steps": (WEAK.run.steps, 70_000),
    "Sample count": (PAPER.sampling.count, 50_000),
}


@pytest.mark.parametrize("row", SCHEDULE_LEARNING)
def test_schedule_learning(row):
    """Oracle: the paper's table of what it introduces."""
    ours, papers = SCHEDULE_LEARNING[row]
    assert ours == papers


@pytest.mark.parametrize("row", INHERITED)
def test_inherited_settings(row):
    """Oracle: the paper's table of what it inherits."""
    ours, papers = INHERITED[row]
    assert ours == papers


@pytest.mark.parametrize(
    ("preset", "steps", "fid"),
    [
        ("lwd-xl", "400000", 2.87),
        ("lwd-xl", "3000000", 2.14),
        ("sfd-xl", "400000", 3.53),
        ("sfd-xl", "4000000", 2.54),
        ("lightningdit-xl", "400000", 9.29),
        ("lightningdit-xl-repa", "4000000", 5.84),
        ("lwd-xl-dino-pca", "400000", 2.97),
        ("lwd-xl-clip-pca", "400000", 4.54),
    ],
)
def test_expected_numbers(preset, steps, fid):
    """Oracle: the paper's unguided and robustness tables."""
    assert load_config(preset).expected["unguided FID by steps"][steps] == fid


def test_rows_of_the_unguided_table_survive():
    """Oracle: every row's step is kept for good."""
    for preset in ("lwd-xl", "sfd-xl", "lightningdit-xl"):
        config = load_config(preset)
        rows = {int(steps) for steps in config.expected["unguided FID by steps"]}
        assert rows <= {*config.run.keep_at, config.run.steps}


def test_our_way_differs_where_it_says_so():
    """Oracle: lwd-xl-exact is lwd-xl but for the gradient and the starts."""
    ours = load_config("lwd-xl-exact")
    assert (ours.objective.weight_gradient, ours.probe.starts) == ("exact", (0.0, 0.3, 0.9))
    assert ours.objective.changed(weight_gradient="stop") == PAPER.objective
    assert ours.probe.changed(starts=()) == PAPER.probe
    assert (ours.network, ours.optimizer, ours.run, ours.sampling) == (
        PAPER.network,
        PAPER.optimizer,
        PAPER.run,
        PAPER.sampling,
    )


def test_one_group_needs_no_semantic_latent():
    """Oracle: the baseline of the unguided table, and the two rows of the robustness table."""
    config = load_config("lightningdit-xl")
    assert config.groups == ("texture",)
    assert not config.objective.align
    assert load_config("lwd-xl-clip-pca").probe.kinetic == 0.02
    assert LightningDiTConfig.of(load_config("lwd-1p6b").network.size, LAYOUT).width == 1792
