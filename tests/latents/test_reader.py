"""Shards and their reader: every item once, one sequence for any number of processes, a name for what is broken."""

from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

import lwd
from lwd.compute.moments import ChannelMoments
from lwd.compute.order import coin, order
from lwd.latents.reader import LatentReader
from lwd.latents.shards import open_shard, write_manifest, write_shard
from lwd.latents.verify import verify
from messages import says

LAYOUT = lwd.Layout.of(texture=3, semantic=2)
COUNTS = (7, 1, 12)


def write(directory, counts=COUNTS, dtype=torch.float32, manifest=True, features=False, semantic="latents_sv"):
    """Shards whose latents say which image they are: channel values are the image's number, mirrored ones negative."""
    directory.mkdir(parents=True, exist_ok=True)
    lines, start = [], 0
    moments = {"texture": ChannelMoments(), "semantic": ChannelMoments()}
    for i, count in enumerate(counts):
        number = torch.arange(start, start + count, dtype=torch.float32)[:, None, None, None]
        tensors = {"labels": torch.arange(start, start + count) % 5}
        for name, key, c in (("texture", "latents", 3), ("semantic", semantic, 2)):
            value = (number + 100 * torch.arange(c)[:, None, None]).expand(count, c, 2, 2).contiguous().to(dtype)
            tensors |= {key: value, f"{key}_flip": -value}
            moments[name].update(value).update(-value)
        if features:
            tensors |= {
                "feats_dino": number.expand(count, 4, 2, 2).contiguous(),
                "feats_dino_flip": -number.expand(count, 4, 2, 2).contiguous(),
            }
        lines.append(write_shard(directory / f"shard-{i:03}.safetensors", tensors))
        start += count
    statistics = lwd.Statistics(
        {n: m.mean.float() for n, m in moments.items()}, {n: m.std.float() for n, m in moments.items()}
    )
    if manifest:
        write_manifest(directory, LAYOUT, 5, lines, statistics)
    else:
        for name, file in (("texture", "latents_stats.pt"), ("semantic", f"{semantic}_stats.pt")):
            value = {
                "mean": statistics.mean[name].reshape(1, -1, 1, 1),
                "std": statistics.std[name].reshape(1, -1, 1, 1),
            }
            torch.save(value, directory / file)
    return statistics


def numbers(reader, batch):
    """Which image each row says it is, and whether it is mirrored."""
    raw = reader.statistics.denormalize(batch.latents, reader.layout)[:, 0, 0, 0].round()
    return raw.abs().long(), raw < 0


def test_rows_are_the_images_they_claim_to_be(tmp_path):
    """Oracle: the number written into every latent, its label, its mirrored twin, its features."""
    write(tmp_path, features=True)
    reader = LatentReader(tmp_path, features=True)
    assert (len(reader), reader.layout, reader.size, reader.classes) == (20, LAYOUT, (2, 2), 5)
    index = np.array([19, 0, 7, 6, 8, 19])
    flip = np.array([0, 1, 1, 0, 0, 1], dtype=bool)
    batch = reader.gather(index, flip)
    found, mirrored = numbers(reader, batch)
    assert found.tolist() == index.tolist()
    assert mirrored.tolist() == [False, False, True, False, False, True]  # image 0 is its own negative
    assert batch.labels.tolist() == (index % 5).tolist()
    assert batch.features[:, 0, 0, 0].tolist() == [19, 0, -7, 6, 8, -19]
    raw = reader.statistics.denormalize(batch.latents, LAYOUT)
    assert_close(raw[0, 4], torch.full((2, 2), 119.0), atol=1e-3, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_dtype_reads_as_float32(tmp_path, dtype):
    write(tmp_path, dtype=dtype)
    reader = LatentReader(tmp_path)
    batch = reader.gather(np.array([3, 11]), np.array([False, True]))
    assert batch.latents.dtype == torch.float32
    assert numbers(reader, batch)[0].tolist() == [3, 11]


@pytest.mark.parametrize("semantic", ["latents_sv", "latents_dino"])
def test_released_shards_are_read_as_they_are(tmp_path, semantic):
    """Oracle: SFD's keys and statistics files, no manifest."""
    statistics = write(tmp_path, manifest=False, semantic=semantic)
    reader = LatentReader(tmp_path)
    assert reader.statistics == statistics
    assert (reader.layout, reader.classes) == (LAYOUT, 5)
    assert numbers(reader, reader.gather(np.array([13]), np.array([False])))[0].tolist() == [13]


def test_n_epochs_visit_every_image_n_times(tmp_path):
    """Oracle: counting; batches of 8 straddle the epochs of 20."""
    write(tmp_path)
    reader = LatentReader(tmp_path)
    seen = torch.cat([batch.index for batch in islice(reader.batches(8, seed=3), 10)])
    for epoch in seen.reshape(4, 20):
        assert sorted(epoch.tolist()) == list(range(20))
    assert not torch.equal(seen[:20], seen[20:40])
    other = torch.cat([batch.index for batch in islice(reader.batches(8, seed=4), 10)])
    assert not torch.equal(seen, other)


def test_entering_at_a_step_is_skipping_to_it(tmp_path):
    """Oracle: the uninterrupted sequence, bit for bit, flips included."""
    write(tmp_path)
    reader = LatentReader(tmp_path)
    whole = list(islice(reader.batches(8, seed=3), 9))
    for start in (1, 4, 8):
        entered = next(reader.batches(8, seed=3, start=start))
        assert torch.equal(entered.latents, whole[start].latents)
        assert torch.equal(entered.index, whole[start].index)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_any_number_of_processes_sees_one_sequence(tmp_path, world):
    """Oracle: the batches of one process, cut in rank order."""
    write(tmp_path)
    reader = LatentReader(tmp_path)
    for step, whole in enumerate(islice(reader.batches(8, seed=5), 4)):
        shares = [next(reader.batches(8, seed=5, start=step, rank=rank, world=world)) for rank in range(world)]
        assert torch.equal(torch.cat([share.latents for share in shares]), whole.latents)
        assert torch.equal(torch.cat([share.labels for share in shares]), whole.labels)


def test_batch_size_does_not_change_the_sequence(tmp_path):
    write(tmp_path)
    reader = LatentReader(tmp_path)
    small = torch.cat([b.latents for b in islice(reader.batches(4, seed=5), 6)])
    large = torch.cat([b.latents for b in islice(reader.batches(12, seed=5), 2)])
    assert torch.equal(small, large)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**40))
