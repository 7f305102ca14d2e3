"""`lwd plan`: memory, accumulation, time and disk, without a GPU."""

import importlib.util
from pathlib import Path

import pytest

import lwd
from lwd.errors import InputError
from lwd.models.lightningdit import LightningDiTConfig
from lwd.models.memory import _per_image, activation_bytes
from lwd.models.operations import forward_operations, parameters
from lwd.training.config import load_config
from lwd.training.plan import describe, plan
from lwd.training.plan_settings import PlanSettings
from messages import says

SMALL = LightningDiTConfig(lwd.Layout.of(texture=4, semantic=2), 5, 32, 2, classes=3, grid=(4, 4), tap=2, features=16)
TINY = PlanSettings(gpus=2, memory=80, layout="texture=4,semantic=2", side=4, classes=3, images=1000)
CHANGES = ["network.size=''", "network.depth=5", "network.width=32", "network.heads=2", "run.steps=7200"]


@pytest.mark.parametrize("recompute", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_activations_are_linear_in_the_depth(recompute):
    """Oracle: all five blocks counted, instead of two and three."""
    block = _per_image(SMALL, False) - _per_image(lwd.LightningDiTConfig(**(vars(SMALL) | {"depth": 4})), False)
    expected = _per_image(SMALL, recompute) + (block if recompute else 0)
    assert activation_bytes(SMALL, recompute) == expected > 0


@pytest.mark.slow
@pytest.mark.parametrize(("size", "plain", "again"), [("XL/1", 700, 42), ("1p0B/1", 800, 48), ("1p6B/1", 1086, 62)])
def test_activations_of_the_published_sizes(size, plain, again):
    """Oracle: an independent count, before the rotary embedding was rewritten; the block computed again apart."""
    config = LightningDiTConfig.of(size, lwd.Layout.of(texture=32, semantic=16), tap=2)
    found, stored = activation_bytes(config) / 2**20, activation_bytes(config, True) / 2**20
    assert 0.9 * plain < found < plain
    assert stored - found / config.depth == pytest.approx(again, rel=0.1)


def test_a_plan_by_hand():
    """Oracle: the arithmetic; 7,200 steps at half of 2 x 1 TFLOP/s."""
    config = load_config("lwd-xl", [*CHANGES, "run.batch=64", "run.keep_at=[1,2]", "run.keep_last=3"])
    found = plan(config, TINY.changed(peak=1.0, utilisation=0.5))
    count = parameters(found.network)
    assert found.operations == 3 * 64 * forward_operations(found.network)
    ddp, _, fsdp2, _ = found.ways
    assert ddp.state == 22 * count
    assert 10 * count < fsdp2.state < ddp.state
    assert (ddp.accumulate, ddp.images) == (1, 32)
    assert ddp.hours == pytest.approx(2 * found.operations / 1e12)
    assert found.disk == count * (16 * 4 + 4 * 2)
    assert found.latents == 1000 * (4 * (6 + 768) * 16 + 8)
    assert "recommended" in describe(found)


def test_less_memory_needs_more_parts_then_recomputation_then_nothing_fits():
    """Oracle: each limit, one byte above and below."""
    config = load_config("lwd-xl", [*CHANGES, "run.batch=64"])
    whole = plan(config, TINY).ways[0]
    half = whole.total - whole.activations / 2
    for memory, expected in ((whole.total, 1), (whole.total - 1, 2), (half, 2), (half - 1, 4)):
        assert plan(config, TINY.changed(memory=memory / 1e9)).ways[0].accumulate == expected
    nothing = plan(config, TINY.changed(memory=3.0))
    assert nothing.best is None
    assert "does not fit" in describe(nothing)


def test_a_batch_that_cannot_be_divided():
    with pytest.raises(InputError, match=says("run.batch", 256, 3)):
        plan(load_config("lwd-xl"), PlanSettings(gpus=3))


@pytest.mark.slow
def test_the_page_about_many_gpus_is_fresh():
    """Oracle: its tables, made anew."""
    path = Path(__file__).parents[2] / "tools" / "make_many_gpus.py"
    spec = importlib.util.spec_from_file_location("make_many_gpus", path)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    page = tool.PAGE.read_text()
    assert tool.render(page) == page, "run: python tools/make_many_gpus.py"
