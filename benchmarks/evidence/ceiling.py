"""What would texture be worth if the semantic latent were known? The protocol is ceiling.yaml.

    python benchmarks/evidence/ceiling.py LATENTS --out DIR [--case labels] [--seed 0] [--fid]

Draws texture beside the semantic latents of real images, clean or held at a noise level, and compares it with samples
under offset 0.3. DIR holds networks and scores (and may be that of search.py); what is there is kept, and a killed run
continues. `--case trained`: the networks that only draw texture; with --fid, these are scored by FID as well. Results
go to results/ceiling.json. Needs `lwd data fetch` of efficientnet-lite0 and, for --fid, inception. About 10 minutes for
each network on one core; with --fid 20 more, and 40 for the reference.
"""

import argparse
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from search import PROTOCOL as SEARCH
from search import network_of
from study import RESULTS, Judge, slug
from torch import Tensor

from lwd.compute.devices import threads
from lwd.evaluation.evaluate import evaluate
from lwd.evaluation.settings import EvaluateSettings
from lwd.groups import Layout
from lwd.io.files import read_json, write_json
from lwd.latents.reader import LatentReader, fingerprint_of
from lwd.path import Velocity, interpolate
from lwd.sampler import seeded_noise
from lwd.sampling.generator import Generator, open_generator
from lwd.sampling.samples import generate
from lwd.sampling.settings import SampleSettings
from lwd.schedule.fixed import PiecewiseLinear
from lwd.schedule.io import save_schedule
from lwd.solver import solve
from lwd.training.config import load_config
from lwd.training.devices import Devices
from lwd.training.task import RunOptions
from lwd.training.train import train

PROTOCOL = yaml.safe_load((Path(__file__).parent / "ceiling.yaml").read_text())
FILE = RESULTS / "ceiling.json"
TEXTURE, SEMANTIC = "texture", "semantic"
KNOTS = 65
Scores = dict[str, float]


def beside(
    velocity: Velocity, layout: Layout, real: Tensor, level: float, noise: Tensor, label: Tensor, solver: dict[str, Any]
) -> Tensor:
    """Draw texture beside a semantic latent that does not move.

    real: whole clean states (b, c, h, w), of which the semantic latents are seen, at time `level` of their clock (1:
    clean). noise: the whole state at tau = 0. Returns the whole state, with the clean semantic latents.
    """
    texture, semantic = (layout.slice(name) for name in (TEXTURE, SEMANTIC))
    held = torch.full((len(noise), 2), level, dtype=torch.float64)
    seen = interpolate(real.to(noise.dtype), noise, held, layout)[0]

    def field(x: Tensor, tau: Tensor) -> Tensor:
        z, times = seen.clone(), held.clone()
        z[:, texture] = x
        times[:, layout.names.index(TEXTURE)] = tau
        return velocity(z, times, label)[:, texture].to(x.dtype)

    out = noise.clone()
    out[:, semantic] = real[:, semantic]
    out[:, texture] = solve(field, noise[:, texture], **solver).z
    return out


