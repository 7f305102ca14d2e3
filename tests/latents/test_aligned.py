"""Alignment features computed while training: those of `lwd encode`, for the same image, mirrored alike."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

import lwd
from lwd.cli import main
from lwd.errors import InputError
from lwd.images.catalog import open_source
from lwd.latents.aligned import AlignedReader, LiveFeatures
from lwd.latents.encode import encode
from lwd.latents.encoders import Encoders, Semantic
from lwd.latents.reader import LatentReader
from lwd.latents.settings import EncodeSettings
from lwd.representations.encoders import load_encoder
from lwd.representations.pca import PCAFit
from lwd.representations.texture import PatchAutoencoder
from lwd.training.config import with_changes
from lwd.training.journal import read_metrics
from lwd.training.train import open_data, train
from messages import exit_code, says
from train_data import cpu, settings

SMALL = ("network.depth=1", "network.width=32", "network.heads=2", "network.tap=1", "network.projector_width=16")


def folder(path, count=24, unreadable=()):
    """Grey pictures with noise, larger than the crop and of different sizes."""
    rng = np.random.default_rng(0)
    for i in range(count):
        (path / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        place = path / "ab"[i % 2] / f"{i:03}.png"
        Image.fromarray(rng.integers(0, 256, (34 + i % 3, 40, 3), np.uint8)).save(place)
        if i in unreadable:
            place.write_bytes(b"not a picture")
    return path


def shards(path, pictures, dtype="float32", features=True, size=28):
    torch.manual_seed(0)
    encoder = load_encoder("fashion")
    pca = PCAFit().update(torch.randn(64, 64, 2, 2)).finish(2)
    tools = Encoders(PatchAutoencoder.small(channels=4, width=32, depth=1).eval(), {"semantic": Semantic(encoder, pca)})
    chosen = EncodeSettings(shard_size=10, batch=5, features=features, dtype=dtype, skip_bad=True, size=size)
    encode(open_source(str(pictures)), path, tools, chosen)
    return path


def live(pictures, **options):
    return LiveFeatures(load_encoder("fashion"), open_source(str(pictures)), **options)


def config(pictures="", **run):
    named = {"alignment": {"images": str(pictures), "encoder": "fashion"}} if pictures else {}
    found = settings(
        objective={"align": 1.0, "cosine": 0.0},
        network={"depth": 1, "tap": 1, "projector_width": 16},
        run={"steps": 3, "batch": 8, "save_every": 1} | run,
    )
    return with_changes(found, **named)


def losses(out):
    return torch.tensor([[line["total"], line["align"]] for line in read_metrics(out / "metrics.jsonl")])


def test_features_are_those_of_the_same_image_mirrored_alike(tmp_path):
    """Oracle: the stored ones; two images cannot be read, so that later rows move up."""
    pictures = folder(tmp_path / "images", unreadable=(3, 12))
    stored = LatentReader(shards(tmp_path / "s", pictures), features=True)
    found = AlignedReader(tmp_path / "s", live(pictures))
    assert (len(found), found.feature_width) == (22, stored.feature_width)
    for step in range(4):
        mine, theirs = (data.batch(step, 8, seed=1, rank=1, world=2) for data in (found, stored))
        assert torch.equal(mine.index, theirs.index)
        assert torch.equal(mine.latents, theirs.latents)
        assert_close(mine.features, theirs.features, atol=1e-5, rtol=1e-5)
        moved = found.stored(step, 8, seed=1, rank=1, world=2).to("cpu")
        assert torch.equal(moved.latents, mine.latents)
        assert torch.equal(moved.features, mine.features)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 2e-3)])
def test_training_is_the_same_as_with_stored_features(tmp_path, dtype, tolerance):
    """Oracle: three steps with features from the shards; the second half resumes."""
    pictures = folder(tmp_path / "images")
    data = shards(tmp_path / "s", pictures, dtype)
    train(config(), data, tmp_path / "stored", cpu())
    train(config(pictures, steps=1), data, tmp_path / "live", cpu())
    train(config(pictures), data, tmp_path / "live", cpu())
    assert losses(tmp_path / "stored").shape == (3, 2)
    assert lwd.load(tmp_path / "live").provenance["encoders"]["align"] == load_encoder("fashion").identity
    assert_close(losses(tmp_path / "live"), losses(tmp_path / "stored"), atol=0, rtol=tolerance)


def test_other_images_are_refused(tmp_path):
    """Oracle: one line that names the folder, by count and by checksum; other sizes; shards of unknown images."""
    pictures = folder(tmp_path / "images")
    data = shards(tmp_path / "s", pictures, features=False)
    fewer, changed = folder(tmp_path / "fewer", 23), folder(tmp_path / "changed")
    (changed / "a" / "000.png").rename(changed / "a" / "renamed.png")
    with pytest.raises(InputError, match=says("fewer", 24, 23).pattern) as error:
        AlignedReader(data, live(fewer))
    assert error.value.argument == "alignment.images"
    with pytest.raises(InputError, match=says("changed", str(data)).pattern):
        AlignedReader(data, live(changed))
    with pytest.raises(InputError, match=says(28, 32).pattern):
        AlignedReader(data, live(pictures, size=32))
    (data / "manifest.json").write_text((data / "manifest.json").read_text().replace('"digest"', '"unknown"'))
    with pytest.raises(InputError, match=says(str(data)).pattern):
        AlignedReader(data, live(pictures))


def test_a_run_does_not_mix_features(tmp_path):
    """Oracle: a run with stored features does not continue with live ones, nor with those of other precision."""
    pictures = folder(tmp_path / "images")
    data = shards(tmp_path / "s", pictures)
    train(config(steps=1), data, tmp_path / "run", cpu())
    with pytest.raises(InputError, match="data"):
        train(config(pictures), data, tmp_path / "run", cpu())
    prints = {AlignedReader(data, live(pictures, bf16=half)).fingerprint for half in (False, True)}
    assert len(prints | {LatentReader(data).fingerprint}) == 3


def test_directories_of_earlier_versions(tmp_path):
    """Oracle: a manifest without a size falls back to the plan, then to the setting."""
    pictures = folder(tmp_path / "images")
    data = shards(tmp_path / "s", pictures)
    text = (data / "manifest.json").read_text()
    (data / "manifest.json").write_text(text.replace('"size"', '"ignored"'))
    assert AlignedReader(data, live(pictures)).pixels == 28
    (data / "parts" / "plan.json").unlink()
    with pytest.raises(InputError, match="size"):
        AlignedReader(data, live(pictures))
    assert AlignedReader(data, live(pictures, size=28)).pixels == 28


def test_settings_without_effect_or_encoder(tmp_path):
    """Oracle: images without alignment, and images without an encoder, are errors."""
    pictures = folder(tmp_path / "images")
    data = shards(tmp_path / "s", pictures, features=False)
    with pytest.raises(InputError, match=says("alignment.images", "objective.align").pattern):
        train(with_changes(config(pictures), objective={"align": 0.0}), data, tmp_path / "run", cpu())
    with pytest.raises(InputError, match="encoder"):
        open_data(data, with_changes(config(pictures), alignment={"encoder": ""}))
    with pytest.raises(InputError, match=says("alignment.images", "objective.align=0").pattern):
        open_data(data, config())


def test_the_command(tmp_path, capsys):
    """Oracle: trains from shards without features; a folder that is not there is one line and exit code 2."""
    pictures = folder(tmp_path / "images")
    data = shards(tmp_path / "s", pictures, features=False)
    words = ["train", str(data), "--schedule", "offset:0.3", "--out", str(tmp_path / "run"), "--cpu", "--steps", "1"]
    for change in (*SMALL, "run.batch=4", "objective.align=1"):
        words += ["--set", change]
    assert main([*words, "--align-images", str(pictures), "--align", "fashion"]) == 0
    assert exit_code([*words, "--align-images", "nowhere", "--align", "fashion"]) == 2
    assert says("nowhere").search(capsys.readouterr().err)


@pytest.mark.slow
def test_two_processes(tmp_path):
    """Oracle: one process, to rounding."""
    pictures = folder(tmp_path / "images")
    data = shards(tmp_path / "s", pictures, features=False)
    for processes in (1, 2):
        command = [sys.executable, "-m"]
        if processes > 1:
            command += ["torch.distributed.run", f"--nproc-per-node={processes}", "--standalone", "-m"]
        command += ["lwd", "train", str(data), "--schedule", "offset:0.3", "--out", str(tmp_path / str(processes))]
        command += ["--cpu", "--steps", "3", "--align-images", str(pictures), "--align", "fashion"]
        for change in (*SMALL, "run.batch=8", "objective.align=1", "run.log_every=1"):
            command += ["--set", change]
        subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, capture_output=True)
    assert_close(losses(tmp_path / "1"), losses(tmp_path / "2"), atol=0, rtol=1e-5)
