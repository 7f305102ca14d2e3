"""Sets of samples: every sample is a function of its number, whatever the batch, the processes and the kills."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

import lwd
from lwd import LWDPipeline
from lwd.io.tensors import read_safetensors, write_safetensors
from lwd.representations.ldm import autoencoder_from_ldm
from lwd.sampling import samples
from lwd.sampling.flow import Flow
from lwd.sampling.generator import Generator, open_generator
from lwd.sampling.placement import place
from lwd.sampling.samples import generate
from lwd.sampling.settings import SampleSettings
from messages import says
from pipelines import LAYOUT
from pipelines import three_classes as pipeline
from reference import ldm
from sampling.folders import content, picture

HEUN = SampleSettings(count=21, solver="heun", steps=4, batch=8, threads=1)


def images(folder):
    """What must not depend on how the work was cut: everything but the manifest, which names the batch."""
    return {name: value for name, value in content(folder).items() if name != "manifest.json"}


@pytest.mark.parametrize(
    "settings",
    [
        HEUN,
        HEUN.changed(solver="dopri5", steps=None),
        pytest.param(HEUN.changed(solver="ab2", placement="texture"), marks=pytest.mark.slow),
        HEUN.changed(solver="euler-maruyama", steps=8, diffusion={"texture": "sigma:0.5"}),
        pytest.param(
            HEUN.changed(solver="sde-heun", steps=8, placement="shift:0.4", last_step="ode:0.1"), marks=pytest.mark.slow
        ),
    ],
)
def test_samples_do_not_depend_on_batch_order_or_processes(tmp_path, settings):
    """Oracle: the same bytes for one batch and for batches of 8, 5 and 1, for two processes one after the other."""
    pipe, count = pipeline(), 10
    settings = settings.changed(count=count)
    generate(Generator(pipe, settings.changed(batch=count)), tmp_path / "whole")
    expected = images(tmp_path / "whole")
    for batch in (8, 5, 1):
        generate(Generator(pipe, settings.changed(batch=batch)), tmp_path / f"b{batch}")
        assert images(tmp_path / f"b{batch}") == expected, batch
    assert says(1, 2).search(generate(Generator(pipe, settings), tmp_path / "two", 1, 2))
    assert says(count).search(generate(Generator(pipe, settings), tmp_path / "two", 0, 2))
    assert images(tmp_path / "two") == expected
    solver = Generator(pipe, settings).solver()
    latents = Generator(pipe, settings).draw(0, count, solver)[0]
    alone, _ = Generator(pipe, settings.changed(seed=7, labels=(7 % 3,), count=1)).draw(0, 1, solver)
    assert np.array_equal(alone[0], latents[7])


def test_a_convolutional_decoder_does_not_see_the_batch(tmp_path):
    """Oracle: the same bytes for other batches, with diffusers' AutoencoderKL: oneDNN chooses by the batch's size."""
    point = pipeline().checkpoint
    pipe = LWDPipeline(point, autoencoder_from_ldm(ldm()[1]))
    settings = HEUN.changed(count=24, steps=3)
    generate(Generator(pipe, settings.changed(batch=24)), tmp_path / "whole")
    for batch in (16, 5):
        generate(Generator(pipe, settings.changed(batch=batch)), tmp_path / f"b{batch}")
        assert images(tmp_path / f"b{batch}") == images(tmp_path / "whole")


def test_what_is_not_ours_stays(tmp_path):
    """Oracle: hidden files and folders are still there; pictures of someone else stop the job before it begins."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".env").write_text("mine")
    (tmp_path / ".manifest.json.0123456789ab").write_text("left by a killed process")
    generate(Generator(pipeline(), HEUN.changed(count=3)), tmp_path)
    hidden = sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("."))
    assert hidden == [".env", ".git"]
    for name in ("samples.npz", "grid.png"):
        other = tmp_path / f"with-{name}"
        other.mkdir()
        (other / name).write_text("mine")
        with pytest.raises(lwd.InputError, match=says(name)):
            generate(Generator(pipeline(), HEUN), other)
        assert (other / name).read_text() == "mine"


def test_processes_with_other_settings_do_not_mix(tmp_path):
    """Oracle: the second changes the plan before the first has written a block; the first notices and stops."""
    first = Generator(pipeline(), HEUN)
    second = Generator(pipeline(), HEUN.changed(steps=9))

    class Meddler(Generator):
        def draw(self, low, high, solver):
            if low == 0:
                samples._Job(second, tmp_path).plan()
            return super().draw(low, high, solver)

    with pytest.raises(lwd.InputError, match=says("steps", 9, 4)):
        generate(Meddler(first.pipe, HEUN), tmp_path, 0, 2)
    assert not list(tmp_path.glob("parts/0*.json"))
    generate(second, tmp_path)
    assert json.loads((tmp_path / "manifest.json").read_text())["nfe"] == {"mean": 18.0, "min": 18, "max": 18}