def shown_images(labels: Tensor, count: int, classes: int = 10) -> Tensor:
    """Numbers of `count` images without repeats, drawn at random, whose classes cycle like those of samples."""
    rng = np.random.default_rng(0)
    columns = [rng.permutation(np.flatnonzero(labels.numpy() == c))[: -(-count // classes)] for c in range(classes)]
    return torch.from_numpy(np.stack(columns, 1).reshape(-1)[:count].copy())


def texture_only(power: float) -> PiecewiseLinear:
    """The schedule that trains texture beside a clean semantic latent, at times tau^power, for 99% of the steps."""
    clock = np.linspace(0, 1, KNOTS)
    tau = [0.0, *(0.01 + 0.99 * clock)]
    return PiecewiseLinear(tau, {TEXTURE: [0.0, *clock**power], SEMANTIC: [0.0, *np.ones(KNOTS)]})


def trained_for_it(power: float, seed: int, latents: Path, out: Path) -> Path:
    """A network that is trained to draw texture beside clean semantic latents, and nothing else."""
    p = PROTOCOL["trained"]
    folder = out / f"texture-only-{power}-seed{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    save_schedule(texture_only(power), folder / "schedule.json")
    config = load_config(p["preset"], [*p["settings"], f"run.seed={seed}"])
    config = config.changed(schedule=str(folder / "schedule.json"))
    if not train(config, latents, folder / "train", RunOptions(Devices(cpu=True))).finished:
        raise SystemExit("interrupted")
    return folder / "train"


def draw_beside(generator: Generator, real: Tensor, level: float, out: Path) -> None:
    """Write samples whose texture was drawn beside real semantic latents, with the noises and labels of the others."""
    s, layout, parts = generator.settings, generator.pipe.checkpoint.layout, []
    solver = {"method": s.solver, "steps": s.steps}
    out.mkdir(parents=True, exist_ok=True)
    with torch.no_grad(), threads(1):
        for low in range(0, s.count, s.batch):
            rows = range(low, min(low + s.batch, s.count))
            noise = seeded_noise([s.seed + i for i in rows], real.shape[1:])
            label, shown = torch.tensor([generator.labels()[i] for i in rows]), real[rows.start : rows.stop]
            z = beside(generator.velocity(), layout, shown, level, noise, label, solver)
            parts.append(generator.pipe.decode(z))
    np.savez(out / "samples.npz", arr_0=np.concatenate(parts))


@dataclass(frozen=True)
class Bench:
    """What all networks are scored with. Scores are kept in DIR."""

    latents: Path
    out: Path

    @cached_property
    def judges(self) -> dict[str, Judge]:
        return {name: Judge(about["judge"], about["reference"], "", True) for name, about in PROTOCOL["judges"].items()}

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self.latents)

    def real(self, count: int) -> Tensor:
        """Latents of the images whose semantic latents are shown."""
        reader = LatentReader(self.latents)
        index = shown_images(reader.labels, count).numpy()
        return reader.gather(index, np.zeros(len(index), bool)).latents

    def kept(self, name: str, make: Callable[[Path], Scores]) -> Scores:
        """The scores of `make`, which draws samples into a folder; from DIR if they are there."""
        file, folder = self.out / "ceiling" / f"{name}.json", self.out / "ceiling" / name
        if not file.is_file():
            write_json(file, make(folder))
            shutil.rmtree(folder)
        return dict(read_json(file))

    def judged(self, folder: Path) -> Scores:
        return {name: judge(folder, False)["frechet"]["value"] for name, judge in self.judges.items()}

    def beside(self, model: Path, samples: dict[str, Any], level: float, folder: Path) -> None:
        """Draw beside real semantic latents, which no schedule moves."""
        settings = SampleSettings(kinds=("npz",), threads=1, batch=100, **samples)
        generator = open_generator(model, settings, None, "fashion", "cpu")
        draw_beside(generator, self.real(settings.count), level, folder)


def any_schedule(bench: Bench, case: str, seed: int) -> list[dict[str, Any]]:
    """All arms in one network at independent times."""
    model = network_of(SEARCH, case, seed, bench.latents, bench.out) / "probe"
    rows = []
    for name, about in PROTOCOL["arms"].items():

        def make(folder: Path, about: dict[str, Any] = about) -> Scores:
            samples = PROTOCOL["samples"]
            if "schedule" in about:
                settings = SampleSettings(kinds=("npz",), threads=1, batch=100, **samples)
                generate(open_generator(model, settings, None, "fashion", "cpu", about["schedule"]), folder)
            else:
                bench.beside(model, samples, about["level"], folder)
            return bench.judged(folder)

        rows.append({"arm": name, "scores": bench.kept(f"{slug(case)}-seed{seed}-{slug(name)}", make)})
    return rows


def texture_networks(bench: Bench, seed: int, fid: bool) -> list[dict[str, Any]]:
    """Networks that only draw texture, with the better of two tempos (chosen on seed 0)."""
    p = PROTOCOL["trained"]

    def scored(power: float, seed: int, samples: str) -> Scores:
        model = trained_for_it(power, seed, bench.latents, bench.out)

        def make(folder: Path) -> Scores:
            bench.beside(model, p[samples], 1.0, folder)
            if samples != "fid":
                return bench.judged(folder)
            scoring = EvaluateSettings(encoder="efficientnet-lite0", threads=1)
            scores, _ = evaluate(folder / "samples.npz", "fashion/train", scoring, folder / "evaluation.json", "cpu")
            return {name: metric.value for name, metric in scores.metrics.items()}

        return bench.kept(f"texture-only-{power}-seed{seed}-{samples}", make)

    choice = {power: scored(power, 0, "choice")["judge"] for power in p["powers"]}
    power = min(choice, key=lambda one: choice[one])
    found = [{"arm": f"texture only, power {power}", "scores": scored(power, seed, "judged")}]
    if seed == 0:
        found[0]["choice"] = {str(key): value for key, value in choice.items()}
    if fid:
        found.append({"arm": f"texture only, power {power}, fid", "scores": scored(power, seed, "fid")})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("latents", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--case", choices=[*PROTOCOL["cases"], "trained"], help="only this setting")
    parser.add_argument("--seed", type=int, choices=PROTOCOL["seeds"], help="only this seed")
    parser.add_argument("--fid", action="store_true", help="FID of the networks that only draw texture")
    a = parser.parse_args()
    bench = Bench(a.latents, a.out)
    for seed in PROTOCOL["seeds"] if a.seed is None else [a.seed]:
        for case in [a.case] if a.case else [*PROTOCOL["cases"], "trained"]:
            found = texture_networks(bench, seed, a.fid) if case == "trained" else any_schedule(bench, case, seed)
            new = [{"case": case, "seed": seed} | row for row in found]
            print(json.dumps(new), flush=True)
            rows = json.loads(FILE.read_text())["rows"] if FILE.is_file() else []  # another process may have added some
            known = {(row["case"], row["seed"], row["arm"]): row for row in [*rows, *new]}
            write_json(FILE, {"study": "ceiling", "latents": bench.fingerprint, "rows": list(known.values())})


if __name__ == "__main__":
    main()