def test_coins_are_fair_and_their_own(seed, start):
    """Oracle: 4000 tosses within 5 standard deviations; a position asked for alone gives the same."""
    positions = np.arange(start, start + 4000)
    tosses = coin(seed, positions)
    assert abs(tosses.sum() - 2000) < 5 * 4000**0.5 / 2
    assert coin(seed, positions[17:18])[0] == tosses[17]
    assert np.array_equal(order(10, seed % 1000, positions[:3]), order(10, seed % 1000, positions)[:3])


def test_flips_can_be_turned_off_and_need_mirrored_latents(tmp_path):
    write(tmp_path)
    batch = next(LatentReader(tmp_path).batches(20, seed=0, flip=False))
    assert not numbers(LatentReader(tmp_path), batch)[1].any()
    plain = tmp_path / "plain"
    plain.mkdir()
    line = write_shard(plain / "a.safetensors", {"labels": torch.zeros(2).long(), "latents": torch.randn(2, 3, 2, 2)})
    one = lwd.Layout.of(texture=3)
    write_manifest(plain, one, 1, [line], lwd.Statistics({"texture": torch.zeros(3)}, {"texture": torch.ones(3)}))
    reader = LatentReader(plain)
    assert (reader.layout, next(reader.batches(2, seed=0)).latents.shape) == (one, (2, 3, 2, 2))
    with pytest.raises(lwd.InputError, match=says("_flip")):
        next(reader.batches(2, seed=0, flip=True))


def test_moments_do_not_depend_on_chunks():
    """Oracle: one-shot mean and std in float64, for chunks of 1 to all and for merged parts."""
    latents = (
        50
        + torch.randn(40, 3, 2, 5, generator=torch.Generator().manual_seed(0))
        * torch.tensor([1.0, 9, 0.1])[:, None, None]
    )
    rows = latents.double().transpose(0, 1).flatten(1)
    for chunk in (1, 3, 7, 40):
        moments = ChannelMoments()
        for part in latents.split(chunk):
            moments.update(part)
        assert_close(moments.mean, rows.mean(1), atol=1e-12, rtol=1e-12)
        assert_close(moments.std, rows.std(1, correction=0), atol=1e-12, rtol=1e-12)
    left, right = ChannelMoments().update(latents[:11]), ChannelMoments().update(latents[11:])
    assert_close(left.merge(right).std, rows.std(1, correction=0), atol=1e-12, rtol=1e-12)
    assert ChannelMoments().merge(ChannelMoments()).count == 0
    with pytest.raises(lwd.InputError, match="NaN"):
        ChannelMoments().update(torch.full((1, 1, 1, 1), torch.nan))


def spoil(path, change):
    content = bytearray(path.read_bytes())
    path.write_bytes(change(content))


