"""Error against evaluations of every solver and placement, compared with SFD's call of torchdiffeq's dopri5.

    python benchmarks/sampler.py [--model DIR] [--guide DIR] [--skip-mixture] [--sefi] [--json]

On the mixture oracle under three schedules and, with --model, on a trained checkpoint (see `lwd train`). SFD's call is
odeint(field, noise, linspace(0, 1, 250), method="dopri5", atol=1e-6, rtol=1e-3): one step size for the batch, 250
stored states, no knowledge of kinks.

The setting is fixed before it is measured. On 32 samples (seeds from 0), `lwd bench sampler`'s trials are run and the
cheapest one is recommended whose error is at most MARGIN of torchdiffeq's. On 32 other samples (seeds from 10,000) both
are then measured: `ratio` is our number of evaluations over torchdiffeq's there. Memory is the growth of the peak while
a process solves for many samples.

--sefi compares SeFi-Image's own sampler with ours instead, on a network of its architecture with small random weights
(tests/fixtures/sefi_tiny), guided as its models are.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torchdiffeq import odeint

import lwd
from lwd.models.sefi import SeFiConfig, SeFiNetwork
from lwd.sampling.benchmark import Trial, error, front, recommend, sampler_errors
from lwd.sampling.flow import Flow
from lwd.sampling.generator import open_generator
from lwd.sampling.placement import place
from lwd.sampling.settings import SampleSettings

MORE = (4, 6, 8, 12, 16, 18, 20, 22, 24, 32, 48, 64)
MARGIN = 0.8
"""Share of torchdiffeq's error for which a setting is recommended, so that other samples do not exceed it."""
OTHERS = 10_000
"""First seed of the samples on which the recommended setting is measured."""


def mixture(spread: float = 0.3) -> lwd.GaussianMixture:
    """Four correlated modes in one texture and one semantic channel."""
    means = torch.tensor([[-1.5, -1.0], [-0.5, 1.0], [0.5, -1.0], [1.5, 1.0]])
    covariance = spread**2 * torch.tensor([[1.0, 0.6], [0.6, 1.0]])
    return lwd.GaussianMixture(lwd.Layout.of(texture=1, semantic=1), means, covariance.expand(4, 2, 2))


def flows(model: str | None, skip: bool, guide: str | None = None) -> dict[str, Flow]:
    data = mixture()
    schedules = {
        "synchronous": lwd.Synchronous(),
        "offset 0.3": lwd.Offset(0.3),
        "polynomial": lwd.Polynomial([[0.0, -1.0, 1.0, 0.0, -1.0]]).freeze(),
    }
    found = {
        f"mixture, {name}": Flow(data, schedule, data.layout, data.size, (0,), 64)
        for name, schedule in schedules.items()
        if not skip
    }
    if model:
        generator = open_generator(model, SampleSettings(count=32))
        found[f"{Path(model).name} ({type(generator.pipe.checkpoint.schedule).__name__})"] = generator.flow()
        if guide:
            generator = open_generator(model, SampleSettings(count=32, scale=1.5), guide)
            found[f"{Path(model).name}, guided by {Path(guide).name}, scale 1.5"] = generator.flow()
    return found


