"""Every row of the paper's two hyperparameter tables, in its order and words, against lwd-xl and its parts."""

from collections import Counter
from pathlib import Path

import pytest
import torch

import lwd
from lwd.errors import InputError
from lwd.models.lightningdit import LightningDiT, LightningDiTConfig, parameter_count
from lwd.representations.formats import SemVAEConfig
from lwd.representations.semvae import SemVAE
from lwd.representations.settings import SemVAESettings
from lwd.reproduce.scales import IMAGENET256
from lwd.sampling.generator import balanced
from lwd.sampling.settings import SampleSettings
from lwd.training.config import load_config, weak_partner
from lwd.training.rho import RhoProbe
from lwd.training.trainer import adamw

LAYOUT = lwd.Layout.of(texture=32, semantic=16)
PAPER = load_config("lwd-xl")
WEAK = load_config(weak_partner("lwd-xl"))
NETWORK = LightningDiTConfig.of(PAPER.network.size, LAYOUT, tap=PAPER.network.tap)
IDENTITY = lwd.Polynomial(degree=PAPER.probe.degree)
TAU = torch.linspace(0, 1, 101, dtype=torch.float64)
SOURCE = Path(__file__).parents[3] / "shared" / "paper"
DINO_WIDTH = 768  # features of DINOv2-B


def millions(build):
    """Parameters of a network on the meta device, in millions, rounded down."""
    with torch.device("meta"):
        return parameter_count(build()) // 10**6


def semvae():
    """What `lwd fit semantic --kind semvae` builds for DINOv2-B."""
    s = SemVAESettings()
    return SemVAE(
        SemVAEConfig(features=DINO_WIDTH, channels=s.channels, width=s.width, depth=s.depth, heads=s.heads), "sefi"
    )


def xl():
    return LightningDiT(LightningDiTConfig.of("XL/1", LAYOUT))


OPTIMIZER = adamw(PAPER.optimizer, [torch.nn.Parameter(torch.zeros(1))])
RHO = RhoProbe(lwd.Polynomial(degree=PAPER.probe.degree), PAPER.probe.rho_lr, PAPER.probe.burn_in).optimizer
ADAMW = OPTIMIZER.defaults
SHOWN = balanced(range(IMAGENET256.classes), IMAGENET256.draw.count)

