"""Everything that lwd wrote before the formats became records still loads: fixtures/earlier, made by commit b6dcb3c."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import lwd
from lwd.checkpoints.formats import ModelFile
from lwd.evaluation.formats import EvaluationFile
from lwd.io.tensors import read_safetensors
from lwd.latents.encoders import load_compressor
from lwd.latents.formats import Manifest, StatisticsFile
from lwd.latents.verify import verify
from lwd.probing.formats import SweepFile, TraceFile
from lwd.probing.joint import probe
from lwd.representations.formats import PatchAutoencoderFile, PCAFile, SemVAEFile
from lwd.sampling.formats import SamplesFile
from lwd.sampling.generator import Generator
from lwd.sampling.samples import generate
from lwd.sampling.settings import SampleSettings
from lwd.surfaces.formats import LambdaPathFile, SurfacesFile
from lwd.training.config import config_from_dict, with_changes
from lwd.training.formats import RunFile, TrainingState
from lwd.training.train import train
from lwd.training.trainer import Trainer
from train_data import cpu

EARLIER = Path(__file__).parent / "fixtures" / "earlier"
FILES = {
    "latents/manifest.json": Manifest,
    "pca/config.json": PCAFile,
    "semvae/config.json": SemVAEFile,
    "ae/config.json": PatchAutoencoderFile,
    "probe/trace.json": TraceFile,
    "probe/checkpoints/00000004/state.json": TrainingState,
    "run/checkpoints/00000004/state.json": TrainingState,
    "run/checkpoints/00000004/config.json": ModelFile,
    "run/checkpoints/00000004/statistics.json": StatisticsFile,
    "surface/surfaces.json": SurfacesFile,
    "path/path.json": LambdaPathFile,
    "sweep/sweep.json": SweepFile,
    "samples/manifest.json": SamplesFile,
    "samples/evaluation.json": EvaluationFile,
}


def filled(value):
    """Without keys that are empty or null, which say nothing."""
    if isinstance(value, dict):
        return {key: filled(item) for key, item in value.items() if item not in (None, {}, [], "")}
    return [filled(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", FILES)
def test_files_read_and_write_back(name):
    """Oracle: the JSON itself; an empty optional key may be left out."""
    given = json.loads((EARLIER / name).read_text())
    written = json.loads(json.dumps(FILES[name].read(EARLIER / name).to_dict()))
    if name == "path/path.json":  # lambda was on the scale that is now called kinetic_average "groups"
        given["kinetic_average"] = "groups"
    assert filled(given) == filled(written)


@pytest.mark.parametrize("name", ["offset_0.3", "synchronous", "cascade", "polynomial"])
def test_schedules_load_to_the_bit(name):
    """Oracle: the file's own numbers."""
    schedule = lwd.load_schedule(EARLIER / f"{name}.json")
    assert schedule.to_dict() == json.loads((EARLIER / f"{name}.json").read_text())


def test_latents_compressors_and_surfaces_load():
    """Oracle: shapes and checksums that the files were written with."""
    assert verify(EARLIER / "latents") == []
    reader = lwd.LatentReader(EARLIER / "latents")
    assert (len(reader), str(reader.layout), reader.class_names) == (40, "texture=4,semantic=2", ("a", "b"))
    assert lwd.TextureAutoencoder.load(EARLIER / "ae").channels == 4
    assert [load_compressor(EARLIER / name).channels for name in ("pca", "semvae")] == [2, 2]
    table, provenance = lwd.load_surfaces(EARLIER / "surface")
    assert (tuple(table.losses.shape), provenance["steps"]) == ((25, 2), 3)


@pytest.mark.parametrize(("name", "stage"), [("run", train), ("probe", probe)])
def test_runs_continue(name, stage, tmp_path):
    """Oracle: the run goes on from step 4 with its own settings, and its weights move from the kept ones."""
    shutil.copytree(EARLIER / name, tmp_path / "run")
    config = config_from_dict(RunFile.parse(json.loads((EARLIER / name / "run.json").read_text())).config)
    config = with_changes(config, run={"steps": 6}, probe={"steps": 6})
    if stage is probe:  # its lambda is on another scale than today's
        with pytest.raises(lwd.InputError, match="kinetic_average"):
            stage(config, EARLIER / "latents", tmp_path / "run", cpu())
        config = with_changes(config, objective={"kinetic_average": "groups"})
    found = stage(config, EARLIER / "latents", tmp_path / "run", cpu())
    assert getattr(found, "outcome", found).step == 6
    old = read_safetensors(EARLIER / name / "checkpoints/00000004/model.safetensors")
    new = read_safetensors(tmp_path / "run/checkpoints/00000006/model.safetensors")
    assert all(0 < (new[key] - old[key]).abs().max() < 0.1 for key in old if "blocks.0.attn.qkv" in key)
    lines = [json.loads(line)["step"] for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert lines == [1, 2, 3, 4, 5, 6]


def test_training_tensors_are_restored_to_the_bit(tmp_path, monkeypatch):
    """Oracle: the file itself, which one process wrote as one file: weights, moments, averages and updates."""
    shutil.copytree(EARLIER / "run", tmp_path / "run")
    seen = {}

    def look(trainer):
        for name, weight, average in zip(trainer.names, trainer.weights, trainer.ema.shadow, strict=True):
            entry = trainer.optimizer.state[weight]
            seen[f"weights.{name}"], seen[f"average.{name}"] = weight.detach(), average
            seen.update({f"{key}.{name}": entry[key] for key in ("exp_avg", "exp_avg_sq")})
            assert entry["step"] == 4
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "advance", look)
    config = config_from_dict(RunFile.parse(json.loads((EARLIER / "run/run.json").read_text())).config)
    with pytest.raises(KeyboardInterrupt):
        train(with_changes(config, run={"steps": 6}), EARLIER / "latents", tmp_path / "run", cpu())
    folder = EARLIER / "run/checkpoints/00000004"
    kept = read_safetensors(folder / "training.safetensors")
    kept |= {f"average.{name}": tensor for name, tensor in read_safetensors(folder / "model.safetensors").items()}
    assert seen.keys() == kept.keys()
    assert all(torch.equal(seen[name], kept[name]) for name in kept)


def test_models_sample_and_finished_sets_are_recognised(tmp_path):
    """Oracle: a complete set is not drawn again, and its bytes stay."""
    checkpoint = lwd.load(EARLIER / "run")
    assert checkpoint.schedule == lwd.Offset(0.3)
    assert lwd.load(EARLIER / "surface").any_schedule
    shutil.copytree(EARLIER / "samples", tmp_path / "samples")
    manifest = SamplesFile.read(tmp_path / "samples/manifest.json")
    pipe = lwd.LWDPipeline(checkpoint, lwd.TextureAutoencoder.load(EARLIER / "ae"))
    record = {key: value for key, value in manifest.to_dict().items() if key in ("model", "decoder")}
    record = {key: {k: v for k, v in value.items() if k != "name"} for key, value in record.items()}
    settings = SampleSettings.parse(manifest.settings)
    before = (tmp_path / "samples/samples.npz").read_bytes()
    assert "40 samples" in generate(Generator(pipe, settings, None, record), tmp_path / "samples")
    assert (tmp_path / "samples/samples.npz").read_bytes() == before
