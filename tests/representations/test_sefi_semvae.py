"""SeFi-Image's SemVAE: outputs of the reference implementation with random weights, and its layout on the hub."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

import lwd
from lwd.images.sources import ArraySource
from lwd.latents.encode import encode
from lwd.latents.encoders import Encoders, load_compressor
from lwd.latents.verify import verify
from lwd.representations.encoders import CallableEncoder
from lwd.representations.formats import SemVAEConfig
from lwd.representations.semvae import SemVAE, kl_divergence, load_semvae, save_semvae
from lwd.representations.texture import PatchAutoencoder
from messages import says

FIXTURE = Path(__file__).parents[1] / "fixtures" / "sefi_semvae_tiny"
ABOUT = json.loads(FIXTURE.with_suffix(".json").read_text())
TENSORS = load_file(FIXTURE.with_suffix(".safetensors"))
WEIGHTS = {name.removeprefix("weights."): tensor for name, tensor in TENSORS.items() if name.startswith("weights.")}
VARIANT = "dinov2_vitl14_reg/transformer_ch16"
CHECKPOINT = "checkpoints/checkpoint_01000000.pt"


def hub(root, variant=VARIANT, weights=WEIGHTS):
    """A download in the layout of the hub: a training checkpoint and statistics; the heads stand in a config."""
    folder = root / variant
    (folder / "checkpoints").mkdir(parents=True)
    wrapped = {f"module.{name}": tensor for name, tensor in weights.items()}
    torch.save({"iteration": 5, "model_state_dict": wrapped, "config": "a: 1", "loss": 0.5}, folder / CHECKPOINT)
    statistics = {"mean": torch.arange(4.0).reshape(1, 1, 4), "std": torch.full((1, 1, 4), 2.0)}
    torch.save(statistics, folder / "latent_stats.pt")
    (folder / "config.json").write_text(json.dumps(ABOUT))
    return root


def maps(tokens):
    """Tokens (b, 20, d) as maps of 4 rows and 5 columns."""
    return tokens.transpose(1, 2).reshape(len(tokens), -1, 4, 5)


def check(model):
    mean, logvar = model.moments(maps(TENSORS["features"]))
    for ours, theirs in (
        (mean, maps(TENSORS["mean"])),
        (logvar, maps(TENSORS["logvar"])),
        (model.decode(mean), maps(TENSORS["decoded"])),
        (model.decode(maps(TENSORS["mean"])), maps(TENSORS["decoded"])),
        (kl_divergence(mean, logvar), TENSORS["kl"]),
    ):
        assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    assert_close(model.losses(maps(TENSORS["features"]), torch.zeros_like(mean)).kl, TENSORS["kl"].mean() / 80)


@pytest.mark.parametrize("where", ["", VARIANT, f"{VARIANT}/{CHECKPOINT}"])
def test_outputs_are_those_of_the_reference(tmp_path, where):
    """Oracle: posterior mean, log variance, reconstruction and KL of the reference, to 1e-5, from every path."""
    model = load_compressor(hub(tmp_path) / where)
    check(model)
    assert (model.channels, model.config.heads, model.config.depth) == (4, 4, 2)
    assert_close(model.statistics[0], torch.arange(4.0))
    assert_close(model.statistics[1], torch.full((4,), 2.0))
    assert not any(p.requires_grad for p in model.parameters())


def test_plain_weights_and_safetensors_load_too(tmp_path):
    """Oracle: the same outputs; the names of other wrappers and of broadcast statistics."""
    folder = hub(tmp_path) / VARIANT
    torch.save({"mean_broadcast": torch.zeros(4), "std_broadcast": torch.ones(4)}, folder / "latent_stats.pt")
    for content in ({"state_dict": WEIGHTS}, WEIGHTS):
        torch.save(content, folder / CHECKPOINT)
        check(load_compressor(tmp_path))
    (folder / CHECKPOINT).unlink()
    save_file(WEIGHTS, folder / "checkpoint_1.safetensors")
    check(load_compressor(tmp_path))


def test_saved_as_ours_it_stays_the_same(tmp_path):
    """Oracle: the reference's outputs after a round trip through lwd.semvae version 2."""
    save_semvae(load_compressor(hub(tmp_path / "hub")), tmp_path / "ours")
    about = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert (about["version"], about["architecture"]) == (2, "sefi")
    check(load_semvae(tmp_path / "ours"))
    check(load_compressor(tmp_path / "ours"))
    for changes, facts in (
        ({"architecture": None}, (2, "architecture")),
        ({"architecture": "other"}, ("architecture", "sefi", "rotary", "other")),
        ({"version": 1}, (1, "architecture")),
        ({"version": 3}, (3, 2)),
    ):
        (tmp_path / "ours" / "config.json").write_text(json.dumps(about | changes))
        with pytest.raises(lwd.InputError, match=says("config.json", *facts)):
            load_semvae(tmp_path / "ours")


def test_published_shape_and_default_size():
    """Oracle: SeFi-Image's numbers (1024 features and width, 4 blocks, 8 heads); the paper's 29M at 768 features."""
    with torch.device("meta"):
        large = SemVAE(SemVAEConfig(features=1024, channels=16, depth=4, heads=8), "sefi")
        base = SemVAE(SemVAEConfig(), "sefi")
    counts = [sum(p.numel() for p in model.parameters()) / 1e6 for model in (large, base)]
    block = 12 * 1024**2 + 13 * 1024
    assert counts[0] * 1e6 == 8 * block + 2 * 1024**2 + 2 * 1024 + 4 * 1024 + 1024 * 32 + 32 + 16 * 1024 + 1024
    assert abs(counts[1] - 29.6) < 0.1


