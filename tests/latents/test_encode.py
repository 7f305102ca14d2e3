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
from latents.toy import SETTINGS, content, encoders, gradients, pictures, prepared
from lwd.cli import main
from lwd.latents.encode import encode
from lwd.latents.encoders import Encoders, Semantic
from lwd.latents.reader import LatentReader
from lwd.latents.settings import EncodeSettings
from lwd.latents.verify import verify
from lwd.representations.encoders import CallableEncoder
from lwd.representations.texture import from_uint8
from messages import exit_code, says


def test_rows_are_the_encodings_of_their_images(tmp_path):
    """Oracle: the networks called by hand on one image and on its mirror image; exact statistics; features kept."""
    source, tools = pictures(), encoders()
    settings = EncodeSettings(shard_size=10, batch=4, features=True)
    assert says(37, 4).search(encode(source, tmp_path / "s", tools, settings))
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
        assert_close(raw[:, 4:], tools.semantics["semantic"].compressor.encode(features), atol=1e-5, rtol=1e-5)
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
    assert says(5, 1).search(full)
    low, high = (LatentReader(tmp_path / d).gather(np.arange(5), np.zeros(5, bool)).latents for d in "sf")
    assert_close(low, high, atol=0.05, rtol=0)


@pytest.mark.parametrize("world", [2, 3])
def test_any_number_of_processes_gives_the_same_bytes(tmp_path, world):
    """Oracle: every file of the directory of one process. The order in which ranks finish does not matter."""
    encode(pictures(), tmp_path / "one", encoders(), SETTINGS)
    for rank in reversed(range(world)):
        text = encode(pictures(), tmp_path / "many", encoders(), SETTINGS, (rank, world))
        assert (tmp_path / "many" / "manifest.json").exists() == (rank == 0), text
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


@pytest.mark.parametrize("damage", ["truncated", "gone", "remaking"])
def test_no_manifest_vouches_for_a_damaged_shard(tmp_path, damage):
    """Oracle: with rank 1's shard damaged, rank 0 alone may not finish; both together give the undisturbed bytes."""
    encode(pictures(), tmp_path / "one", encoders(), SETTINGS)
    encode(pictures(), tmp_path / "two", encoders(), SETTINGS)
    out = tmp_path / "two"
    shard, temporary = out / "shard-00001.safetensors", out / ".shard-00001.safetensors.0123"
    if damage == "gone":
        shard.unlink()
    else:
        shard.write_bytes(shard.read_bytes()[:-7])
    if damage == "remaking":  # rank 1 is at work on it
        temporary.write_bytes(b"half")
        (out / "parts" / "00001.json").unlink()
    encode(pictures(), out, encoders(), SETTINGS, (0, 2))
    assert not (out / "manifest.json").exists()
    assert temporary.exists() == (damage == "remaking")
    encode(pictures(), out, encoders(), SETTINGS, (1, 2))
    assert content(out) == content(tmp_path / "one")


def test_the_machine_does_not_choose_the_threads(tmp_path):
    """Oracle: what the networks see, whatever was set before (torchrun sets 1); the process gets its own back."""
    seen, before = set(), torch.get_num_threads()
    tools = encoders()
    spy = CallableEncoder(lambda images: (seen.add(torch.get_num_threads()), gradients(images))[1], "gradients")
    torch.set_num_threads(1)
    try:
        encode(
            pictures(5),
            tmp_path / "s",
            Encoders.of(tools.autoencoder, spy, tools.semantics["semantic"].compressor),
            SETTINGS,
        )
        assert (seen, torch.get_num_threads()) == ({2}, 1)
    finally:
        torch.set_num_threads(before)
    other = EncodeSettings(shard_size=10, batch=4, threads=1)
    with pytest.raises(lwd.InputError, match=says("threads", 2, 1)):
        encode(
            pictures(5),
            tmp_path / "s",
            Encoders.of(tools.autoencoder, spy, tools.semantics["semantic"].compressor),
            other,
        )


def test_leftovers_go_when_the_set_is_complete(tmp_path):
    encode(pictures(), tmp_path / "s", encoders(), SETTINGS)
    before = content(tmp_path / "s")
    for name in (".manifest.json.01", ".probe.23", ".shard-00000.safetensors.45", "parts/.plan.json.67"):
        (tmp_path / "s" / name).write_bytes(b"")
    encode(pictures(), tmp_path / "s", encoders(), SETTINGS)
    assert content(tmp_path / "s") == before


