"""A scale of seconds, for tests of plans."""

from lwd.reproduce.run import reproduce
from lwd.reproduce.scales import TINY, GuidedPlan, ModelPlan

NETWORK = ("network.depth=1", "network.width=16", "network.heads=2", "run.batch=8", "run.save_every=2")
COMMON = (*NETWORK, "run.log_every=1", "run.keep_last=1", "run.sample_every=0", "optimizer.decay=constant")
PROBE = ("probe.steps=4", "probe.burn_in=2", "probe.start=0.3", "probe.points=5", "probe.samples=40")
SCHEDULES = {"offset 0.3": "offset:0.3", "learned": ""}
SMALL = TINY.changed(
    models=tuple(
        ModelPlan(name=name, preset="fashion-small", steps=(2, 4), schedule=spec) for name, spec in SCHEDULES.items()
    ),
    guided=(GuidedPlan(model="learned", steps=4),),
    latents=TINY.latents[::2],
    robustness_steps=4,
    train=COMMON,
    weak=(),
    probe=(*COMMON, *PROBE),
    lambdas=(0.016, 0.12),
    draw=TINY.draw.changed(count=20, steps=3, batch=10, rows=1),
    threads=1,
)


def silent(table, out, settings=None, scale=SMALL):
    """Reproduce a table at the small scale, without lines about progress."""
    return reproduce(table, out, settings, lambda _: None, scale)
