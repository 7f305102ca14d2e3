"""Vision transformers as encoders, with tiny random models built from a config: nothing is downloaded."""

import json
import shutil
from importlib.util import find_spec

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

import lwd
from lwd.compute.devices import choose_device
from lwd.representations.encoders import (
    CLIP,
    IMAGENET,
    CallableEncoder,
    Origin,
    load_encoder,
    load_patch_encoder,
    resize_map,
)
from lwd.representations.formats import PCAFile
from messages import says

pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 28, "patch_size": 7}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Directories of tiny models: DINOv2 with three registers, plain DINOv2, CLIP's vision tower, whole CLIP."""
    import transformers  # seconds, in this file's process only

    torch.manual_seed(0)
    root = tmp_path_factory.mktemp("models")
    vision = SIZES | {"intermediate_size": 64}
    made = {
        "registers": transformers.Dinov2WithRegistersModel(
            transformers.Dinov2WithRegistersConfig(num_register_tokens=3, **SIZES)
        ),
        "dinov2": transformers.Dinov2Model(transformers.Dinov2Config(**SIZES)),
        "clip": transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**vision)),
        "whole-clip": transformers.CLIPModel(
            transformers.CLIPConfig(
                vision_config=vision,
                text_config={"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 40},
            )
        ),
    }
    for name, model in made.items():
        model.eval().save_pretrained(root / name)
    return root


@pytest.mark.parametrize(("name", "skipped"), [("registers", 4), ("dinov2", 1), ("clip", 1), ("whole-clip", 1)])
def test_maps_are_the_patch_tokens_in_row_major_order(models, name, skipped):
    """Oracle: the model's own final hidden states on hand-normalised pixels, without class and register tokens."""
    encoder = load_patch_encoder(models / name, 28)
    images = torch.rand(2, 3, 28, 28, generator=torch.Generator().manual_seed(1)) * 2 - 1
    mean, std = (torch.tensor(x)[:, None, None] for x in (CLIP if "clip" in name else IMAGENET))
    with torch.no_grad():
        found = encoder(images)
        hidden = encoder.model(((images + 1) / 2 - mean) / std).last_hidden_state
    assert hidden.shape[1] == 16 + skipped
    assert (encoder.prefix, encoder.features, found.shape) == (skipped, 32, (2, 32, 4, 4))
    for row in range(4):
        for column in range(4):
            assert_close(found[:, :, row, column], hidden[:, skipped + 4 * row + column])
    assert not any(p.requires_grad for p in encoder.parameters())
    assert not encoder.model.training
    assert "28 px" in encoder.identity


@pytest.mark.parametrize("name", ["registers", "clip"])
@pytest.mark.parametrize(("corner", "row", "column"), [((0, 21), 0, 3), ((21, 0), 3, 0), ((0, 0), 0, 0)])
def test_a_bright_patch_lights_the_same_corner(models, name, corner, row, column):
    """Oracle: the place where the map differs most from a flat image's."""
    encoder = load_patch_encoder(models / name, 28)
    flat = torch.zeros(1, 3, 28, 28)
    lit = flat.clone()
    lit[:, :, corner[0] : corner[0] + 7, corner[1] : corner[1] + 7] = 1
    with torch.no_grad():
        change = (encoder(lit) - encoder(flat)).square().sum(1)[0]
    assert divmod(int(change.argmax()), 4) == (row, column)


@pytest.mark.parametrize("name", ["registers", "dinov2", "clip"])
def test_other_resolutions_and_image_sizes(models, name):
    """Oracle: the grid follows the resolution, whatever the image's size; the default is 16 patches a side."""
    assert load_patch_encoder(models / name)(torch.zeros(1, 3, 64, 64)).shape == (1, 32, 16, 16)
    assert load_encoder(f"{models / name}@42")(torch.zeros(1, 3, 50, 50)).shape == (1, 32, 6, 6)


def test_the_models_own_preprocessor_decides(models):
    """Oracle: other normalisation, other features; a broken file is refused."""
    path = models / "dinov2" / "preprocessor_config.json"
    images = torch.rand(1, 3, 28, 28)
    before = load_patch_encoder(models / "dinov2", 28)(images)
    path.write_text(json.dumps({"image_mean": list(IMAGENET[0]), "image_std": list(IMAGENET[1])}))
    assert_close(load_patch_encoder(models / "dinov2", 28)(images), before)
    path.write_text(json.dumps({"image_mean": [0.5] * 3, "image_std": [0.5] * 3}))
    assert (load_patch_encoder(models / "dinov2", 28)(images) - before).abs().max() > 1e-3
    for text in ("{", '{"image_mean": 3}', '{"image_mean": [1, 2], "image_std": [1, 1]}'):
        path.write_text(text)
        with pytest.raises(lwd.InputError, match=says("image_mean")):
            load_patch_encoder(models / "dinov2", 28)
    path.unlink()


