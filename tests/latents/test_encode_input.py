"""What `lwd encode` refuses: other settings, bad images, weights and compressors that do not fit."""

import json
from dataclasses import replace

import pytest
import torch
from PIL import Image

import lwd
from latents.toy import SETTINGS, encoders, folder, gradients, pictures, prepared
from lwd.cli import main
from lwd.images.sources import FolderSource
from lwd.latents.encode import encode
from lwd.latents.encoders import Encoders, load_compressor
from lwd.latents.reader import LatentReader
from lwd.latents.settings import EncodeSettings
from lwd.latents.verify import verify
from lwd.representations.encoders import CallableEncoder, Origin
from lwd.representations.pca import PCAFit, save_pca
from lwd.representations.semvae import SemVAE, SemVAEConfig, save_semvae
from lwd.representations.texture import PatchAutoencoder, from_uint8
from messages import says


def test_other_settings_do_not_mix(tmp_path):
    encode(pictures(), tmp_path / "s", encoders(), SETTINGS)
    with pytest.raises(lwd.InputError, match=says("batch", 4, 5)):
        encode(pictures(), tmp_path / "s", encoders(), EncodeSettings(shard_size=10, batch=5))
    with pytest.raises(lwd.InputError, match=says("images", 37, 12)):
        encode(pictures(12), tmp_path / "s", encoders(), SETTINGS)
    other = replace(encoders(), record={"texture": "else"})
    with pytest.raises(lwd.InputError, match=says("texture", "random", "else")):
        encode(pictures(), tmp_path / "s", other, SETTINGS)
    with pytest.raises(lwd.InputError, match=says("digest")):  # as many images, of the same name, but other pixels
        encode(pictures(seed=1), tmp_path / "s", encoders(), SETTINGS)
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "x.safetensors").write_bytes(b"")
    with pytest.raises(lwd.InputError, match=says("t")):
        encode(pictures(), tmp_path / "t", encoders(), SETTINGS)


def test_bad_images_stop_the_run_or_are_counted(tmp_path):
    """Oracle: the name in the message; with skip_bad every other image is there, in order."""
    root = folder(tmp_path / "images")
    (root / "class0" / "004.png").write_bytes(b"broken")
    settings = {"shard_size": 4, "batch": 3, "size": 16}
    with pytest.raises(lwd.InputError, match=says("004.png")):
        encode(FolderSource(root), tmp_path / "s", encoders(), EncodeSettings(**settings))
    assert not (tmp_path / "s" / "manifest.json").exists()
    text = encode(FolderSource(root), tmp_path / "s", encoders(), EncodeSettings(**settings, skip_bad=True))
    assert says(10, 3, 1).search(text), text
    assert "class0/004.png" in text
    assert LatentReader(tmp_path / "s").labels.tolist() == [0] * 5 + [1] * 5
    with pytest.raises(lwd.InputError, match=says("(20, 20)", "(21, 21)")):
        encode(FolderSource(folder(tmp_path / "mixed")), tmp_path / "u", encoders(), EncodeSettings())


def test_shards_without_a_readable_image_are_left_out(tmp_path, capsys):
    """Oracle: labels and names; the sheet beside the images still works; nothing readable at all is an error."""
    root = folder(tmp_path / "images")
    for i in (0, 2, 4, 6):  # the whole first shard
        (root / "class0" / f"{i:03}.png").write_bytes(b"broken")
    settings = EncodeSettings(shard_size=4, batch=3, size=16, skip_bad=True)
    text = encode(FolderSource(root), tmp_path / "s", encoders(), settings)
    assert says(7, 2, 4, "class0/000.png").search(text), text
    assert verify(tmp_path / "s") == []
    assert LatentReader(tmp_path / "s").labels.tolist() == [0] * 2 + [1] * 5
    left_out = json.loads((tmp_path / "s" / "manifest.json").read_text())["provenance"]["left_out"]
    assert left_out == [[i, f"class0/{2 * i:03}.png"] for i in range(4)]
    assert main(["data", "show", str(tmp_path / "s"), "--images", str(root), "--out", str(tmp_path / "x.png")]) == 0
    assert says(4).search(capsys.readouterr().out)
    for path in root.rglob("*.png"):
        path.write_bytes(b"broken")
    with pytest.raises(lwd.InputError, match=says(11)):
        encode(FolderSource(root), tmp_path / "t", encoders(), settings)


