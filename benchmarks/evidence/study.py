"""Run a study of schedules: train, sample and score every arm with every seed, and keep each result.

    python benchmarks/evidence/study.py PROTOCOL.yaml LATENTS --out DIR [--decoder AE] [--limit N] [--table]

A protocol (a YAML file in this folder) is written and committed before its runs: question, decision, settings, seeds
and arms. Arms of one seed share initial weights, data order, noise, times and sampling seeds, so they are compared in
pairs. DIR holds the runs; finished ones are skipped and a killed one continues. Results go to results/STUDY.json. With
--table nothing is run: the table of the results is printed.
"""

import argparse
import dataclasses
import hashlib
import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from paths import path as path_of
from retime import retimed
from tables import table

from lwd.errors import InputError
from lwd.evaluation.evaluate import networks_for
from lwd.evaluation.features import discard, extract
from lwd.evaluation.score import Reference, score
from lwd.evaluation.settings import EvaluateSettings
from lwd.images.catalog import open_source
from lwd.images.pictures import SourcePictures, open_pictures
from lwd.images.sources import Subset
from lwd.io.files import write_json
from lwd.latents.reader import LatentReader
from lwd.sampling.formats import SamplesFile
from lwd.sampling.generator import Generator, open_generator
from lwd.sampling.samples import MANIFEST, generate
from lwd.sampling.settings import SampleSettings
from lwd.schedule.base import Schedule
from lwd.schedule.io import parse_schedule, save_schedule
from lwd.schedule.learned import Polynomial
from lwd.training.config import Config, load_config
from lwd.training.devices import Devices
from lwd.training.journal import read_metrics
from lwd.training.task import RunOptions
from lwd.training.train import train
from lwd.version import __version__

CPU = torch.device("cpu")
JUDGED = 10_000
"""Images that the linear classifier is fitted to."""
RESULTS = Path(__file__).resolve().parents[2] / "results"


