"""Many shards, odd shards, wrong manifests: read in full, or named; nothing is half believed."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import lwd
from lwd.compute.moments import ChannelMoments
from lwd.io.tensors import write_safetensors
from lwd.latents.reader import LatentReader
from lwd.latents.shards import write_manifest, write_shard
from lwd.latents.verify import verify
from messages import says

LAYOUT = lwd.Layout.of(texture=3, semantic=2)
GROUPS = {"texture": ("latents", 3), "semantic": ("latents_sv", 2)}
ONES = lwd.Statistics(*({"texture": f(3), "semantic": f(2)} for f in (torch.zeros, torch.ones)))


def tensors(count, seed=0, dtype=torch.float32, **changes):
    """One shard's tensors with twins; `key=None` leaves a key out."""
    generator = torch.Generator().manual_seed(seed)
    out = {"labels": torch.arange(count) % 4}
    for key, channels in GROUPS.values():
        for twin in ("", "_flip"):
            out[key + twin] = (5 + torch.randn(count, channels, 2, 2, generator=generator)).to(dtype)
    return {key: value for key, value in (out | changes).items() if value is not None}


def write(directory, *shards):
    """Shards with a manifest whose statistics are those of all latents, twins included."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = [write_shard(directory / f"{i:04}.safetensors", shard) for i, shard in enumerate(shards)]
    parts = {"mean": {}, "std": {}}
    for group, (key, _) in GROUPS.items():
        latents = torch.cat([shard[k] for shard in shards for k in (key, f"{key}_flip") if k in shard]).double()
        rows = latents[latents.isfinite().flatten(1).all(1)].transpose(0, 1).flatten(1)
        parts["mean"][group], parts["std"][group] = rows.mean(1).float(), rows.std(1, correction=0).float()
    write_manifest(directory, LAYOUT, 4, lines, lwd.Statistics(**parts))
    return directory


def edit(directory, change):
    path = directory / "manifest.json"
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))
    return directory


def test_three_hundred_shards_need_no_three_hundred_descriptors(tmp_path):
    """Oracle: the operating system's limit of 64 open files, in a process of its own; every image is read."""
    write(tmp_path, *(tensors(2, seed) for seed in range(300)))
    script = """
import resource, sys, os
import numpy as np
from lwd.latents.reader import LatentReader
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
reader = LatentReader(sys.argv[1])
before = len(os.listdir("/proc/self/fd"))
batch = reader.gather(np.arange(600), np.arange(600) % 2 == 0)
print(len(os.listdir("/proc/self/fd")) - before, batch.latents.isfinite().all().item(), len(batch.labels))
"""
    done = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["0", "True", "600"], done.stderr


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_rows_of_many_shards_in_any_order(tmp_path, dtype):
    """Oracle: the tensors that were written, normalised whole; odd counts leave later tensors unaligned."""
    shards = [tensors(count, seed, dtype) for seed, count in enumerate((3, 0, 1, 40, 0, 5))]
    shards = [{"latents": s.pop("latents"), **s} for s in shards]  # labels behind latents of odd length
    reader = LatentReader(write(tmp_path, *shards))
    generator = np.random.default_rng(0)
    index, flip = generator.integers(0, 49, 100), generator.integers(0, 2, 100).astype(bool)
    batch = reader.gather(index, flip)
    whole = {key: torch.cat([shard[key] for shard in shards]) for key in shards[0]}
    twins = [torch.cat([whole[f"latents{t}"], whole[f"latents_sv{t}"]], 1).float() for t in ("", "_flip")]
    expected = torch.where(torch.from_numpy(flip)[:, None, None, None], twins[1][index], twins[0][index])
    assert_close(batch.latents, reader.statistics.normalize(expected, LAYOUT), atol=1e-5, rtol=1e-5)
    assert torch.equal(batch.labels, whole["labels"][index])
    for bad in ([-1], [0, 49]):
        with pytest.raises(lwd.InputError, match=says("0..48")):
            reader.gather(np.array(bad), np.zeros(len(bad), bool))
    assert verify(tmp_path) == []


