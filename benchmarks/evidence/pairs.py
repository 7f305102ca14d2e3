"""Which pairs of representations pay, and does a third clock? The protocols are pairs.yaml and pairs-more.yaml.

    python benchmarks/evidence/pairs.py DIR [--study pairs-more] [--pair NAME] [--limit N]

For each pair and seed: one network at independent times, its surfaces on held-out images, and its samples under every
schedule, scored by the judge. DIR holds latents and runs; what is there is kept, and a killed run continues. Results go
to results/STUDY.json. Needs `lwd data fetch` of resnet50 and efficientnet-lite0; about two hours on one core.
"""

import argparse
import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from patches import Patches
from study import RESULTS, Judge, slug
from torch import Tensor

from lwd.images.catalog import open_source
from lwd.images.pictures import SourcePictures
from lwd.images.sources import ImageSource, Subset
from lwd.io.files import write_json
from lwd.io.locks import held
from lwd.latents.encode import encode
from lwd.latents.encoders import Encoders, Semantic, load_compressor
from lwd.latents.settings import EncodeSettings
from lwd.objective import FlowObjective
from lwd.probing.surface import surface_probe
from lwd.representations.encoders import CallableEncoder, SemanticEncoder, load_encoder
from lwd.representations.fit import fit_pca, fit_semvae
from lwd.representations.settings import FitSettings, SemVAESettings
from lwd.representations.texture import TextureAutoencoder, from_uint8
from lwd.sampling.generator import open_generator
from lwd.sampling.samples import generate
from lwd.sampling.settings import SampleSettings
from lwd.schedule.base import Schedule
from lwd.schedule.fixed import PiecewiseLinear
from lwd.schedule.io import parse_schedule, save_schedule
from lwd.surfaces.integral import path_terms
from lwd.surfaces.potential import potential
from lwd.surfaces.table import smooth
from lwd.training.config import load_config, with_changes
from lwd.training.devices import Devices
from lwd.training.task import RunOptions

HERE = Path(__file__).parent
GRID, FITTED = (4, 4), 2000


def lagged(lags: list[float], groups: tuple[str, ...]) -> PiecewiseLinear:
    """Clocks of one speed; each starts after its lag."""
    span = 1 + max(lags)
    moments = sorted({x for lag in lags for x in (lag, 1 + lag)})
    rows = [[round(min(max(x - lag, 0.0), 1.0), 12) for x in moments] for lag in lags]  # exactly 1 at the end
    return PiecewiseLinear([x / span for x in moments], rows, groups)


@dataclass(frozen=True)
class Texture:
    """Where the latents of a texture are, and what decodes them."""

    latents: dict[str, Path]
    decoder: TextureAutoencoder