def test_resizing_maps():
    """Oracle: halving averages 2x2 neighbourhoods' surroundings without moving the map; flat stays flat."""
    ramp = torch.arange(8.0).expand(1, 1, 8, 8)
    small = resize_map(ramp, 4, 4)
    assert_close(small[0, 0, 0, 1:3], torch.tensor([2.5, 4.5]))
    assert_close(resize_map(torch.full((1, 2, 5, 5), 3.0), 7, 2), torch.full((1, 2, 7, 2), 3.0))
    assert resize_map(ramp, 8, 8) is ramp


def test_origins_in_files():
    """Oracle: what is written is read; nothing is known of older files; malformed keys are named."""
    plain = {"format": "lwd.pca", "version": 1, "features": 5, "channels": 3, "explained": 0.5}

    def read(**keys):
        return PCAFile.check(json.loads(json.dumps(plain | keys)), "config.json")

    found = read(**Origin("e", (4, 5)).keys())
    assert (found.encoder, found.grid) == ("e", (4, 5))
    assert (read().encoder, read().grid) == ("", None)
    for keys in ({"grid": [4]}, {"grid": [0, 4]}, {"grid": "4x4"}, {"encoder": 3}, {"grid": [True, 2]}):
        with pytest.raises(lwd.InputError, match=says("config.json", *keys)):
            read(**keys)


def test_any_callable():
    encoder = CallableEncoder(lambda images: images[:, :1, ::4, ::4], "every fourth red pixel")
    assert encoder(torch.zeros(2, 3, 8, 8)).shape == (2, 1, 2, 2)
    with pytest.raises(lwd.InputError, match=says("every fourth", "()")):
        CallableEncoder(lambda images: images.mean(), "every fourth")(torch.zeros(2, 3, 8, 8))


def test_the_same_weights_elsewhere_are_the_same_encoder(models, tmp_path):
    """Oracle: identity follows weights, resolution and normalisation, not the path; '@' may stand in a path."""
    shutil.copytree(models / "registers", tmp_path / "a@b")
    first = load_encoder(f"{models / 'registers'}@28").identity
    assert load_encoder(f"{tmp_path / 'a@b'}@28").identity == first
    assert load_encoder(str(tmp_path / "a@b")).resolution == 16 * 7
    assert load_encoder(f"{tmp_path / 'a@b'}@35").identity != first
    (tmp_path / "a@b" / "preprocessor_config.json").write_text('{"image_mean": [0, 0, 0], "image_std": [1, 1, 1]}')
    assert load_encoder(f"{tmp_path / 'a@b'}@28").identity != first


def test_missing_and_broken_weights_are_refused(models, tmp_path):
    """Oracle: what transformers would fill with random numbers is named; what the map does not use may be missing."""
    for name, key in (("dinov2", "layernorm.weight"), ("clip", "encoder.layers.1.mlp.fc2.weight")):
        shutil.copytree(models / name, tmp_path / name)
        path = tmp_path / name / "model.safetensors"
        whole = path.read_bytes()
        state = load_file(path)
        full = next(k for k in state if k.endswith(key))
        save_file({k: v for k, v in state.items() if k != full}, path, metadata={"format": "pt"})
        with pytest.raises(lwd.InputError, match=key):
            load_patch_encoder(tmp_path / name, 28)
        unused = {k: v for k, v in state.items() if "post_layernorm" not in k and "mask_token" not in k}
        assert len(unused) < len(state)
        save_file(unused, path, metadata={"format": "pt"})
        load_patch_encoder(tmp_path / name, 28)
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(lwd.InputError, match=says(name)):
            load_patch_encoder(tmp_path / name, 28)
        path.write_bytes(whole)
        config = tmp_path / name / "config.json"
        config.write_text(config.read_text().replace('"num_attention_heads": 2', '"num_attention_heads": 0'))
        with pytest.raises(lwd.InputError, match=says(name)):
            load_patch_encoder(tmp_path / name, 28)


def test_devices(monkeypatch):
    assert choose_device("cpu").type == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device().type == "cpu"
    monkeypatch.setenv("LOCAL_RANK", "x")
    with pytest.raises(lwd.InputError, match=says("LOCAL_RANK", "x")):
        choose_device()
    with pytest.raises(lwd.InputError, match=says("gpu")):
        choose_device("gpu")


def test_wrong_names_are_refused_with_a_sentence(models, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "config.json").write_text('{"model_type": "bert"}')
    for spec, facts in (
        (str(tmp_path / "bert"), ("bert", "dinov2", "clip", "resnet50")),
        (str(tmp_path / "absent"), "absent"),
        (f"{models / 'dinov2'}@30", (7, 30)),
        ("resnet50:x@128", "resnet50:x@128"),
        ("resnet50@big", "resnet50@big"),
    ):
        with pytest.raises(lwd.InputError, match=says(facts)):
            load_encoder(spec)
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(lwd.InputError, match=says("lwd[encoders]")):
        load_encoder("facebook/dinov2-base")
