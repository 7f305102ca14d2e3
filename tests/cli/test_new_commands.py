"""Bad input and Ctrl-C on the commands that are new in 0.2: one line, an exit code, nothing half-written."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import lwd
from lwd.latents.reader import LatentReader
from lwd.representations.judge import load_judge
from lwd.representations.pca import PCAFit, save_pca
from lwd.representations.texture import PatchAutoencoder, from_uint8
from lwd.training.config import weak_partner
from messages import exit_code, says

SMALL = ("network.depth=1", "network.width=32", "network.heads=2", "run.batch=4", "probe.steps=3", "probe.burn_in=1")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Pictures, an autoencoder, a compressor, latents; and the same with their ends cut off."""
    root = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    for i in range(8):
        (root / "images" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (28, 28, 3), np.uint8)).save(root / "images" / "ab"[i % 2] / f"{i}.png")
    torch.manual_seed(0)
    PatchAutoencoder.small(channels=4, patch=7, width=32, depth=1).eval().save(root / "ae")
    pixels = from_uint8(torch.from_numpy(rng.integers(0, 256, (40, 28, 28, 3), np.uint8)))
    with torch.no_grad():
        save_pca(PCAFit().update(load_judge()(pixels)).finish(2), root / "pca")
    words = ["encode", root / "images", "--texture", root / "ae", "--semantic", "fashion", "--compress", root / "pca"]
    assert exit_code([*words, "--out", root / "latents", "--shard-size", "4", "--device", "cpu"]) == 0
    for name, file in (("pca", "pca.safetensors"), ("latents", "shard-00001.safetensors")):
        shutil.copytree(root / name, root / f"cut-{name}")
        path = root / f"cut-{name}" / file
        path.write_bytes(path.read_bytes()[:-40])
    (root / "cut-model").mkdir()
    (root / "cut-model" / "config.json").write_text('{"format": "lwd.mod')
    (root / "guided.yaml").write_text("base: fashion-small\nsampling: {guide: nobody}\n")
    return root


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """A working directory with the files by their short names, and a cache of its own."""
    for path in made.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LWD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # else it tries to connect for seconds
    return tmp_path


ENCODE = "encode images --texture ae --device cpu --out out"
PAIR = f"{ENCODE} --semantic fashion --compress pca"
PROBE = "probe latents --cpu --out out " + " ".join(f"--set {change}" for change in SMALL)
BAD = {
    "encoder that is not there": (f"{ENCODE} --semantic a=nowhere/x --compress a=pca", "nowhere/x"),
    "alignment encoder that is not there": (f"{PAIR} --align nowhere/x", "nowhere/x"),
    "directory that is no encoder": (f"{PAIR} --align pca", "pca"),
    "names twice": (f"{ENCODE} --semantic a=fashion --semantic a=fashion --compress a=pca", "a=fashion"),
    "compressor of another name": (f"{ENCODE} --semantic a=fashion --compress b=pca", ("a", "b", "--compress")),
    "no compressor": (f"{ENCODE} --semantic a=fashion", "--compress"),
    "reserved name": (f"{ENCODE} --semantic texture=fashion --compress texture=pca", "texture"),
    "empty name": (f"{ENCODE} --semantic =fashion --compress pca", "=fashion"),
    "empty encoder": (f"{ENCODE} --semantic a= --compress a=pca", "a="),
    "truncated compressor": (f"{ENCODE} --semantic a=fashion --compress a=cut-pca", "cut-pca/pca.safetensors"),
    "autoencoder as compressor": (f"{ENCODE} --semantic a=fashion --compress a=ae", "ae"),
    "compressor as autoencoder": (PAIR.replace("--texture ae", "--texture pca"), "pca"),
    "embedded with features": (f"{ENCODE.replace('images', 'fashion')} --semantic embedded --align fashion", "--align"),
    "images that are not there": (PAIR.replace("images", "none"), "none"),
    "starts that are words": (f"{PROBE} --starts 0,x", ("0,x", "--starts")),
    "start beyond 1": (f"{PROBE} --starts 0,1.5", ("1.5", "--starts")),
    "start below 0": (f"{PROBE} --starts=-0.1,0", ("-0.1", "--starts")),
    "start and starts": (f"{PROBE} --starts 0,0.3 --start 0.1", ("--start", "--starts")),
    "starts of a surface probe": (f"{PROBE} --starts 0,0.3 --method surface", "--starts"),
    "latents that are not there": (f"{PROBE.replace('latents', 'none')} --starts 0,0.3", "none"),
    "truncated latents": (f"{PROBE.replace('latents', 'cut-latents')} --starts 0,0.3", "shard-00001.safetensors"),
    "recipe that is not there": ("sample --recipe sfd-xl-900 --out out", ("sfd-xl-900", "sfd-xl-80-unguided")),
    "recipe that is not fetched": ("sample --recipe sfd-xl-800-unguided --out out", ("sfd-xl", "lwd fetch sfd-xl")),
    "recipe with a truncated model": (
        "sample --recipe sfd-xl-800-unguided --model cut-model --out out", "cut-model/config.json",
    ),
    "recipe with an autoencoder": ("sample --recipe sfd-xl-800-unguided --model ae --out out", "ae/config.json"),
    "recipe with another count": ("sample --recipe sfd-xl-800-unguided --count 0 --out out", ("count", 0)),
    "published name": ("fetch sfd-xll", ("sfd-xll", "sfd-xl")),
    "copy that is not there": ("fetch sfd-xl --from none", "none"),
    "copy with a missing file": (
        "fetch sfd-xl --from images", ("images", "model_weights/sfd_xl/checkpoints/4000000.pt"),
    ),
    "copy with a revision": ("fetch sfd-xl --from images --revision v1", "--revision"),
    "weak model of an unknown guide": (
        "train latents --preset guided.yaml --weak --schedule offset:0.3 --cpu --out out", ("guided.yaml", "nobody"),
    ),
    "reproduction with truncated latents": (
        "reproduce schedules --latents pca8=cut-latents --out out", ("cut-latents", "shard-00001.safetensors"),
    ),
    "reproduction without its reference": (
        "reproduce unguided --reference none.npz --out out", ("none.npz", "--reference"),
    ),
    "reproduction with another decoder": ("reproduce unguided --decoder pca --out out", ("pca", "--decoder")),
    "reproduction with an unknown encoder": ("reproduce unguided --encoder nowhere/x --out out", "nowhere/x"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_one_line_and_nothing_half_written(here, capsys, case):
    """Oracle: exit code 2, one line with the facts, no output directory, no model in the cache."""
    words, facts = BAD[case]
    assert exit_code(words.split()) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("lwd")]
    assert len(said) == 1, said
    assert says(facts).search(said[0]), said
    out = here / "out"
    assert not [path for path in out.rglob("*") if path.is_file()] if out.exists() else True
    models = here / "cache" / "models"
    assert not [path for path in models.iterdir() if not path.name.endswith(".lock")] if models.exists() else True


@pytest.mark.usefixtures("here")
def test_the_guide_of_a_preset_is_named_with_it():
    """Oracle: a preset that exists names a guide that does not."""
    with pytest.raises(lwd.InputError, match=says("guided.yaml", "nobody")):
        weak_partner("guided.yaml")


def once(monkeypatch, place):
    """Ctrl-C at the first call."""

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(place, interrupt)


STOPS = {
    "encode": (f"{PAIR} --align fashion", "lwd.latents.encode.write_shard", 130),
    "probe": (f"{PROBE} --starts 0,0.3", "lwd.training.trainer.Trainer.advance", 130),
    "fetch": ("fetch sfd-statistics --from copy", "lwd.checkpoints.fetch.save_statistics", 130),
    "sample": (
        "sample --model fashion --count 4 --solver euler --steps 1 --out out", "lwd.sampling.samples.write_json", 130,
    ),
    "reproduce": ("reproduce schedules --out out", "lwd.reproduce.latents.encode_embedded", 3),
}  # fmt: skip


@pytest.mark.parametrize("name", STOPS)
def test_ctrl_c_is_one_line(here, capsys, monkeypatch, name):
    """Oracle: the exit codes of docs/troubleshooting.md; no manifest, schedule or model of a job that did not end."""
    if name == "fetch":
        _copy(here / "copy")
    words, place, code = STOPS[name]
    once(monkeypatch, place)
    assert exit_code(words.split()) == code
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("lwd")]
    assert len(said) == 1, said
    ends = {"manifest.json", "schedule.json", "origin.json", "schedules.json"}
    found = [p for folder in ("out", "cache") for p in (here / folder).rglob("*") if p.name in ends]
    assert [p for p in found if "checkpoints" not in p.parts] == []


