"""Images to shards: the latents they claim to be, the same bytes whatever happens on the way."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

import lwd
from lwd.cli import main
from lwd.data.reader import LatentReader, verify
from lwd.data.sources import ArraySource, FolderSource
from lwd.encode import Encoders, EncodeSettings, encode, load_compressor
from lwd.representations.encoders import CallableEncoder
from lwd.representations.pca import PCAFit, save_pca
from lwd.representations.semvae import SemVAE, SemVAEConfig, save_semvae
from lwd.representations.texture import PatchAutoencoder, from_uint8

SETTINGS = EncodeSettings(shard_size=10, batch=4)


def gradients(images):
    """A semantic 'encoder' without weights: local averages and differences on an 8x8 grid."""
    small = torch.nn.functional.avg_pool2d(images, images.shape[-1] // 8)
    return torch.cat([small, small - small.roll(1, 3), small.square()], 1)


def pictures(count=37, size=16, seed=0):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, size, size, 3), np.uint8)
    return ArraySource("pictures", ("a", "b", "c"), images, np.arange(count) % 3)


def encoders(pca=None):
    torch.manual_seed(0)
    features = gradients(from_uint8(torch.from_numpy(pictures().images)))
    pca = pca or PCAFit().update(features).finish(2)
    autoencoder = PatchAutoencoder.small(channels=4, width=32, depth=1).eval()
    return Encoders(autoencoder, CallableEncoder(gradients, "gradients"), pca, {"texture": "random", "semantic": "toy"})


def content(directory):
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def test_rows_are_the_encodings_of_their_images(tmp_path):
    """Oracle: the networks called by hand on one image and on its mirror image; exact statistics; features kept."""
    source, tools = pictures(), encoders()
    settings = EncodeSettings(shard_size=10, batch=4, features=True)
    assert "37 images in 4 shards" in encode(source, tmp_path / "s", tools, settings)
    assert verify(tmp_path / "s") == []
    reader = LatentReader(tmp_path / "s", features=True)
    assert (len(reader), str(reader.layout), reader.classes, reader.mirrored) == (37, "texture=4,semantic=2", 3, True)
    for i, flip in ((0, False), (13, True), (36, False)):
        batch = reader.gather(np.array([i]), np.array([flip]))
        image = from_uint8(torch.from_numpy(source.images[i : i + 1]))
        image = image.flip(3) if flip else image
        with torch.no_grad():
            texture = tools.autoencoder.encode(image)
            features = torch.nn.functional.interpolate(gradients(image), (4, 4), mode="bilinear", antialias=True)
        raw = reader.statistics.denormalize(batch.latents, reader.layout)
        assert_close(raw[:, :4], texture, atol=1e-5, rtol=1e-5)
        assert_close(raw[:, 4:], tools.compressor.encode(features), atol=1e-5, rtol=1e-5)
        assert_close(batch.features, features, atol=1e-5, rtol=1e-5)
        assert batch.labels.item() == i % 3
    everything = torch.cat([reader.gather(np.arange(37), np.full(37, flip)).latents for flip in (False, True)])
    rows = everything.transpose(0, 1).flatten(1)
    assert_close(rows.mean(1), torch.zeros(6), atol=1e-5, rtol=0)
    assert_close(rows.std(1, correction=0), torch.ones(6), atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_dtypes(tmp_path, dtype):
    encode(pictures(5), tmp_path / "s", encoders(), EncodeSettings(dtype=dtype))
    full = encode(pictures(5), tmp_path / "f", encoders(), EncodeSettings())
    assert "5 images in 1 shards" in full
    low, high = (LatentReader(tmp_path / d).gather(np.arange(5), np.zeros(5, bool)).latents for d in "sf")
    assert_close(low, high, atol=0.05, rtol=0)


@pytest.mark.parametrize("world", [2, 3])
def test_any_number_of_processes_gives_the_same_bytes(tmp_path, world):
    """Oracle: every file of the directory of one process. The order in which ranks finish does not matter."""
    encode(pictures(), tmp_path / "one", encoders(), SETTINGS)
    for rank in reversed(range(world)):
        text = encode(pictures(), tmp_path / "many", encoders(), SETTINGS, rank, world)
        assert ("the manifest follows" in text) == (rank > 0)
    assert content(tmp_path / "many") == content(tmp_path / "one")


def test_a_directory_that_is_whole_is_left_alone(tmp_path):
    encode(pictures(), tmp_path / "s", encoders(), SETTINGS)
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "s").rglob("*")}
    encode(pictures(), tmp_path / "s", encoders(), SETTINGS)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "s").rglob("*")} == before


def test_truncated_and_missing_shards_are_made_again(tmp_path):
    """Oracle: the bytes of an undisturbed run."""
    encode(pictures(), tmp_path / "one", encoders(), SETTINGS)
    encode(pictures(), tmp_path / "two", encoders(), SETTINGS)
    (tmp_path / "two" / "manifest.json").unlink()
    spoiled = tmp_path / "two" / "shard-00001.safetensors"
    spoiled.write_bytes(spoiled.read_bytes()[:-7])
    (tmp_path / "two" / "shard-00002.safetensors").unlink()
    (tmp_path / "two" / "parts" / "00003.json").unlink()
    encode(pictures(), tmp_path / "two", encoders(), SETTINGS)
    assert content(tmp_path / "two") == content(tmp_path / "one")


def test_other_settings_do_not_mix(tmp_path):
    encode(pictures(), tmp_path / "s", encoders(), SETTINGS)
    with pytest.raises(lwd.InputError, match="begun with other settings"):
        encode(pictures(), tmp_path / "s", encoders(), EncodeSettings(shard_size=10, batch=5))
    with pytest.raises(lwd.InputError, match="begun with other images"):
        encode(pictures(12), tmp_path / "s", encoders(), SETTINGS)
    other = Encoders(*(getattr(encoders(), n) for n in ("autoencoder", "encoder", "compressor")), {"texture": "else"})
    with pytest.raises(lwd.InputError, match="begun with other encoders"):
        encode(pictures(), tmp_path / "s", other, SETTINGS)
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "x.safetensors").write_bytes(b"")
    with pytest.raises(lwd.InputError, match="shards of something else"):
        encode(pictures(), tmp_path / "t", encoders(), SETTINGS)


def folder(root, count=11):
    for i in range(count):
        path = root / f"class{i % 2}" / f"{i:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pictures(count, size=20 + i % 2).images[i]).save(path)
    return root


def test_bad_images_stop_the_run_or_are_counted(tmp_path):
    """Oracle: the name in the message; with skip_bad every other image is there, in order."""
    root = folder(tmp_path / "images")
    (root / "class0" / "004.png").write_bytes(b"broken")
    settings = {"shard_size": 4, "batch": 3, "size": 16}
    with pytest.raises(lwd.InputError, match=r"004\.png is not a readable image.*--skip-bad"):
        encode(FolderSource(root), tmp_path / "s", encoders(), EncodeSettings(**settings))
    assert not (tmp_path / "s" / "manifest.json").exists()
    text = encode(FolderSource(root), tmp_path / "t", encoders(), EncodeSettings(**settings, skip_bad=True))
    assert "10 images in 3 shards, 1 unreadable images left out" in text
    assert "004.png" in text
    assert LatentReader(tmp_path / "t").labels.tolist() == [0] * 5 + [1] * 5
    with pytest.raises(lwd.InputError, match="pass --size"):
        encode(FolderSource(folder(tmp_path / "mixed")), tmp_path / "u", encoders(), EncodeSettings())


def prepared(tmp_path):
    """Everything that the command needs, in directories."""
    root = folder(tmp_path / "images", 24)
    tools = encoders()
    (tmp_path / "ae").mkdir()
    tools.autoencoder.save(tmp_path / "ae")
    dino = pytest.importorskip("transformers")
    config = dino.Dinov2Config(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=7, intermediate_size=32
    )
    torch.manual_seed(1)
    dino.Dinov2Model(config).save_pretrained(tmp_path / "dino")
    save_pca(
        PCAFit().update(torch.randn(40, 16, 4, 4, generator=torch.Generator().manual_seed(2))).finish(3),
        tmp_path / "pca",
    )
    return [
        "encode", str(root), "--texture", str(tmp_path / "ae"), "--semantic", f"{tmp_path / 'dino'}@28",
        "--compress", str(tmp_path / "pca"), "--size", "16", "--shard-size", "2", "--batch", "2",
    ]  # fmt: skip


def test_the_command(tmp_path, capsys):
    arguments = prepared(tmp_path)
    assert main([*arguments, "--out", str(tmp_path / "o")]) == 0
    assert "24 images in 12 shards" in capsys.readouterr().out
    assert main(["data", "verify", str(tmp_path / "o")]) == 0
    manifest = json.loads((tmp_path / "o" / "manifest.json").read_text())
    assert "dinov2" in manifest["provenance"]["encoders"]["semantic"]
    show = ["data", "show", str(tmp_path / "o")]
    assert main([*show, "--texture", str(tmp_path / "ae"), "--out", str(tmp_path / "sheet.png")]) == 0
    assert "24 in 12 shards, 2 classes" in capsys.readouterr().out
    sheet = np.asarray(Image.open(tmp_path / "sheet.png"))
    assert sheet.shape == (3 * 96 + 2 * 4, 12 * 96, 3)
    assert all(sheet[96 * i + 4 * i + 2 : 96 * i + 90].std() > 5 for i in range(3))
    assert main([*show, "--out", "x.jpg"]) == 2
    assert main([*show, "--images", str(tmp_path / "dino")]) == 2
    capsys.readouterr()
    spoiled = tmp_path / "o" / "shard-00003.safetensors"
    spoiled.write_bytes(spoiled.read_bytes()[:-1] + b"?")
    capsys.readouterr()
    assert main(["data", "verify", str(tmp_path / "o")]) == 2
    assert "shard-00003.safetensors was changed" in capsys.readouterr().err
    for change, message in (
        ({"--compress": str(tmp_path / "ae")}, "not a compressor"),
        ({"--texture": str(tmp_path / "images")}, "no config.json"),
        ({"--dtype": "int8"}, "no dtype"),
        ({"--batch": "0"}, "at least 1"),
    ):
        flat = [*arguments, "--out", str(tmp_path / "p")]
        for key, value in change.items():
            flat += [key, value]
        assert main(flat) == 2
        err = capsys.readouterr().err
        assert message in err
    assert main(["encode", "nowhere", *arguments[2:], "--out", str(tmp_path / "p")]) == 2
    assert "neither a directory" in capsys.readouterr().err


def test_compressors_are_told_apart(tmp_path):
    save_pca(PCAFit().update(torch.randn(9, 8, 2, 2)).finish(3), tmp_path / "pca")
    save_semvae(SemVAE(SemVAEConfig(features=8, channels=2, depth=1, heads=1)), tmp_path / "vae")
    assert [load_compressor(tmp_path / name).channels for name in ("pca", "vae")] == [3, 2]


@pytest.mark.slow
def test_killed_ten_times_it_ends_with_the_same_bytes(tmp_path):
    """Oracle: an undisturbed run of the command; SIGKILL at random moments, then run again."""
    arguments = prepared(tmp_path)
    command = [sys.executable, "-m", "lwd", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    start = time.monotonic()
    subprocess.run([*command, "--out", str(tmp_path / "calm")], check=True, env=environment, capture_output=True)
    whole, chance = time.monotonic() - start, random.Random(0)
    for _ in range(10):
        process = subprocess.Popen(
            [*command, "--out", str(tmp_path / "rough")],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(whole * chance.uniform(0.6, 1.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([*command, "--out", str(tmp_path / "rough")], check=True, env=environment, capture_output=True)
    assert content(tmp_path / "rough") == content(tmp_path / "calm")


@pytest.mark.slow
def test_torchrun_gives_the_same_bytes(tmp_path):
    """Oracle: one process; two under torchrun, with as many threads each."""
    arguments = prepared(tmp_path)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    subprocess.run(
        [sys.executable, "-m", "lwd", *arguments, "--out", str(tmp_path / "one")], check=True, env=environment
    )
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "lwd", *arguments]
    subprocess.run([*run, "--out", str(tmp_path / "two")], check=True, env=environment)
    assert content(tmp_path / "two") == content(tmp_path / "one")