def as_sfd(flow: Flow, rtol: float = 1e-3) -> tuple[Tensor, int]:
    """Call torchdiffeq like SFD."""
    label = torch.tensor([flow.labels[i % len(flow.labels)] for i in range(flow.count)])
    seeds = range(flow.first, flow.first + flow.count)
    noise = lwd.seeded_noise(seeds, (flow.layout.channels, *flow.size))
    inner = lwd.flow_field(flow.velocity, flow.schedule, flow.layout, label)
    calls = 0

    def field(tau: Tensor, z: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return inner(z, tau.double().clamp(0, 1).expand(len(z)))

    with torch.no_grad():
        states = odeint(field, noise, torch.linspace(0, 1, 250), method="dopri5", atol=1e-6, rtol=rtol)
    return states[-1], calls


@dataclass(frozen=True)
class Comparison:
    """Our trials and torchdiffeq on the first samples; the recommended setting and torchdiffeq on others."""

    trials: list[Trial]
    theirs: Trial
    chosen: Trial
    ours_there: Trial
    theirs_there: Trial

    @property
    def ratio(self) -> float:
        return self.ours_there.nfe / self.theirs_there.nfe


def compare(flow: Flow) -> Comparison:
    """Recommend a setting on the samples of a flow, and measure it on others."""
    theirs, others = torchdiffeq(flow), replace(flow, first=OTHERS)
    trials = sampler_errors(flow, MORE)
    chosen = recommend(trials, MARGIN * theirs.error)
    options = {"rtol": chosen.rtol, "adaptive": "sample"} if chosen.grid is None else {"grid": chosen.grid}
    solution = others.solve(method=chosen.solver, **options)
    cost = float(solution.nfe_per_sample.double().mean())
    there = replace(chosen, nfe=cost, error=error(solution.z, others.truth()))
    return Comparison(trials, theirs, chosen, there, torchdiffeq(others))


def torchdiffeq(flow: Flow) -> Trial:
    """SFD's call as a trial."""
    z, calls = as_sfd(flow)
    return Trial("torchdiffeq dopri5", "", None, 1e-3, calls, error(z, flow.truth()))


def memory(who: str, count: int = 4096) -> float:
    """Measure the growth of the peak in MiB while solving for `count` states of 24 x 16, in a separate process."""
    layout = lwd.Layout.of(texture=16, semantic=8)
    data = lwd.Gaussian(layout, 0.5 * torch.eye(24), size=(1, 1))
    flow = Flow(_PerPosition(data), lwd.Offset(0.3), layout, (4, 4), (0,), count)
    as_sfd(replace(flow, count=8)) if who == "theirs" else replace(flow, count=8).solve()
    before = peak()
    as_sfd(flow) if who == "theirs" else flow.solve()
    return peak() - before


def peak() -> float:
    """Peak resident memory in MiB; not from getrusage, which includes the peak of the parent process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


class _PerPosition:
    """The exact velocity of isotropic Gaussian data, cheap at any size: v = (s t - (1 - t)) / (s t^2 + (1 - t)^2) z."""

    def __init__(self, data: lwd.Gaussian) -> None:
        self.layout = data.layout

    def __call__(self, z: Tensor, times: Tensor, label: Tensor) -> Tensor:
        del label
        t = self.layout.expand(times, z.ndim).to(z.dtype)
        return (0.5 * t - (1 - t)) / (0.5 * t**2 + (1 - t) ** 2) * z


def table(trials: list[Trial], theirs: Trial) -> str:
    """Format errors by solver and placement (rows) over evaluations (columns), with torchdiffeq's."""
    costs = sorted({int(t.nfe) for t in trials if t.steps})
    lines = ["| solver, placement |" + "".join(f" {n} |" for n in costs), "| --- |" + " ---: |" * len(costs)]
    for key in dict.fromkeys((t.solver, t.placement) for t in trials if t.steps):
        found = {int(t.nfe): t.error for t in trials if (t.solver, t.placement) == key}
        lines.append(f"| {', '.join(key)} |" + "".join(f" {found[n]:.1e} |" if n in found else " |" for n in costs))
    adaptive = ", ".join(f"{t.nfe:.0f}: {t.error:.1e}" for t in trials if not t.steps)
    best = ", ".join(f"{t.nfe:.0f}: {t.error:.1e} ({t.options})" for t in front(trials))
    lines += ["", f"our dopri5 (evaluations: error): {adaptive}", "", f"best at each cost: {best}", ""]
    return "\n".join([*lines, f"torchdiffeq as SFD calls it: {theirs.nfe}: {theirs.error:.1e}"])


def sefi_flow() -> Flow:
    """The fixture's network with its guidance, for the fixture's two prompts."""
    root = Path(__file__).parents[1] / "tests" / "fixtures"
    tensors, about = load_file(root / "sefi_tiny.safetensors"), json.loads((root / "sefi_tiny.json").read_text())
    layout = lwd.Layout.of(semantic=about["semantic_channels"], texture=about["texture_channels"])
    network = SeFiNetwork(SeFiConfig(layout, about["backbone"])).eval().requires_grad_(False)
    network.load_state_dict({k.removeprefix("weights."): v for k, v in tensors.items() if k.startswith("weights.")})
    prompts, null = (lwd.Prompts(tensors[key], tensors["text_ids"]) for key in ("prompt_embeds", "negative_embeds"))
    one = null[torch.zeros(1, dtype=torch.int64)]
    guided = lwd.ClassifierFree(network, one, about["guidance_scale"], layout)
    schedule = lwd.Offset(about["delta_t"], layout.names, "semantic")
    return Flow(guided, schedule, layout, (4, 6), (0, 1), 4, prompts=prompts)


def compare_sefi(budgets: Sequence[int] = (6, 12, 24, 50), shift: float = 0.3) -> float:
    """Print errors of the reference's sampler and of ours; returns our evaluations for its error in 50 steps / 50."""
    flow = sefi_flow()
    truth = flow.truth()

    def error(z: Tensor) -> float:
        return float((z - truth).double().square().mean().sqrt() / truth.double().std())

    labels = flow.condition(flow.count)
    where: dict[str, Any] = {"seeds": range(flow.count), "labels": labels, "size": flow.size}
    rows: dict[str, dict[int, float]] = {}
    for steps in budgets:
        found = lwd.sample_sefi(flow.velocity, flow.schedule, flow.layout, **where, steps=steps, shift=shift)
        rows.setdefault("reference", {})[steps] = error(found.z)
    # A multistep method restarts at each of two kinks with one evaluation more.
    for method, stages, extra in (("euler", 1, 0), ("heun", 2, 0), ("ab2", 1, 3), ("ab3", 1, 3)):
        for placement in (f"shift:{shift}", "tau", "texture"):
            for budget in sorted({*budgets, 8, 16, 32}):
                steps = (budget - extra) // stages
                if steps >= 3:
                    grid = place(placement, steps, method, flow)
                    solution = flow.solve(method=method, grid=grid)
                    rows.setdefault(f"{method}, {placement}", {})[solution.nfe] = error(solution.z)
    costs = sorted({cost for row in rows.values() for cost in row})
    print("| solver, placement |" + "".join(f" {cost} |" for cost in costs))
    print("| --- |" + " ---: |" * len(costs))
    for name, row in rows.items():
        print(f"| {name} |" + "".join(f" {row[cost]:.1e} |" if cost in row else " |" for cost in costs))
    goal = rows.pop("reference")[max(budgets)]
    enough = [cost for row in rows.values() for cost, value in row.items() if value <= goal]
    return min(enough) / max(budgets) if enough else float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a checkpoint or a run of lwd train")
    parser.add_argument("--guide", help="also measure the model with this guide, scale 1.5")
    parser.add_argument("--skip-mixture", action="store_true", help="only the model")
    parser.add_argument("--sefi", action="store_true", help="only SeFi-Image's sampler, on small random weights")
    parser.add_argument("--json", action="store_true", help="print the ratios as one JSON object on the last line")
    parser.add_argument("--memory", choices=("ours", "theirs"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory:
        print(memory(arguments.memory))
        return
    result: dict[str, float] = {}
    if arguments.sefi:
        result["sefi"] = compare_sefi()
        print(f"\nmatched: {result['sefi']:.2f} of the evaluations of its 50 steps (random small weights)")
        if arguments.json:
            print(json.dumps(result))
        return
    for name, flow in flows(arguments.model, arguments.skip_mixture, arguments.guide).items():
        found = compare(flow)
        result[name] = found.ratio
        ours, theirs = found.ours_there, found.theirs_there
        print(f"\n## {name}\n\n{table(found.trials, found.theirs)}\n\nrecommended: {found.chosen.options}")
        print(f"on other samples: {ours.nfe:.4g} evaluations, error {ours.error:.1e}; ", end="")
        print(f"torchdiffeq {theirs.nfe:.0f}, error {theirs.error:.1e}; ratio {found.ratio:.2f}", flush=True)
    peaks = {}
    for who in ("ours", "theirs"):
        command = [sys.executable, __file__, "--memory", who]
        peaks[who] = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    result["memory"] = peaks["ours"] / peaks["theirs"]
    print(
        f"\n## memory\n\n{peaks['ours']:.0f} MiB, torchdiffeq {peaks['theirs']:.0f} MiB: {result['memory']:.2f} of it"
    )
    if arguments.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