def test_the_command(tmp_path, capsys):
    arguments = prepared(tmp_path)
    assert main([*arguments, "--out", str(tmp_path / "o")]) == 0
    assert says(24, 12).search(capsys.readouterr().out)
    assert main(["data", "verify", str(tmp_path / "o")]) == 0
    manifest = json.loads((tmp_path / "o" / "manifest.json").read_text())
    assert "dinov2" in manifest["provenance"]["encoders"]["semantic"]
    show = ["data", "show", str(tmp_path / "o")]
    assert main([*show, "--texture", str(tmp_path / "ae"), "--out", str(tmp_path / "sheet.png")]) == 0
    assert says(24, 12, 2).search(capsys.readouterr().out)
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
    assert says("shard-00003.safetensors").search(capsys.readouterr().err)
    for change, facts in (
        ({"--compress": str(tmp_path / "ae")}, "ae"),
        ({"--texture": str(tmp_path / "images")}, ("images", "config.json")),
        ({"--dtype": "int8"}, "int8"),
        ({"--batch": "0"}, ("batch", 0)),
    ):
        flat = [*arguments, "--out", str(tmp_path / "p")]
        for key, value in change.items():
            flat += [key, value]
        assert exit_code(flat) == 2
        err = capsys.readouterr().err
        assert says(facts).search(err), err
    assert main(["encode", "nowhere", *arguments[2:], "--out", str(tmp_path / "p")]) == 2
    assert says("nowhere").search(capsys.readouterr().err)


SLOWED = """
import sys, time
from lwd.cli import main
from lwd.images.sources import FolderSource
read = FolderSource.image
FolderSource.image = lambda self, index: (time.sleep(0.02), read(self, index))[1]
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_killed_ten_times_it_ends_with_the_same_bytes(tmp_path):
    """Oracle: an undisturbed run; SIGKILL at a random moment after each further shard, seen to be a partial state."""
    arguments = prepared(tmp_path)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", SLOWED, *arguments, "--out"]
    subprocess.run([*command, str(tmp_path / "calm")], check=True, env=environment, capture_output=True)
    out, chance, states = tmp_path / "rough", random.Random(0), []
    for kill in range(10):
        process = subprocess.Popen(
            [*command, str(out)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while process.poll() is None and len(list(out.glob("parts/0*.json"))) < 1 + kill:
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        process.wait()
        states.append((len(list(out.glob("shard-*"))), (out / "manifest.json").exists()))
    assert [0 < shards < 12 and not whole for shards, whole in states] == [True] * 10, states
    assert len({shards for shards, _ in states}) >= 5
    subprocess.run([*command, str(out)], check=True, env=environment, capture_output=True)
    assert content(out) == content(tmp_path / "calm")


@pytest.mark.slow
def test_torchrun_gives_the_same_bytes(tmp_path):
    """Oracle: one process; two as torchrun starts them by default, which is with another number of threads."""
    arguments = prepared(tmp_path)
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"} | {"HF_HUB_OFFLINE": "1"}
    subprocess.run(
        [sys.executable, "-m", "lwd", *arguments, "--out", str(tmp_path / "one")], check=True, env=environment
    )
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "lwd", *arguments]
    subprocess.run([*run, "--out", str(tmp_path / "two")], check=True, env=environment)
    assert content(tmp_path / "two") == content(tmp_path / "one")


def test_three_groups_and_an_alignment_encoder_of_its_own(tmp_path):
    """Oracle: each encoder's own latents and features; probe and reader see three clocks."""
    double = CallableEncoder(lambda images: 2 * gradients(images), "twice")
    halves = CallableEncoder(lambda images: gradients(images)[:, :2], "aligned")
    pca = encoders().semantics["semantic"].compressor
    found = {"dino": Semantic(CallableEncoder(gradients, "gradients"), pca), "clip": Semantic(double, pca)}
    three = Encoders(encoders().autoencoder, found, halves)
    encode(pictures(), tmp_path / "three", three, EncodeSettings(shard_size=10, batch=4, features=True))
    reader = LatentReader(tmp_path / "three", features=True)
    assert reader.layout.names == ("texture", "dino", "clip")
    assert reader.shards[0].entries["feats_dino"].shape[1] == 2
    one = reader.batch(0, 4, 0)
    raw = reader.layout.split(reader.statistics.denormalize(one.latents, reader.layout))
    shift = pca.encode(torch.zeros(1, len(pca.mean), 1, 1))
    torch.testing.assert_close(raw["clip"] - shift, 2 * (raw["dino"] - shift), atol=1e-4, rtol=1e-4)
    with pytest.raises(lwd.InputError, match=says("texture")):
        Encoders(three.autoencoder, {"texture": found["dino"]})
    with pytest.raises(lwd.InputError, match=says("a", "b")):
        Encoders.load("fashion", {"a": "resnet50"}, {"b": str(tmp_path)})