def test_a_gathered_batch_does_not_change_the_files(tmp_path):
    """Oracle: reading the same rows again after writing into the batch."""
    reader = LatentReader(write(tmp_path, tensors(4)))
    index, flip = np.arange(4), np.zeros(4, bool)
    first = reader.gather(index, flip).latents
    kept = first.clone()
    first.zero_()
    assert torch.equal(reader.gather(index, flip).latents, kept)
    assert verify(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (
            {"latents_flip": torch.ones(4, 3, 4, 1)},
            ("latents_flip", "F32", "(4, 3, 4, 1)", "(4, 3, 2, 2)"),
        ),
        ({"latents_sv_flip": torch.ones(4, 3, 2, 2)}, ("latents_sv_flip", "(4, 3, 2, 2)", "(4, 2, 2, 2)")),
        ({"latents_flip": torch.ones(4, 3, 2, 2).half()}, ("latents_flip", "F16", "F32")),
        ({"latents_flip": None}, "latents_flip"),
        ({"labels": torch.tensor([0.0, 0.5, 1, 2])}, ("labels", "F32")),
        ({"latents": torch.ones(4, 3, 2, 2).int(), "latents_flip": None}, ("latents", "I32")),
        (
            {"latents": torch.ones(4, 3, 0, 2), "latents_flip": None},
            ("latents", "(4, 3, 0, 2)"),
        ),
        ({"feats_dino": torch.ones(4)}, ("feats_dino", "(4,)")),
        (
            {k: torch.ones(4, 3, 2, 2).half() for k in ("latents", "latents_flip")},
            ("latents", "F16", "F32", "0000.safetensors"),
        ),
    ],
)
def test_odd_shards_are_named_when_opened(tmp_path, change, facts):
    """Oracle: the second of two shards, its file and what is wrong with it; verify says the same."""
    write(tmp_path, tensors(4), tensors(4))
    path = tmp_path / "0001.safetensors"
    write_safetensors(path, tensors(4, **change))
    with pytest.raises(lwd.InputError, match=says(facts)) as caught:
        LatentReader(tmp_path)
    assert "0001.safetensors" in str(caught.value)
    assert any(says(facts).search(problem) for problem in verify(tmp_path))


def test_features_need_twins_where_latents_have_them(tmp_path):
    write(tmp_path, tensors(4, feats_dino=torch.ones(4, 6, 2, 2)))
    with pytest.raises(lwd.InputError, match=says("0000.safetensors", "feats_dino_flip")):
        LatentReader(tmp_path, features=True)
    assert LatentReader(tmp_path).mirrored
    assert any("feats_dino_flip" in problem for problem in verify(tmp_path))


def test_shards_without_any_image_are_refused(tmp_path):
    write_safetensors(tmp_path / "a.safetensors", tensors(0))
    with pytest.raises(lwd.InputError, match=says(1)):
        LatentReader(tmp_path, statistics=ONES)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda m: m.update(count=7), (8, 7)),
        (lambda m: m.update(classes=3), ("0000.safetensors", "labels", 3)),
        (lambda m: m.update(layout={"texture": 2, "semantic": 2}), ("texture=2,semantic=2", "texture=3,semantic=2")),
        (lambda m: m.update(layout={"texture": 3, "depth": 2}), ("latents_depth", "depth")),
        (lambda m: m.update(shards=[1]), ("manifest.json", "shards.0", 1)),
        (lambda m: m.update(shards=[{}]), ("manifest.json", "shards.0.file")),
        (lambda m: m["shards"][1].update(file="../0001.safetensors"), "../0001.safetensors"),
        (lambda m: m["shards"].append(m["shards"][0]), "0000.safetensors"),
        (lambda m: m.update(statistics={}), ("statistics", "texture", "semantic")),
        (lambda m: m["statistics"].pop("semantic"), ("statistics", "semantic")),
        (lambda m: m["statistics"]["texture"].update(std=["a"] * 3), ("statistics", "texture")),
    ],
)
def test_manifests_that_contradict_the_shards_are_refused_and_reported(tmp_path, change, facts):
    edit(write(tmp_path, tensors(4), tensors(4)), change)
    with pytest.raises(lwd.InputError, match=says(facts)):
        LatentReader(tmp_path)
    assert any(says(facts).search(problem) for problem in verify(tmp_path))