def test_positions_do_not_matter():
    """Oracle: permuted tokens give permuted latents, which rotary positions would not."""
    torch.manual_seed(0)
    model, data = SemVAE(SemVAEConfig(features=8, channels=2, depth=1, heads=2), "sefi").eval(), torch.randn(2, 8, 3, 4)
    assert_close(model.encode(data.flip(3)).flip(3), model.encode(data), atol=1e-5, rtol=1e-5)
    assert model.encode(data[:, :, :2]).shape == (2, 2, 2, 4)
    with pytest.raises(lwd.InputError, match=says("width", 10, "heads", 4)):
        SemVAEConfig(features=10, heads=4)
    with pytest.raises(lwd.InputError, match=says("width", 12, "heads", 2)):
        SemVAE(SemVAEConfig(features=12, heads=2), "rotary")


def test_images_are_encoded_with_it(tmp_path):
    """Oracle: the semantic latents in the shards are the posterior means of the features; other files are noticed."""
    import numpy as np

    pictures = np.random.default_rng(0).integers(0, 256, (6, 16, 16, 3), np.uint8)
    source = ArraySource("noise", ("a",), pictures, np.zeros(6, np.int64))
    PatchAutoencoder.small(4, 4, 32, 1).save((tmp_path / "ae").mkdir() or tmp_path / "ae")

    def features(images):
        return torch.nn.functional.avg_pool2d(images, 4).repeat(1, 8, 1, 1)

    def encoders():
        texture = lwd.TextureAutoencoder.load(tmp_path / "ae")
        return Encoders.of(texture, CallableEncoder(features, "means"), load_compressor(hub_root))

    hub_root = hub(tmp_path / "hub")
    encode(source, tmp_path / "latents", encoders(), lwd.EncodeSettings(threads=1))
    assert verify(tmp_path / "latents") == []
    found = load_file(tmp_path / "latents" / "shard-00000.safetensors")["latents_sv"]
    images = torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 127.5 - 1
    assert_close(found, load_compressor(hub_root).encode(features(images)), atol=1e-5, rtol=1e-5)
    with pytest.raises(lwd.InputError, match=says(24, 8)):
        load_compressor(hub_root).encode(torch.zeros(1, 8, 4, 4))


def test_the_record_names_the_files(tmp_path, monkeypatch):
    """Oracle: a checksum that changes with the weights, and is the same for a copy elsewhere."""
    import shutil

    monkeypatch.setattr("lwd.latents.encoders.load_encoder", lambda _: CallableEncoder(lambda x: x, "pixels"))
    hub(tmp_path / "one" / "vae")
    shutil.copytree(tmp_path / "one" / "vae", tmp_path / "two" / "vae")
    hub(tmp_path / "three" / "vae", weights={name: tensor + 1e-3 for name, tensor in WEIGHTS.items()})
    records = [Encoders.load("fashion", "x", str(tmp_path / name / "vae")).record for name in ("one", "two", "three")]
    assert records[0] == records[1]
    assert records[0]["compressor"] != records[2]["compressor"]


def test_bad_downloads(tmp_path):
    """Oracle: the file and the fact in the message."""
    folder = hub(tmp_path) / VARIANT
    checkpoint, statistics = folder / CHECKPOINT, folder / "latent_stats.pt"
    whole, numbers = checkpoint.read_bytes(), statistics.read_bytes()

    def fails(*facts):
        with pytest.raises(lwd.InputError, match=says(*facts)):
            load_compressor(tmp_path)

    checkpoint.write_bytes(whole[: len(whole) // 2])
    fails("checkpoint_01000000.pt")
    torch.save({"model_state_dict": WEIGHTS, "code": Path}, checkpoint)
    fails("checkpoint_01000000.pt", "pathlib.Path")
    torch.save({"weight": torch.zeros(3)}, checkpoint)
    fails("checkpoint_01000000.pt", "SeFi-Image", "encoder")
    torch.save({name: t for name, t in WEIGHTS.items() if name != "decoder.1.mlp.2.bias"}, checkpoint)
    fails("checkpoint_01000000.pt", "decoder.0.mlp.fc2.bias")
    torch.save(WEIGHTS | {"head.weight": torch.zeros(3)}, checkpoint)
    fails("checkpoint_01000000.pt", "head.weight")
    checkpoint.unlink()
    fails("latent_stats.pt", "checkpoint")
    checkpoint.write_bytes(whole)
    for content, facts in (
        ({"mean": torch.zeros(4)}, "std"),
        ({"mean": torch.zeros(3), "std": torch.ones(3)}, ("mean", 4)),
        ({"mean": torch.zeros(4), "std": torch.zeros(4)}, ("std",)),
        ([1], "mean"),
    ):
        torch.save(content, statistics)
        fails("latent_stats.pt", *(facts if isinstance(facts, tuple) else (facts,)))
    statistics.unlink()
    fails("latent_stats.pt")
    statistics.write_bytes(numbers)
    (folder / "config.json").write_text('{"num_heads": "many"}')
    fails("config.json", "num_heads", "many")
    (folder / "config.json").write_text('{"num_heads": 5}')
    fails("heads", 5)
    (folder / "checkpoints" / "checkpoint_2.pt").write_bytes(whole)
    fails(2, "checkpoint_2.pt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(lwd.InputError, match=says("empty")):
        load_compressor(tmp_path / "empty")