def _copy(place):
    """A local copy of the hub with SFD's statistics."""
    from lwd.checkpoints.published import PUBLISHED

    entry = PUBLISHED["sfd-statistics"]
    for group, file in entry.files().items():
        path = place / file.repository / file.folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        width = entry.groups[group]
        torch.save({"mean": torch.zeros(1, width, 1, 1), "std": torch.ones(1, width, 1, 1)}, path)


def test_encoding_goes_on_after_ctrl_c(here, capsys):
    """Oracle: the shards of an undisturbed run, byte for byte."""
    words = f"{ENCODE} --semantic fashion --compress pca --align fashion --shard-size 4".split()
    with pytest.MonkeyPatch.context() as patch:
        from lwd.latents import encode

        real, calls = encode.write_shard, []

        def second(*arguments):
            calls.append(arguments)
            if len(calls) > 1:
                raise KeyboardInterrupt
            return real(*arguments)

        patch.setattr(encode, "write_shard", second)
        assert exit_code(words) == 130
    assert exit_code(words) == 0
    assert exit_code([*words[:-1], "4", "--out", "calm"]) == 0
    for name in ("shard-00000.safetensors", "shard-00001.safetensors", "manifest.json"):
        assert (here / "out" / name).read_bytes() == (here / "calm" / name).read_bytes()
    assert LatentReader(here / "out", features=True).feature_width == 64
    capsys.readouterr()


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_sigint_saves_a_probe_from_several_starts():
    """Oracle: exit code 3, and the schedule of an undisturbed run."""
    words = [sys.executable, "-m", "lwd", *PROBE.split(), "--starts", "0,0.3", "--set", "probe.steps=400"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a background job starts with it ignored
    process = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True, preexec_fn=heard)
    journal = Path("out/start-0/metrics.jsonl")
    while not (journal.exists() and journal.stat().st_size) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert (process.returncode, said.count("lwd: ")) == (3, 1)
    assert not Path("out/schedule.json").exists()
    subprocess.run(words, env=environment, check=True, capture_output=True)
    words[words.index("out")] = "calm"
    subprocess.run(words, env=environment, check=True, capture_output=True)
    one, two = (json.loads(Path(place, "schedule.json").read_text())["rho"] for place in ("out", "calm"))
    assert one == two
