"""Refresh the tables of docs/many-gpus.md from `lwd plan`: `python tools/make_many_gpus.py` (a test checks them).

A table stands between `<!-- plan NAME -->` and `<!-- end -->`; the prose around it is written by hand.
"""

import re
import sys
from functools import cache
from pathlib import Path

from lwd.training.config import load_config
from lwd.training.plan import GB, Plan, plan
from lwd.training.plan_settings import PlanSettings

PAGE = Path(__file__).parents[1] / "docs" / "many-gpus.md"
BLOCK = re.compile(r"(<!-- plan (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
PRESETS = ("lwd-b-weak", "lwd-xl", "lwd-xxl", "lwd-1p6b")
MACHINES = {"8 x H100 80 GB": (8, 80.0, 989.0), "8 x A100 40 GB": (8, 40.0, 312.0)}


def render(text: str) -> str:
    """The page with every table made anew."""
    return BLOCK.sub(lambda m: f"{m[1]}{TABLES[m[2]]()}\n{m[3]}", text)


@cache
def planned(preset: str, machine: str = next(iter(MACHINES))) -> Plan:
    gpus, memory, peak = MACHINES[machine]
    return plan(load_config(preset), PlanSettings(gpus=gpus, memory=memory, peak=peak))


def rows(head: str, lines: list[str]) -> str:
    return "\n".join([head, "|" + " --- |" * (head.count("|") - 1), *lines])


def memory() -> str:
    """Memory that does not depend on the machine."""
    lines = []
    for preset in PRESETS:
        p = planned(preset)
        state = {way.parallel: way.state for way in p.ways}
        images = " and ".join(f"{p.activations[again] / 2**20:.0f}" for again in (False, True))
        sizes = " | ".join(f"{size / GB:.1f} GB" for size in (state["ddp"], state["fsdp2"]))
        lines.append(f"| `{preset}` | {p.parameters:,} | {sizes} | {images} MiB | {p.checkpoint / GB:.1f} GB |")
    head = "| preset | parameters | state, DDP | state, FSDP2 on 8 | activations per image, without and with recompute"
    return rows(head + " | checkpoint |", lines)


def ways() -> str:
    """What fits."""
    lines = []
    for machine in MACHINES:
        for preset in PRESETS:
            cells = []
            for way in planned(preset, machine).ways:
                fits = "no" if way.accumulate is None else f"{way.accumulate} ({way.total / GB:.0f} GB)"
                cells.append(fits)
            lines.append(f"| {machine} | `{preset}` | {' | '.join(cells)} |")
    head = "| machine | preset | DDP | DDP, recompute | FSDP2 | FSDP2, recompute |"
    return rows(head, lines)


def hours() -> str:
    """Time for an assumed utilisation."""
    lines = []
    for preset in PRESETS:
        p, other = (planned(preset, machine) for machine in MACHINES)
        cells = [f"{q.steps_per_second:.1f} | {p.config.run.steps / q.steps_per_second / 3600:.1f}" for q in (p, other)]
        lines.append(f"| `{preset}` | {p.operations / 1e12:.0f} TFLOP | {p.config.run.steps:,} | {' | '.join(cells)} |")
    head = "| preset | a step | steps |" + "".join(f" steps per second, {m} | hours |" for m in MACHINES)
    return rows(head, lines)


TABLES = {"memory": memory, "ways": ways, "hours": hours}

if __name__ == "__main__":
    before = PAGE.read_text()
    PAGE.write_text(render(before))
    print(f"{PAGE}: {'unchanged' if PAGE.read_text() == before else 'refreshed'}", file=sys.stderr)
