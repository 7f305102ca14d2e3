"""What a reproduction finds in its directory is used only if it fits: data, schedule, model, samples, metrics."""

import json
import os
import shutil
from pathlib import Path

import pytest

import lwd
from lwd.io.files import read_json, write_json
from lwd.io.tensors import read_safetensors, write_safetensors
from lwd.reproduce.formats import ReproductionFile, TableFile
from lwd.reproduce.run import describe_plan, reproduce
from lwd.reproduce.settings import ReproduceSettings
from messages import says
from reproduce.small import SMALL
from stand_ins import few_fashion, few_semantic

ONE = SMALL.changed(
    models=(SMALL.models[1].changed(steps=(2,)),), guided=(), baseline="learned", latents=SMALL.latents[:1]
)
ONE = ONE.changed(robustness_steps=2, draw=ONE.draw.changed(count=10, steps=1))
KEPT = Path("train/learned-seed0/kept/00000002")
SAMPLES = Path("samples/learned-seed0-2")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished table of one model."""
    folder = tmp_path_factory.mktemp("done")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lwd.latents.embedded.load_fashion", few_fashion)
        patch.setattr("lwd.latents.embedded.fashion_semantic", few_semantic)
        patch.setenv("LWD_CACHE", str(tmp_path_factory.mktemp("cache")))
        run(folder / "out")
    return folder / "out"


@pytest.fixture
def out(done, tmp_path):
    return Path(shutil.copytree(done, tmp_path / "out"))


def run(out, **settings):
    return reproduce("unguided", out, ReproduceSettings(**settings), lambda _: None, ONE)


def change(path, *keys, value):
    content = read_json(path)
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    write_json(path, content)


def other_latents(out):
    change(out / "latents" / "pca8" / "manifest.json", "shards", 0, "sha256", value="0" * 64)


def other_schedule(out):
    lwd.save_schedule(lwd.Offset(0.3), out / "probe" / "pca8-lambda0.02" / "schedule.json")


def other_model(out):
    path = out / KEPT / "model.safetensors"
    write_safetensors(path, {name: tensor + 1 for name, tensor in read_safetensors(path).items()})
    os.utime(path)


def other_samples(out):
    change(out / SAMPLES / "evaluation.json", "samples", "model", "digest", value="0" * 16)


def other_encoder(out):
    change(out / SAMPLES / "evaluation.json", "encoder", value="resnet50")


@pytest.mark.parametrize(
    ("spoil", "facts"),
    [
        (other_latents, ("probe", "data")),
        (other_schedule, (str(KEPT), "schedule")),
        (other_model, (str(SAMPLES), "model")),
        (other_samples, (str(SAMPLES), "evaluation.json")),
        (other_encoder, ("evaluation.json", "resnet50", "fashion")),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_does_not_fit_is_refused(out, spoil, facts):
    """Oracle: the same directory is taken before; after the change the message names the place."""
    run(out)
    spoil(out)
    with pytest.raises(lwd.InputError, match=says(*facts)):
        run(out)


def test_a_copy_fits(out):
    """Oracle: all files are newer, but the same."""
    for path in (out / KEPT).iterdir():
        os.utime(path)
    run(out)


def test_latents_that_are_elsewhere_are_not_missed(out):
    """Oracle: models that were trained elsewhere are used without their latents."""
    (out / "latents").rename(out / "moved")
    (out / "unguided.md").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lwd.reproduce.latents.EmbeddedLatents.run", lambda *_: None)
        run(out)
    assert (out / "unguided.md").is_file()


def test_features_from_images_are_passed_on():
    """Oracle: the plan: every training with alignment, and no other."""
    settings = ReproduceSettings(scale="imagenet256", align_images="imagenet/train")
    lines = describe_plan("unguided", "out", settings).splitlines()
    trains = [line for line in lines if line.startswith("lwd train")]
    found = {line.split("--preset ")[1].split()[0]: "alignment.images=imagenet/train" in line for line in trains}
    wanted = {"lightningdit-xl": False, "lightningdit-xl-repa": True, "sync-xl": True, "sfd-xl": True, "lwd-xl": True}
    assert found == wanted


def test_the_table_says_whether_the_probe_is_repeated(out):
    """Oracle: seed 0 has the probe of the preset, seed 1 its own; the choice is part of the directory."""
    plan = describe_plan("unguided", "out", ReproduceSettings(seeds=(0, 1), repeat_probe=True), ONE)
    lines = [line for line in plan.splitlines() if line.startswith("lwd")]
    probes = [line for line in lines if line.startswith("lwd probe")]
    assert [("run.seed=1" in line, line.endswith("lambda0.02-seed1")) for line in probes] == [(False,) * 2, (True,) * 2]
    trains = [line for line in lines if line.startswith("lwd train")]
    assert ["lambda0.02-seed1/schedule.json" in line for line in trains] == [False, True]
    plain = describe_plan("unguided", "out", ReproduceSettings(seeds=(0, 1)), ONE)
    assert plain.count("lwd probe") == 1
    assert any("learned once" in note for note in TableFile.read(out / "unguided.json").notes)
    with pytest.raises(lwd.InputError, match="repeat-probe"):
        run(out, repeat_probe=True)
    old = json.loads((out / "reproduce.json").read_text())
    del old["repeat_probe"]
    (out / "reproduce.json").write_text(json.dumps(old))
    assert ReproductionFile.read(out / "reproduce.json").repeat_probe is False
    run(out)