def test_sizes_are_compared_across_shards(tmp_path):
    """Oracle: each shard is uniform, the set is not: found by one process at once, by two at the end."""
    for i in range(4):
        path = tmp_path / "images" / f"{i // 2}" / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pictures(4, size=16 + 8 * (i // 2)).images[i]).save(path)
    source, settings = FolderSource(tmp_path / "images"), EncodeSettings(shard_size=2)
    with pytest.raises(lwd.InputError, match=says(2, "(24, 24)", "(16, 16)")):
        encode(source, tmp_path / "s", encoders(), settings)
    encode(source, tmp_path / "two", encoders(), settings, (0, 2))
    first = (tmp_path / "two" / "parts" / "00000.json").read_bytes()
    (tmp_path / "two" / "parts" / "00000.json").unlink()  # as if both ranks had begun at the same time
    encode(source, tmp_path / "two", encoders(), settings, (1, 2))
    (tmp_path / "two" / "parts" / "00000.json").write_bytes(first)
    with pytest.raises(lwd.InputError, match=says("(16, 16)", "(24, 24)")):
        encode(source, tmp_path / "two", encoders(), settings, (1, 2))


def test_what_does_not_fit_the_dtype_is_named(tmp_path):
    """Oracle: features of 1e6 exceed float16, latents do not; bfloat16 holds them."""
    tools = encoders()
    large = CallableEncoder(lambda images: 1e6 * gradients(images), "large")
    small = PCAFit().update(1e6 * gradients(from_uint8(torch.from_numpy(pictures().images)))).finish(2)
    tools = Encoders.of(tools.autoencoder, large, replace(small, components=small.components * 1e-6))
    with pytest.raises(lwd.InputError, match=says("shard-00000.safetensors", "feats_dino", "float16")):
        encode(pictures(), tmp_path / "s", tools, EncodeSettings(shard_size=10, features=True, dtype="float16"))
    encode(pictures(), tmp_path / "t", tools, EncodeSettings(shard_size=10, features=True, dtype="bfloat16"))


def test_compressors_know_what_they_were_fitted_to(tmp_path):
    """Oracle: one change at a time is refused: another encoder, another grid, another width."""
    tools = encoders()
    right = replace(tools.semantics["semantic"].compressor, origin=Origin("gradients", (4, 4)))
    save_pca(right, tmp_path / "pca")
    assert load_compressor(tmp_path / "pca").origin == Origin("gradients", (4, 4))
    encode(
        pictures(), tmp_path / "s", Encoders.of(tools.autoencoder, tools.semantics["semantic"].encoder, right), SETTINGS
    )
    with pytest.raises(lwd.InputError, match=says("gradients", "other")):
        Encoders.of(tools.autoencoder, CallableEncoder(gradients, "other"), right)
    coarse = replace(right, origin=Origin("gradients", (2, 2)))
    with pytest.raises(lwd.InputError, match=says("2x2", "4x4")):
        encode(
            pictures(),
            tmp_path / "t",
            Encoders.of(tools.autoencoder, tools.semantics["semantic"].encoder, coarse),
            SETTINGS,
        )
    narrow = CallableEncoder(lambda images: gradients(images)[:, :5], "narrow")
    vae = SemVAE(SemVAEConfig(features=8, channels=2, depth=1, heads=1))
    for compressor in (tools.semantics["semantic"].compressor, vae):
        with pytest.raises(lwd.InputError, match=says("(4, 5, 4, 4)")):
            encode(pictures(), tmp_path / "u", Encoders.of(tools.autoencoder, narrow, compressor), SETTINGS)


def test_wrong_processes_and_devices_are_told(tmp_path, monkeypatch, capsys):
    arguments = [*prepared(tmp_path), "--out", str(tmp_path / "o")]
    for rank, world in (("x", "1"), ("0", "0"), ("2", "1"), ("-1", "1")):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", world)
        assert main(arguments) == 2
        assert says("RANK", "WORLD_SIZE").search(capsys.readouterr().err)
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("WORLD_SIZE")
    for extra, facts in (
        (["--size", "-5"], ("size", -5)),
        (["--threads", "0"], ("threads", 0)),
        (["--device", "abacus"], "abacus"),
    ):
        assert main([*arguments, *extra]) == 2
        assert says(facts).search(capsys.readouterr().err)
    assert not (tmp_path / "o").exists()
    with pytest.raises(lwd.InputError, match=says(1)):
        encode(pictures(), tmp_path / "o", encoders(), SETTINGS, (1, 1))


def test_changed_weights_of_the_same_name_do_not_mix(tmp_path, capsys):
    """Oracle: another autoencoder, then other DINOv2 weights, under the path of the first run."""
    arguments = [*prepared(tmp_path), "--out", str(tmp_path / "o")]
    assert main(arguments) == 0
    torch.manual_seed(9)
    PatchAutoencoder.small(channels=4, width=32, depth=1).save(tmp_path / "ae")
    assert main(arguments) == 2
    assert says("texture", "ae").search(capsys.readouterr().err)
    encoders().autoencoder.save(tmp_path / "ae")
    assert main(arguments) == 0
    transformers = pytest.importorskip("transformers")
    model = transformers.Dinov2Model.from_pretrained(tmp_path / "dino")
    model.layernorm.weight.data += 1
    model.save_pretrained(tmp_path / "dino")
    assert main(arguments) == 2
    assert says("semantic", "dinov2").search(capsys.readouterr().err)


def test_compressors_are_told_apart(tmp_path):
    save_pca(PCAFit().update(torch.randn(9, 8, 2, 2)).finish(3), tmp_path / "pca")
    save_semvae(SemVAE(SemVAEConfig(features=8, channels=2, depth=1, heads=1)), tmp_path / "vae")
    assert [load_compressor(tmp_path / name).channels for name in ("pca", "vae")] == [3, 2]