def doubled(manifest):
    row = manifest["statistics"]["texture"]
    row["std"] = [2 * value for value in row["std"]]


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (doubled, ("std", "texture", 0)),
        (lambda m: m["statistics"]["semantic"]["mean"].__setitem__(1, 0.0), ("mean", "semantic", 1)),
        (lambda m: m.update(classes=5), (5, 4)),
        (lambda m: m.update(layout={"texture": 3}), ("latents_sv", "texture=3")),
        (lambda m: m["shards"][0].update(count=3), ("0000.safetensors", 4, 3)),
    ],
)
def test_verify_reports_what_the_reader_can_live_with(tmp_path, change, facts):
    """Oracle: whole before the change; after it one sentence about it."""
    directory = write(tmp_path, tensors(4), tensors(4, seed=1))
    edit(directory, lambda m: m.update(provenance={"classes": ["a", "b", "c", "d"]}))
    assert verify(directory) == []
    problems = verify(edit(directory, change))
    assert any(says(facts).search(problem) for problem in problems), problems


@pytest.mark.parametrize("key", ["latents", "latents_sv_flip", "feats_dino"])
def test_verify_finds_numbers_that_are_none(tmp_path, key):
    """Oracle: one NaN, written before the checksums were taken; the file and the key are named."""
    good, spoiled = ({f"feats_dino{twin}": torch.ones(4, 6, 2, 2) for twin in ("", "_flip")} for _ in range(2))
    shards = [tensors(4, **good), tensors(4, **spoiled)]
    shards[1][key][2, 0, 1, 1] = torch.nan
    problems = verify(write(tmp_path, *shards))
    assert len(problems) == 1
    assert says("0001.safetensors", key, "NaN").search(problems[0])


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_seeds_and_steps_out_of_range_are_refused(tmp_path, seed):
    reader = LatentReader(write(tmp_path, tensors(4)))
    with pytest.raises(lwd.InputError, match=says("seed", seed)):
        reader.batch(0, 2, seed)
    with pytest.raises(lwd.InputError, match=says("step", -1)):
        reader.batch(-1, 2, 0)


def test_moments_of_a_big_tensor_take_little_memory():
    """Oracle: the process's peak, and the one-shot mean and std in float64 computed channel by channel."""
    script = """
import torch
from lwd.compute.moments import ChannelMoments
torch.set_num_threads(1)
latents = torch.randn(200, 768, 16, 16, dtype=torch.float16)
ChannelMoments().update(latents[:1])
now = lambda: int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1])
before = now()
found = ChannelMoments().update(latents)
grown = now() - before
worst = 0.0
for c in (0, 400, 767):
    rows = latents[:, c].double()
    worst = max(worst, abs(found.mean[c] - rows.mean()), abs(found.std[c] - rows.std(correction=0)))
print(grown // 1024, found.count, float(worst) < 1e-10)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    grown, count, same = done.stdout.split()
    assert int(grown) < 256, f"{grown} MiB"
    assert (count, same) == (str(200 * 256), "True")


def test_moments_that_are_refused_change_nothing():
    moments = ChannelMoments().update(torch.ones(2, 3, 2, 2))
    with pytest.raises(lwd.InputError, match=says("NaN")):
        moments.update(torch.full((1, 3, 2, 2), torch.inf))
    assert (moments.count, moments.mean.tolist()) == (8, [1.0] * 3)
    assert ChannelMoments().update(torch.ones(0, 3, 2, 2)).count == 0