def test_what_is_broken_is_named(tmp_path):
    """Oracle: the file's name and the reason in the message."""
    names = {
        "truncated": (lambda c: bytes(c[:-5]), ("shard-001.safetensors", 555)),
        "headless": (lambda c: bytes(c[:4]), "shard-001.safetensors"),
        "empty": (lambda _: b"", "shard-001.safetensors"),
        "huge header": (lambda c: b"\xff" * 8 + bytes(c[8:]), "shard-001.safetensors"),
        "not json": (lambda c: bytes(c[:8]) + b"x" * (len(c) - 8), ("shard-001.safetensors", "JSON")),
    }
    for name, (change, facts) in names.items():
        directory = tmp_path / name
        write(directory)
        spoil(directory / "shard-001.safetensors", change)
        with pytest.raises(lwd.InputError, match=says(facts)):
            LatentReader(directory)
        assert any("shard-001" in problem for problem in verify(directory))


def test_a_changed_byte_is_found_by_verify(tmp_path):
    write(tmp_path)
    assert verify(tmp_path) == []
    assert verify(tmp_path / "absent") == [f"{tmp_path / 'absent'} is not a directory of shards"]
    spoil(tmp_path / "shard-002.safetensors", lambda c: bytes(c[:-1]) + bytes([c[-1] ^ 1]))
    assert [("shard-002" in p, "checksum" in p) for p in verify(tmp_path)] == [(True, True)]
    (tmp_path / "stray.safetensors").write_bytes(b"x")
    assert any("stray.safetensors is not in the manifest" in problem for problem in verify(tmp_path))
    (tmp_path / "shard-000.safetensors").unlink()
    assert any("shard-000" in problem for problem in verify(tmp_path))


def test_missing_keys_labels_and_shapes_are_named(tmp_path):
    def one(name, **tensors):
        directory = tmp_path / name
        directory.mkdir()
        base = {"labels": torch.arange(2), "latents": torch.zeros(2, 3, 2, 2), "latents_sv": torch.zeros(2, 2, 2, 2)}
        write_good = {k: v for k, v in (base | tensors).items() if v is not None}
        from lwd.io.tensors import write_safetensors

        write_safetensors(directory / "a.safetensors", write_good)
        return directory

    statistics = lwd.Statistics(
        {"texture": torch.zeros(3), "semantic": torch.zeros(2)}, {"texture": torch.ones(3), "semantic": torch.ones(2)}
    )
    for name, change, facts in (
        ("labels", {"labels": None}, ("a.safetensors", "labels")),
        ("semantic", {"latents_sv": None}, ("latents_sv", "latents_dino", "semantic")),
        ("rows", {"latents": torch.zeros(3, 3, 2, 2)}, ("latents", "(3, 3, 2, 2)", 2)),
        ("axes", {"latents": torch.zeros(2, 3)}, ("latents", "(2, 3)")),
        ("grid", {"latents": torch.zeros(2, 3, 4, 4)}, ("(2, 2)", "(4, 4)")),
    ):
        with pytest.raises(lwd.InputError, match=says(facts)):
            LatentReader(one(name, **change), statistics=statistics)
    good = one("good")
    with pytest.raises(lwd.InputError, match=says("labels", 1)):
        LatentReader(good, statistics=statistics, classes=1)
    with pytest.raises(lwd.InputError, match=says("feats_dino")):
        LatentReader(good, statistics=statistics, features=True)
    with pytest.raises(lwd.InputError, match=says("good", "statistics")):
        LatentReader(good)
    with pytest.raises(lwd.InputError, match=says("absent")):
        LatentReader(tmp_path / "absent")
    with pytest.raises(lwd.InputError, match=says(8, 3)):
        next(LatentReader(good, statistics=statistics).batches(8, seed=0, world=3))
    (tmp_path / "nothing").mkdir()
    with pytest.raises(lwd.InputError, match=says("nothing")):
        LatentReader(tmp_path / "nothing")


def test_bad_manifests_are_refused(tmp_path):
    write(tmp_path)
    path = tmp_path / "manifest.json"
    good = path.read_text()
    for old, new, facts in (
        ('"lwd.shards"', '"other"', ("manifest.json", "other")),
        ('"version": 1', '"version": 7', ("manifest.json", 7)),
        ('"classes": 5', '"classes": "5"', ("manifest.json", "classes")),
        ('"count": 20', '"count": 21', (20, 21)),
    ):
        path.write_text(good.replace(old, new))
        with pytest.raises(lwd.InputError, match=says(facts)):
            LatentReader(tmp_path)


def test_headers_cannot_point_outside(tmp_path):
    """Oracle: a header that claims bytes beyond the file, negative offsets, or a wrong length."""
    import json
    import struct

    for offsets, shape in (([0, 10**12], [10**12 // 8]), ([-8, 8], [2]), ([0, 8], [2])):
        head = json.dumps({"labels": {"dtype": "I64", "shape": shape, "data_offsets": offsets}}).encode()
        (tmp_path / "evil.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + b"\0" * 16)
        with pytest.raises(lwd.InputError, match=says("evil.safetensors", "labels")):
            open_shard(tmp_path / "evil.safetensors")
