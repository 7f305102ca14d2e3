"""The results of the demo, and a summary of them in a few lines."""

import operator
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lwd.demo.plan import NAMES, ONE, UNTRAINED, Plan, names_of, samples_folder
from lwd.demo.study import study_line
from lwd.evaluation.score import Metric, paired
from lwd.io.files import read_json
from lwd.objective import FlowObjective
from lwd.representations.judge import FashionJudge, seen_classes
from lwd.representations.texture import from_uint8
from lwd.schedule.base import Schedule
from lwd.schedule.fixed import Synchronous
from lwd.surfaces.integral import path_terms
from lwd.surfaces.lambda_path import largest_gap
from lwd.surfaces.table import SurfaceTable, smooth


@dataclass(frozen=True)
class Results:
    """The results of all stages; paths are relative to `out`."""

    out: Path
    plan: Plan
    table: SurfaceTable
    path: Mapping[str, Any]
    schedules: Mapping[str, Schedule]
    joint: Schedule
    scores: Mapping[tuple[str, str], Mapping[str, Any]]

    @property
    def learned(self) -> Schedule:
        return self.schedules["learned"]

    @property
    def gap(self) -> float:
        """Distance between the curves of the surfaces and of the joint probe."""
        return largest_gap(self.learned, self.joint)

    @property
    def start_gap(self) -> float:
        """Distance of the initial curve of the joint probe, halfway from one common clock."""
        return largest_gap(self.learned, Synchronous(self.learned.groups)) / 2

    def terms(self, name: str) -> tuple[float, float]:
        """Return flow loss and kinetic energy of a schedule on the surfaces."""
        objective = FlowObjective(self.table.layout, self.path["weights"], self.path["reduction"], kinetic=1.0)
        flow, energy = path_terms(self.schedules[name], smooth(self.table), objective)
        return float(flow.detach()), float(energy.detach())

    def frechet(self, name: str, variant: str) -> Metric:
        """The Fréchet distance of a set of samples."""
        found = self.scores[name, variant]["frechet"]
        return Metric(found["value"], found["error"], tuple(found["without"]))

    def effect(self, name: str, variant: str) -> str:
        """The distance over that of one clock; all sets have the same seeds and classes."""
        ratio = paired(self.frechet(name, variant), self.frechet("synchronous", variant), operator.truediv)
        return f"{ratio.value:.2f} ± {ratio.error:.2f}"

    def seen(self, name: str, variant: str, judge: FashionJudge) -> tuple[float, float]:
        """Return the share of samples that the judge assigns to their class, and its standard error."""
        folder = samples_folder(self.out, name, variant)
        manifest = read_json(folder / "manifest.json")
        with np.load(folder / "samples.npz") as arrays:
            images = from_uint8(torch.from_numpy(arrays["arr_0"]))
        labels = torch.tensor(manifest["labels"])[torch.tensor(manifest["order"])]
        share = float((seen_classes(judge, images) == labels).double().mean())
        return share, (share * (1 - share) / len(labels)) ** 0.5


def findings(found: Results) -> list[str]:
    """Summarise the results, what the schedule is worth first; a difference counts from twice its standard error on."""
    plan, path = found.plan, found.path
    collapse = path["threshold"]
    below = "none of them collapses" if collapse is None else f"below {collapse:.3g} the curve collapses"
    middle = float(found.learned.times(0.5)[0])
    flows = {name: found.terms(name)[0] for name in NAMES}
    plain = {name: found.frechet(name, "plain") for name in NAMES}
    shown = ", ".join(f"{name} {m.value:.2f} ± {m.error:.2f}" for name, m in plain.items())
    guided = found.frechet("learned", "guided")
    return [
        _effect(found),
        study_line(),
        f"One probe of {plan.probe_steps} steps gave the best schedule for {len(path['points'])} lambdas: {below}.",
        f"For {plan.steps} steps it chose lambda {path['chosen']:.3g}: texture is at {middle:.2f} when semantic is at "
        f"0.50. The flow loss is {flows['learned']:.4f}, against {flows['synchronous']:.4f} with one clock and "
        f"{flows['offset 0.3']:.4f} with SFD's offset.",
        f"The paper's joint probe at this lambda started {found.start_gap:.3f} from this curve and is {found.gap:.3f} "
        f"away after {plan.joint_steps} steps.",
        f"Fréchet distance of {plan.count} samples: {shown}. {_verdict(plain)}",
        f"AutoGuidance with scale {plan.guidance:g} (weak model: the probe's network) changes the distance of the "
        f"learned schedule from {plain['learned'].value:.2f} to {guided.value:.2f} ± {guided.error:.2f}.",
    ]


def _effect(found: Results) -> str:
    one, trained = ({name: found.effect(name, variant) for name in names_of(variant)[1:]} for variant in (ONE, "plain"))
    waiting = ", ".join(f"{one[name]} with {spec}" for name, spec in UNTRAINED.items())
    return (
        f"What the schedule is worth: with the learned schedule, one network (the probe's) has {one['learned']} of the "
        f"Fréchet distance that it has on one clock ({one['offset 0.3']} with offset 0.3, {waiting}, where semantic "
        f"goes first and waits for texture); after training for each schedule, {trained['learned']} "
        f"({trained['offset 0.3']}). Same noise and classes; the errors are those of sampling, with one short training "
        "each."
    )


def _verdict(plain: Mapping[str, Metric]) -> str:
    first, second = sorted(plain, key=lambda name: plain[name].value)[:2]
    gap = paired(plain[second], plain[first], operator.sub)
    if gap.value > 2 * gap.error:
        return (
            f"{first.capitalize()} is best by {gap.value / gap.error:.1f} standard errors, with one training run each."
        )
    return "After this short training, the best two do not differ by more than twice the standard error."


def commands(out: Path) -> list[dict[str, str]]:
    """Return three commands to try next, ready to paste after `make demo`."""
    lwd = shlex.quote(str(Path(sys.argv[0]))) if Path(sys.argv[0]).name == "lwd" else "lwd"
    name = shlex.quote(str(out))
    return [
        {
            "command": f"{lwd} sample --model fashion --label bag --guide fashion-weak --scale 1.5 --out bags.png",
            "text": "the shipped model, trained longer",
        },
        {
            "command": f"{lwd} schedule fit {name}/surface --family monotone --kinetic 0.006 --out mine.json",
            "text": "another family, another lambda, in seconds",
        },
        {
            "command": f"{lwd} sample --model {name}/surface --decoder fashion --schedule mine.json --out mine.png",
            "text": "the network of the probe under this schedule: it works under every schedule",
        },
    ]