def test_moving_the_model_changes_nothing(model, tmp_path):
    """Oracle: a set begun under one name of the model goes on under another; a changed decoder is refused."""
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    out = tmp_path / "out"
    generate(open_generator(model, HEUN), out, 1, 2)
    generate(open_generator(f"{copy}/", HEUN), out, 0, 2)
    assert json.loads((out / "manifest.json").read_text())["model"]["name"] == f"{copy}/"
    generate(open_generator(model, HEUN), out)
    weights = copy / "vae" / "model.safetensors"
    write_safetensors(weights, {name: 2 * tensor for name, tensor in read_safetensors(weights).items()})
    with pytest.raises(lwd.InputError, match=says("decoder")):
        generate(open_generator(copy, HEUN), out)


def test_the_files_say_what_they_are(tmp_path):
    """Oracle: the pipeline's own pictures; the npz row r is the PNG order[r]; checksums; balanced labels."""
    pipe = pipeline()
    message = generate(Generator(pipe, HEUN), tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert says(21, 8).search(message)
    assert manifest["labels"] == [0, 1, 2] * 7
    assert manifest["nfe"] == {"mean": 8.0, "min": 8, "max": 8}
    assert sorted(manifest["order"]) == list(range(21))
    assert manifest["order"] != list(range(21))
    expected = pipe(manifest["labels"], seed=0, solver={"method": "heun", "steps": 4}).images
    arrays = np.load(tmp_path / "samples.npz")["arr_0"]
    assert arrays.shape == (21, 8, 8, 3)
    for i in range(21):
        written = picture(tmp_path / "images" / f"{i:06}.png")
        # The pipeline runs 21 rows, we run multiples of 8: equal up to the rounding of one 8-bit step.
        assert np.abs(written.astype(int) - np.asarray(expected[i])).max() <= 1
        assert np.array_equal(arrays[manifest["order"].index(i)], written)
    assert picture(tmp_path / "grid.png").shape == (7 * 8, 3 * 8, 3)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["grid.png", "images", "manifest.json", "samples.npz"]
    before = content(tmp_path)
    generate(Generator(pipe, HEUN), tmp_path)
    assert content(tmp_path) == before
    with pytest.raises(lwd.InputError, match=says("steps", 4, 5)):
        generate(Generator(pipe, HEUN.changed(steps=5)), tmp_path)


def test_only_the_asked_kinds_are_written(tmp_path):
    generate(Generator(pipeline(), HEUN.changed(kinds=("npz",), count=3)), tmp_path / "a")
    generate(Generator(pipeline(), HEUN.changed(kinds=("png",), count=3)), tmp_path / "b")
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["grid.png", "manifest.json", "samples.npz"]
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == ["grid.png", "images", "manifest.json"]


def test_guidance_is_the_samplers():
    """Oracle: `lwd.sample` of the guided velocity by hand, with a scale and an interval by group."""
    pipe, weak = pipeline(), pipeline(seed=5)
    scale, interval = {"texture": 1.7}, {"texture": (0.2, 0.9)}
    settings = HEUN.changed(count=8, steps=6, scale=scale, interval=interval)
    found, nfe = Generator(pipe, settings, weak).draw(0, 8, {"method": "heun", "steps": 6})
    guided = lwd.AutoGuidance(pipe.checkpoint.velocity, weak.checkpoint.velocity, scale, LAYOUT, interval)
    options = {"seeds": range(8), "labels": [0, 1, 2, 0, 1, 2, 0, 1], "size": (4, 4), "method": "heun", "steps": 6}
    z = lwd.sample(guided, pipe.checkpoint.schedule, LAYOUT, **options).z
    assert np.array_equal(found, pipe.decode(z))
    assert nfe == [12] * 8
    plain, _ = Generator(pipe, HEUN.changed(count=8, steps=6)).draw(0, 8, {"method": "heun", "steps": 6})
    assert not np.array_equal(found, plain)
    free = Generator(pipe, HEUN.changed(count=8, scale=2.0), "null").draw(0, 8, {"method": "heun", "steps": 6})[0]
    assert not np.array_equal(free, plain)


def test_an_sde_is_sampled_with_its_settings(tmp_path):
    """Oracle: `lwd.sample_sde` by hand, guided; the pipeline; the manifest names every setting of the noise."""
    pipe, weak = pipeline(), pipeline(seed=5)
    settings = HEUN.changed(count=8, steps=7, solver="euler-maruyama", diffusion="constant:0.2", scale=1.7)
    generator = Generator(pipe, settings, weak)
    generate(generator, tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    noise = {"diffusion": "constant:0.2", "last_step": "mean:0.04"}
    assert manifest["solver"] == {"method": "euler-maruyama", "steps": 7, **noise}
    assert manifest["settings"]["diffusion"] == "constant:0.2"
    assert manifest["nfe"]["max"] == 7
    guided = lwd.AutoGuidance(pipe.checkpoint.velocity, weak.checkpoint.velocity, 1.7, LAYOUT)
    labels = [0, 1, 2, 0, 1, 2, 0, 1]
    run = {"seeds": range(8), "labels": labels, "size": (4, 4)}
    z = lwd.sample_sde(guided, pipe.checkpoint.schedule, LAYOUT, **run, **manifest["solver"]).z
    for i, expected in enumerate(pipe.decode(z)):
        assert np.array_equal(picture(tmp_path / "images" / f"{i:06}.png"), expected)
    called = pipe(labels, solver=manifest["solver"], guide=weak, scale=1.7)
    assert torch.equal(called.solution.z, z)
    assert Generator(pipe, settings.changed(solver="sde-heun"), weak).solver()["last_step"] == "ode:0.04"
    with pytest.raises(lwd.InputError, match=says("diffusion", "constant:0.2", "sigma")):
        generate(Generator(pipe, settings.changed(diffusion="sigma"), weak), tmp_path)
    with pytest.raises(lwd.InputError, match=says("diffusion", "depth")):
        Generator(pipe, settings.changed(diffusion={"depth": "sigma"}), weak)
    with pytest.raises(lwd.InputError, match=says("rtol", "diffusion")):
        pipe(labels, solver={"method": "sde-heun", "steps": 7, "rtol": 1e-3})


def test_a_placement_is_decided_once(tmp_path):
    """Oracle: `place` by hand; a continued run takes the times that were written down, not new ones."""
    pipe, settings = pipeline(), HEUN.changed(placement="texture", steps=6)
    generate(Generator(pipe, settings), tmp_path, 1, 2)
    (plan,) = (tmp_path / "parts").glob("solver-*.json")
    c = pipe.checkpoint
    assert json.loads(plan.read_text())["grid"] == list(
        place("texture", 6, "heun", Flow(c.velocity, c.schedule, LAYOUT, (4, 4)))
    )
    other = [0, 0.1, *json.loads(plan.read_text())["grid"][2:]]
    plan.write_text(json.dumps({"method": "heun", "grid": other}))
    generate(Generator(pipe, settings), tmp_path, 0, 2)
    assert json.loads((tmp_path / "manifest.json").read_text())["solver"]["grid"] == other


def test_a_run_directory_means_its_newest_checkpoint(tmp_path, model):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "00000007").symlink_to(model)
    (run / "checkpoints" / "latest").write_text("00000007")
    one, two = open_generator(model, HEUN), open_generator(run, HEUN)
    assert one.record["model"]["digest"] == two.record["model"]["digest"]


def test_a_model_without_decoder_or_with_another_schedule_is_refused(tmp_path):
    bare = LWDPipeline(pipeline().checkpoint)
    with pytest.raises(lwd.InputError, match=says("vae/")):
        generate(Generator(bare, HEUN), tmp_path / "s")
    with pytest.raises(lwd.InputError, match=says("guide", "schedule")):
        Generator(pipeline(), HEUN.changed(scale=2.0), pipeline(schedule=lwd.Synchronous()))
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(lwd.InputError, match=says("manifest.json", "lwd.samples")):
        generate(Generator(pipeline(), HEUN), tmp_path)


SLOWED = """
import sys, time
from lwd.sampling import generator, samples
write = samples.write_arrays
samples.write_arrays = lambda *a: (time.sleep(0.5), write(*a))
draw = generator.Generator.draw
generator.Generator.draw = lambda *a: (time.sleep(0.03), draw(*a))[1]
from lwd.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_killed_ten_times_the_set_is_the_same_bytes(model, tmp_path):
    """Oracle: an undisturbed run; SIGKILL at a random moment after each further block, seen to be a partial state, and
    twice while the set is put together."""
    command = [sys.executable, "-c", SLOWED, "sample", "--model", str(model), "--count", "60", "--batch", "5"]
    command += ["--solver", "heun", "--steps", "3", "--out"]
    subprocess.run([*command, str(tmp_path / "calm")], check=True, capture_output=True)
    out, chance, states = tmp_path / "rough", random.Random(0), []
    for kill in range(12):
        process = subprocess.Popen([*command, str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and len(list(out.glob("parts/0*.json"))) < 1 + kill:
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.04) if kill < 11 else 0.25)
        process.send_signal(signal.SIGKILL)
        process.wait()
        states.append((len(list(out.glob("parts/0*.json"))), (out / "manifest.json").exists()))
    assert [0 < blocks <= 12 and not whole for blocks, whole in states] == [True] * 12, states
    assert len({blocks for blocks, _ in states}) >= 5
    subprocess.run([*command, str(out)], check=True, capture_output=True)
    assert content(out) == content(tmp_path / "calm")


@pytest.mark.slow
def test_torchrun_gives_the_same_bytes(model, tmp_path):
    """Oracle: one process; two as torchrun starts them by default, which is with another number of threads."""
    arguments = ["sample", "--model", str(model), "--count", "40", "--batch", "8", "--out"]
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    subprocess.run([sys.executable, "-m", "lwd", *arguments, str(tmp_path / "one")], check=True, env=environment)
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "lwd", *arguments]
    subprocess.run([*run, str(tmp_path / "two")], check=True, env=environment)
    assert content(tmp_path / "two") == content(tmp_path / "one")