@dataclasses.dataclass(frozen=True)
class Study:
    """A protocol, and where its runs are."""

    path: Path
    latents: Path
    out: Path
    decoder: str

    @property
    def protocol(self) -> dict[str, Any]:
        return dict(yaml.safe_load(self.path.read_text()))

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def results(self) -> Path:
        return RESULTS / f"{self.name}.json"

    def arms(self) -> list[tuple[int, str]]:
        """All runs, seed by seed: a study that is cut short has complete pairs."""
        return [(seed, arm) for seed in self.protocol["seeds"] for arm in self.protocol["arms"]]

    def config(self, arm: str, seed: int) -> Config:
        p = self.protocol
        about = p["arms"][arm]
        settings = [*p["settings"], *about.get("settings", ()), f"run.seed={seed}", "run.sample_every=0"]
        config = load_config(p["preset"], settings)
        groups = tuple(about.get("groups") or p.get("groups") or ())
        return config.changed(groups=groups, schedule=self.schedule(arm, groups))

    def schedule(self, arm: str, groups: tuple[str, ...]) -> str:
        """The schedule of an arm as a file: a word, shares of tau, tau^2, ..., leads (paths.py), or a file in `out`."""
        about = self.protocol["arms"][arm]
        text = about.get("schedule", "")
        if text and (self.out / text).is_file():
            return str(self.out / text)
        groups = groups or LatentReader(self.latents).layout.names
        path = self.out / "schedules" / f"{slug(arm)}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        save_schedule(curve := curve_of(about, groups), path)
        if "tempo" not in about:
            return str(path)
        (power,) = about["tempo"].items()
        save_schedule(retimed(curve, *power), path.with_suffix(".tempo.json"))
        return str(path.with_suffix(".tempo.json"))

    def generator(self, model: Path, settings: SampleSettings, arm: str) -> Generator:
        """Open a model of an arm. The tempo is one of training only: samples are drawn under the schedule itself."""
        if "tempo" not in self.protocol["arms"][arm]:
            return open_generator(model, settings, None, self.decoder, "cpu")
        own = str(self.out / "schedules" / f"{slug(arm)}.json")
        return open_generator(model, settings, None, self.decoder, "cpu", own, other_schedule=True)

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Keep the results, with what they depend on."""
        about: dict[str, Any] = {"study": self.name, "protocol": hashlib.sha256(self.path.read_bytes()).hexdigest()}
        about |= {"latents": LatentReader(self.latents).fingerprint}
        about |= {"versions": {"lwd": __version__, "torch": torch.__version__}, "rows": rows}
        write_json(self.results, about)


def curve_of(about: Mapping[str, Any], groups: tuple[str, ...]) -> Schedule:
    """The schedule that an arm describes."""
    if "shares" in about:
        return Polynomial.from_shares(about["shares"], groups)
    return path_of(about["leads"]) if "leads" in about else parse_schedule(about["schedule"], groups, about.get("lead"))


def slug(arm: str) -> str:
    return arm.replace(" ", "-").replace(",", "")


def run_arm(study: Study, arm: str, seed: int, judge: "Judge") -> dict[str, Any]:
    """Train, sample and score one arm; every step continues where it was interrupted."""
    p, out = study.protocol, study.out / f"{slug(arm)}-seed{seed}"
    config, started = study.config(arm, seed), time.perf_counter()
    outcome = train(config, study.latents, out / "train", RunOptions(Devices(cpu=True)))
    if not outcome.finished:
        raise InputError(f"{out} was interrupted")
    trained = time.perf_counter()
    lines = read_metrics(out / "train" / "metrics.jsonl")
    late = [_flow(line) for line in lines if line["step"] > 0.8 * config.run.steps]
    row: dict[str, Any] = {"arm": arm, "seed": seed, "steps": config.run.steps}
    row |= {"flow loss": sum(late) / max(1, len(late)), "metrics": {}}
    for label, changes in p["samples"].items():
        settings = {"kinds": ("npz",), "threads": 1, "batch": 100} | changes | {"seed": 10**6}
        step, folder = settings.pop("at", None), out / f"samples-{slug(label)}"
        model = out / "train" if step is None else out / "train" / "kept" / f"{step:08d}"
        generate(study.generator(model, SampleSettings(**settings), arm), folder)
        row["metrics"][label] = judge(folder, bool(config.run.labels))
    row |= {"seconds": {"training": round(trained - started), "rest": round(time.perf_counter() - trained)}}
    return row


def score_again(study: Study, row: dict[str, Any], judge: "Judge") -> dict[str, Any]:
    """The row with new metrics of its samples."""
    out = study.out / f"{slug(row['arm'])}-seed{row['seed']}"
    labelled = bool(study.config(row["arm"], row["seed"]).run.labels)
    return row | {"metrics": {label: judge(out / f"samples-{slug(label)}", labelled) for label in row["metrics"]}}


def _flow(line: dict[str, Any]) -> float:
    return sum(value for key, value in line.items() if key.startswith("flow/"))


class Judge:
    """Metrics in the features of an encoder that did not make the latents, and a linear classifier on them."""

    def __init__(self, spec: str, reference: str, images: str, only_frechet: bool = False) -> None:
        self.only_frechet = only_frechet  # the others take minutes with thousands of long rows
        self.networks, self.reason = networks_for(EvaluateSettings(encoder=spec, skip_inception=True), CPU)
        self.reference = extract(open_pictures(reference), self.networks, "cpu", 100)
        self.weights: Any = None
        if images:
            source = open_source(images)
            some = Subset(source, np.arange(min(JUDGED, len(source))))
            rows = extract(SourcePictures(some), self.networks, "cpu", 100).rows["encoder"]
            self.weights = ridge(rows, torch.as_tensor(np.array(some.labels)))
            test = self.reference.rows["encoder"], torch.as_tensor(open_source(reference).labels)
            print(f"judge: {accuracy(self.weights, *test):.3f} of the reference images recognised", flush=True)

    def __call__(self, folder: Path, labelled: bool) -> dict[str, Any]:
        file = next(folder.glob("*.npz"))
        pictures = open_pictures(file)
        features = extract(pictures, self.networks, "cpu", 100)
        if self.only_frechet:
            features = dataclasses.replace(features, rows={})
        scores = score(features, Reference.of(self.reference, {}, "reference"), self.reason)
        found = {name: {"value": m.value, "error": m.error} for name, m in scores.metrics.items()}
        if self.weights is not None and labelled:
            about = SamplesFile.read(folder / MANIFEST)  # rows of the .npz are shuffled
            labels = torch.tensor([int(about.labels[i]) for i in about.order])
            found["accuracy"] = {"value": accuracy(self.weights, features.rows["encoder"], labels), "error": 0.0}
        discard(pictures, self.networks)
        return found


def ridge(rows: torch.Tensor, labels: torch.Tensor, penalty: float = 10.0) -> torch.Tensor:
    """A linear classifier by least squares on one-hot labels; the last row is the bias."""
    x = torch.cat([rows.double(), torch.ones(len(rows), 1, dtype=torch.float64)], 1)
    y = torch.nn.functional.one_hot(labels.long()).double()
    return torch.linalg.solve(x.T @ x + penalty * torch.eye(x.shape[1], dtype=torch.float64), x.T @ y)


def accuracy(weights: torch.Tensor, rows: torch.Tensor, labels: torch.Tensor) -> float:
    guess = (torch.cat([rows.double(), torch.ones(len(rows), 1, dtype=torch.float64)], 1) @ weights).argmax(1)
    return float((guess == labels[: len(guess)]).double().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protocol", type=Path)
    parser.add_argument("latents", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, help="directory of the runs")
    parser.add_argument("--decoder", default="", help="texture autoencoder")
    parser.add_argument("--limit", type=int, default=10**9, help="stop after this many runs")
    parser.add_argument("--again", action="store_true", help="score the samples of all finished runs again")
    parser.add_argument("--table", action="store_true", help="print the table of the results")
    a = parser.parse_args()
    study = Study(a.protocol, a.latents, a.out, a.decoder)
    if a.table:
        print(table(json.loads(study.results.read_text()), study.protocol))
        return
    p, judge = study.protocol, None
    rows = json.loads(study.results.read_text())["rows"] if study.results.is_file() else []
    if a.again:
        judge = Judge(p["judge"], p["reference"], p.get("judge_images", ""))
        rows = [score_again(study, row, judge) for row in rows]
        study.write(rows)
        return
    done = {(row["seed"], row["arm"]) for row in rows}
    for seed, arm in [run for run in study.arms() if run not in done][: a.limit]:
        judge = judge or Judge(p["judge"], p["reference"], p.get("judge_images", ""))
        rows.append(run_arm(study, arm, seed, judge))
        print(json.dumps(rows[-1]), flush=True)
        study.write(rows)
        for name in ("checkpoints", "plots"):  # kept/ has the averaged weights
            if (study.out / f"{slug(arm)}-seed{seed}" / "train" / "kept").is_dir():
                shutil.rmtree(study.out / f"{slug(arm)}-seed{seed}" / "train" / name, ignore_errors=True)


if __name__ == "__main__":
    main()
