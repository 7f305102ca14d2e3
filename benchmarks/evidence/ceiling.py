"""What would texture be worth if the semantic latent were known? The protocols are ceiling.yaml and ceiling-cifar.yaml.

    python benchmarks/evidence/ceiling.py LATENTS --out DIR [--study ceiling-cifar] [--case labels] [--seed 0] [--fid]

Draws texture beside the semantic latents of real images, clean or held at a noise level, and compares it with samples
under offset 0.3. DIR holds networks and scores (and may be that of search.py); what is there is kept, and a killed run
continues. `--case trained` (Fashion-MNIST): the networks that only draw texture. With --fid, the arms that the protocol
names, or these networks, are scored by FID as well. Results go to results/STUDY.json. Needs `lwd data fetch` of
efficientnet-lite0 and, for --fid, inception. About 10 minutes for each network on one core (CIFAR-10: 25); with --fid
20 more for each arm, and 40 for the reference.
"""

import argparse
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from search import PROTOCOL as SEARCH
from search import network_of
from study import RESULTS, Judge, curve_of, slug
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

STUDIES = ("ceiling", "ceiling-cifar")
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


def trained_for_it(p: dict[str, Any], power: float, seed: int, latents: Path, out: Path) -> Path:
    """A network that is trained to draw texture beside clean semantic latents, and nothing else."""
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

    protocol: dict[str, Any]
    latents: Path
    out: Path

    @cached_property
    def judges(self) -> dict[str, Judge]:
        return {
            name: Judge(about["judge"], about["reference"], "", True) for name, about in self.protocol["judges"].items()
        }

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self.latents)

    @property
    def decoder(self) -> str:
        return str(self.protocol.get("decoder", "fashion"))

    def network(self, case: str, seed: int) -> Path:
        """A network at independent times: one of the protocol's own, or of the search."""
        protocol = self.protocol if "preset" in self.protocol else SEARCH
        return network_of(protocol, case, seed, self.latents, self.out) / "probe"

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

    def fid(self, folder: Path) -> Scores:
        """FID and all other metrics of Inception, and the Fréchet distance of EfficientNet-Lite."""
        scoring = EvaluateSettings(encoder="efficientnet-lite0", threads=1)
        reference = self.protocol.get("reference", "fashion/train")
        scores, _ = evaluate(folder / "samples.npz", reference, scoring, folder / "evaluation.json", "cpu")
        return {name: metric.value for name, metric in scores.metrics.items()}

    def beside(self, model: Path, samples: dict[str, Any], level: float, folder: Path) -> None:
        """Draw beside real semantic latents, which no schedule moves."""
        settings = SampleSettings(kinds=("npz",), threads=1, batch=100, **samples)
        generator = open_generator(model, settings, None, self.decoder, "cpu")
        draw_beside(generator, self.real(settings.count), level, folder)

    def draw(self, model: Path, samples: dict[str, Any], about: dict[str, Any], folder: Path) -> None:
        """Draw under the schedule of an arm, or beside real semantic latents at its level."""
        if "level" in about:
            self.beside(model, samples, about["level"], folder)
            return
        settings, file = SampleSettings(kinds=("npz",), threads=1, batch=100, **samples), folder / "curve.json"
        folder.mkdir(parents=True, exist_ok=True)
        save_schedule(curve_of(about, (TEXTURE, SEMANTIC)), file)
        generate(open_generator(model, settings, None, self.decoder, "cpu", str(file)), folder)


def any_schedule(bench: Bench, case: str, seed: int, fid: bool) -> list[dict[str, Any]]:
    """All arms in one network at independent times."""
    model, p, rows = bench.network(case, seed), bench.protocol, []
    for name, about in p["arms"].items():

        def make(folder: Path, about: dict[str, Any] = about, samples: str = "samples") -> Scores:
            bench.draw(model, p[samples], about, folder)
            return bench.fid(folder) if samples == "fid" else bench.judged(folder)

        file = f"{slug(case)}-seed{seed}-{slug(name)}"
        rows.append({"arm": name, "scores": bench.kept(file, make)})
        for part in ("accurate", "fid") if fid else ("accurate",):
            if name in p.get(f"{part} arms", ()):
                scores = bench.kept(f"{file}-{part}", partial(make, samples=part))
                rows.append({"arm": f"{name}, {part}", "scores": scores})
    return rows


def texture_networks(bench: Bench, seed: int, fid: bool) -> list[dict[str, Any]]:
    """Networks that only draw texture, with the better of two tempos (chosen on seed 0)."""
    p = bench.protocol["trained"]

    def scored(power: float, seed: int, samples: str) -> Scores:
        model = trained_for_it(p, power, seed, bench.latents, bench.out)

        def make(folder: Path) -> Scores:
            bench.beside(model, p[samples], 1.0, folder)
            return bench.judged(folder) if samples != "fid" else bench.fid(folder)

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
    parser.add_argument("--study", choices=STUDIES, default=STUDIES[0])
    parser.add_argument("--case", help="only this setting")
    parser.add_argument("--seed", type=int, help="only this seed")
    parser.add_argument("--fid", action="store_true", help="also by FID")
    a = parser.parse_args()
    protocol = yaml.safe_load((Path(__file__).parent / f"{a.study}.yaml").read_text())
    bench, file = Bench(protocol, a.latents, a.out), RESULTS / f"{a.study}.json"
    cases = [*protocol["cases"], *(["trained"] if "trained" in protocol else [])]
    if a.case not in (None, *cases) or a.seed not in (None, *protocol["seeds"]):
        parser.error(f"{a.study} has the cases {', '.join(cases)} and the seeds {protocol['seeds']}")
    for seed in protocol["seeds"] if a.seed is None else [a.seed]:
        for case in [a.case] if a.case else cases:
            run = texture_networks(bench, seed, a.fid) if case == "trained" else any_schedule(bench, case, seed, a.fid)
            new = [{"case": case, "seed": seed, "latents": bench.fingerprint} | row for row in run]
            print(json.dumps(new), flush=True)
            rows = json.loads(file.read_text())["rows"] if file.is_file() else []  # another process may have added some
            known = {(row["case"], row["seed"], row["arm"]): row for row in [*rows, *new]}
            write_json(file, {"study": a.study, "rows": list(known.values())})


if __name__ == "__main__":
    main()