def make_latents(protocol: dict[str, Any], texture: str, out: Path) -> Texture:
    """Fit compressors to training images, and encode training and held-out images with all encoders."""
    train: ImageSource = open_source(protocol["images"])
    train = Subset(train, np.arange(0, len(train), protocol["every"]))
    few = Subset(train, np.arange(0, len(train), len(train) // FITTED))
    pairs = [about["groups"] for name, about in protocol["pairs"].items() if texture_of(protocol, name) == texture]
    used = {name: about for name, about in protocol["encoders"].items() if any(name in groups for groups in pairs)}
    suffix, found = "" if texture == protocol["texture"] else f"-{texture}", {}
    with held(out / ".fit"):  # another process with the same folder waits, and then finds everything
        semantics = {name: _semantic(about, few, out / name) for name, about in used.items()}
        decoder = TextureAutoencoder.load(texture) if texture != "patches" else _patches(protocol, few, out / texture)
        for part, source in (("latents", train), ("held-out", open_source(protocol["held_out"]))):
            record = {name: one.encoder.identity for name, one in semantics.items()} | {"texture": texture}
            loaded = Encoders(decoder, semantics, record=record)
            encode(source, out / f"{part}{suffix}", loaded, EncodeSettings(batch=50, dtype="float16", threads=1))
            found[part] = out / f"{part}{suffix}"
    return Texture(found, decoder)


def _semantic(about: dict[str, Any], images: ImageSource, out: Path) -> Semantic:
    encoder = load_encoder(about["encoder"])
    if about.get("global"):
        encoder = CallableEncoder(partial(_mean, encoder), f"mean of {encoder.identity}")
    if not (out / "config.json").is_file():
        if about.get("compressor") == "semvae":
            settings = SemVAESettings(channels=about["channels"], width=256, limit=FITTED, steps=600, batch=50)
            fit_semvae(images, encoder, GRID, out, settings)
        else:
            fit_pca(images, encoder, GRID, out, FitSettings(channels=about["channels"], batch=50))
    return Semantic(encoder, load_compressor(out))


def _mean(encoder: SemanticEncoder, images: Tensor) -> Tensor:
    features = encoder(images)
    return features.mean((2, 3), keepdim=True).expand_as(features)


def _patches(protocol: dict[str, Any], images: ImageSource, out: Path) -> Patches:
    pixels, channels = protocol["patches"]["pixels"], protocol["patches"]["channels"]
    if not out.is_dir():
        pictures = np.concatenate(list(SourcePictures(images).batches(100)))
        Patches.fit(from_uint8(torch.as_tensor(pictures)), pixels, channels).save(out)
    return Patches.read(out, pixels)


def run(protocol: dict[str, Any], pair: str, seed: int, texture: Texture, out: Path, judge: Judge) -> dict[str, Any]:
    """Train, tabulate and sample one pair."""
    about = protocol["pairs"][pair]
    groups = tuple(about["groups"])
    changes = [*protocol["settings"], *about.get("settings", ()), f"run.seed={seed}", "run.sample_every=0"]
    config = load_config(protocol["preset"], changes).changed(groups=groups)
    points = {"points": 9, "samples": 512} if len(groups) == 2 else {"points": 6, "samples": 128}
    probe = {"steps": config.run.steps, "burn_in": 0, "held_out": str(texture.latents["held-out"]), **points}
    options = RunOptions(Devices(cpu=True))
    _, table = surface_probe(with_changes(config, probe=probe), texture.latents["latents"], out / "probe", options)
    if table is None:
        raise SystemExit("interrupted")
    row: dict[str, Any] = {"pair": pair, "seed": seed, "schedules": {}}
    if len(groups) == 2:
        gains = potential(table, FlowObjective(table.layout)).gains
        row["potential"] = {name: {"share": g.share, "error": g.error, "curve": g.curve} for name, g in gains.items()}
    for name, spec in protocol["schedules"][len(groups)].items():
        curve = parse_schedule(spec, groups) if isinstance(spec, str) else lagged(spec, groups)
        flow = float(sum(path_terms(curve, smooth(table), FlowObjective(table.layout), 64)))
        row["schedules"][name] = {"flow": flow} | score_under(protocol, name, curve, out, judge, texture.decoder)
    return row


def score_under(
    protocol: dict[str, Any], name: str, curve: Schedule, out: Path, judge: Judge, decoder: TextureAutoencoder
) -> dict[str, Any]:
    """Samples of the network of a run under a schedule, scored by the judge."""
    file, folder = out / f"{slug(name)}.json", out / f"samples-{slug(name)}"
    save_schedule(curve, file)
    sampling = {"kinds": ("npz",), "threads": 1, "batch": 100, "seed": 10**6} | protocol["samples"]
    generator = open_generator(out / "probe", SampleSettings(**sampling), None, None, "cpu", str(file))
    generate(replace(generator, pipe=generator.pipe.with_decoder(decoder)), folder)
    return judge(folder, False)


def texture_of(protocol: dict[str, Any], pair: str) -> str:
    return str(protocol["pairs"][pair].get("texture", protocol["texture"]))


def file_of(name: str) -> Path:
    return RESULTS / f"{name}.json"


def rows_in(file: Path) -> list[dict[str, Any]]:
    """The rows of a file of results; none without it."""
    return list(json.loads(file.read_text())["rows"]) if file.is_file() else []


def protocol_of(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((HERE / f"{name}.yaml").read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--study", default="pairs", choices=("pairs", "pairs-more"))
    parser.add_argument("--limit", type=int, default=10**9, help="stop after this many runs")
    parser.add_argument("--pair", help="only this pair; once its latents are there, processes may share DIR")
    a = parser.parse_args()
    protocol, file = protocol_of(a.study), file_of(a.study)
    left = [(s, p) for s in protocol["seeds"] for p in protocol["pairs"] if a.pair in (None, p)]
    left = [one for one in left if one not in {(row["seed"], row["pair"]) for row in rows_in(file)}]
    judge = Judge(protocol["judge"], protocol["reference"], "")
    for seed, pair in left[: a.limit]:
        texture = make_latents(protocol, texture_of(protocol, pair), a.out)
        row = run(protocol, pair, seed, texture, a.out / f"{slug(pair)}-seed{seed}", judge)
        print(json.dumps(row), flush=True)
        write_json(file, {"study": a.study, "rows": [*rows_in(file), row]})


if __name__ == "__main__":
    main()