SCHEDULE_LEARNING = {  # Table: hyperparameters introduced in this work; row and value as printed: (ours, theirs)
    "Polynomial degree M: 4": (PAPER.probe.degree, 4),
    "rho initialization: identity (t_tex(tau; rho) = tau)": (
        (PAPER.probe.start, bool((IDENTITY.times(TAU)[:, 0] - TAU).abs().max() < 2e-3)),
        (0.0, True),
    ),
    "Group weight w_tex: 1": (PAPER.objective.weights["texture"], 1),
    "Group weight w_sem: 2": (PAPER.objective.weights["semantic"], 2),
    "Stop-grad on t_tex'(tau; rho) factor: yes": (PAPER.objective.weight_gradient, "stop"),
    "Probe steps S_probe: 10K": (PAPER.probe.steps, 10_000),
    "Burn-in steps S_burn: 5K": (PAPER.probe.burn_in, 5_000),
    "Kinetic regularizer lambda: 4e-2": ((PAPER.probe.kinetic, PAPER.objective.kinetic_average), (4e-2, "reduction")),
    "Probe optimizer: AdamW": ((type(OPTIMIZER), type(RHO)), (torch.optim.AdamW, torch.optim.AdamW)),
    "Probe learning rate: 1e-4 (denoiser), 1e-2 (rho)": ((ADAMW["lr"], RHO.defaults["lr"]), (1e-4, 1e-2)),
    "Probe batch size: 256": (PAPER.run.batch, 256),
}
INHERITED = {  # Table: hyperparameters inherited from SFD and LightningDiT
    "Backbone: LightningDiT-XL/1": (PAPER.network.size, "XL/1"),
    "Parameters: 675M": (millions(xl), 674),  # 674.3M without the projector of REPA
    "DiT blocks: 28": (NETWORK.depth, 28),
    "Hidden dim: 1152": (NETWORK.width, 1152),
    "Attention heads: 16": (NETWORK.heads, 16),
    "MLP ratio: 4.0": (NETWORK.mlp_width, int(2 / 3 * 4.0 * 1152)),  # two thirds: SwiGLU has three matrices
    "Patch size: 1": (NETWORK.patch, 1),
    "Texture latent shape: 32x16x16": ((LAYOUT.groups[0].channels, *NETWORK.grid), (32, 16, 16)),
    "Semantic latent shape: 16x16x16": ((SemVAESettings().channels, *NETWORK.grid), (16, 16, 16)),
    "SemVAE parameters: 29M": (millions(semvae), 29),
    "Batch size: 256": (PAPER.run.batch, 256),
    "Optimizer: AdamW": (type(OPTIMIZER), torch.optim.AdamW),
    "Learning rate: 1e-4": (ADAMW["lr"], 1e-4),
    "beta_1: 0.9": (ADAMW["betas"][0], 0.9),
    "beta_2: 0.999": (ADAMW["betas"][1], 0.999),
    "Weight decay: 0": (ADAMW["weight_decay"], 0),
    "LR warmup: none": (PAPER.optimizer.warmup, 0),
    "LR schedule: constant": (PAPER.optimizer.decay, "constant"),
    "Gradient clipping: none": (PAPER.optimizer.clip, 0),
    "EMA decay: 0.9999": ((PAPER.optimizer.ema, PAPER.optimizer.ema_warmup), (0.9999, False)),
    "Precision: bf16 mixed": (PAPER.run.precision, "auto"),  # bf16 autocast on a GPU
    "REPA alignment from / to: DiT block 2 / DINOv2 final layer": (
        (PAPER.network.tap, PAPER.alignment.encoder),  # the final layer: tests/representations/test_encoders.py
        (2, "facebook/dinov2-with-registers-base@224"),
    ),
    "REPA loss weight: 1.0": (PAPER.objective.align, 1.0),
    "Cosine-direction loss weight: 1.0": (PAPER.objective.cosine, 1.0),
    "ODE solver: dopri5": ((PAPER.sampling.solver, IMAGENET256.draw.solver), ("dopri5", "dopri5")),
    "NFE: 250": (PAPER.sampling.steps, None),  # dopri5 chooses its own: test_dopri5_takes_no_number_of_evaluations
    "atol: 1e-6": ((PAPER.sampling.atol, IMAGENET256.draw.atol), (1e-6, 1e-6)),
    "rtol: 1e-3": ((PAPER.sampling.rtol, IMAGENET256.draw.rtol), (1e-3, 1e-3)),
    "AutoGuidance scale w: 1.5": (PAPER.sampling.scale, 1.5),
    "Weak model: LightningDiT-B": (WEAK.network.size, "B/1"),
    "Weak model training steps: 70K": (WEAK.run.steps, 70_000),
    "Sample count: 50K, class-balanced": (
        (PAPER.sampling.count, IMAGENET256.draw.count, set(Counter(SHOWN).values())),
        (50_000, 50_000, {50}),
    ),
    "Reference batch: VIRTUAL_imagenet256_labeled.npz": (
        IMAGENET256.draw.paper_reference,
        "VIRTUAL_imagenet256_labeled.npz",
    ),
    "Metrics: FID, sFID, IS, Precision, Recall": (
        IMAGENET256.draw.metrics,
        ("fid", "sfid", "inception_score", "precision", "recall"),
    ),
}
IN_THE_TEXT = {  # not rows: the caption of the guided table and Section 4
    "w = 1.3 at 600 epochs": (load_config("lwd-xl@3m").sampling.scale, 1.3),
    "global mean-flat reduction": (PAPER.objective.reduction, "channels"),
    "tau uniform": (PAPER.run.tau, "uniform"),
}
TABLES = SCHEDULE_LEARNING | INHERITED | IN_THE_TEXT


@pytest.mark.parametrize("row", TABLES)
def test_every_row(row):
    """Oracle: the paper's two tables."""
    ours, papers = TABLES[row]
    assert ours == papers


def test_no_row_is_missing():
    """Oracle: rows counted in the paper's source, again where it is at hand."""
    counts = {"hparams-ours": len(SCHEDULE_LEARNING), "hparams-sfd": len(INHERITED)}
    assert counts == {"hparams-ours": 11, "hparams-sfd": 34}
    for text in (path.read_text() for path in SOURCE.glob("*.txt")):
        for label, rows in counts.items():
            table = text.partition(f"\\label{{tab:{label}}}")[2].partition(r"\end{tabular}")[0]
            assert sum("&" in line for line in table.splitlines()) == rows + 1  # and the head


def test_dopri5_takes_no_number_of_evaluations():
    """Oracle: the paper's NFE of 250 is SFD's number of stored points; as a setting of dopri5 it is refused."""
    with pytest.raises(InputError, match="steps"):
        SampleSettings(solver=PAPER.sampling.solver, steps=250)


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
