"""What users get wrong before, during and after an evaluation: one line each, and nothing lost."""

import itertools
import json
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from PIL import Image

from evaluation.made_images import Colours, folder, images, manifest, source
from lwd.cli import main
from lwd.compute.devices import threads
from lwd.compute.moments import Moments
from lwd.errors import InputError
from lwd.evaluation import evaluate as room
from lwd.evaluation import inception_weights, quality
from lwd.evaluation.compare import read_evaluations
from lwd.evaluation.features import ENCODER, POOL, InceptionNetwork, _folder, _lock, discard, extract, given_moments
from lwd.evaluation.score import NO_IMAGES, Reference, score
from lwd.images.pictures import ArrayFile, open_pictures
from lwd.io.locks import alone, held
from messages import says


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LWD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(room, "InceptionNetwork", lambda *_: Colours())
    with threads(1):  # the matrices are small: two threads would wait for each other
        yield


def one_line(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    error = capsys.readouterr().err.strip().splitlines()
    assert (code, len(error)) == (2, 1), error
    return error[0]


def test_those_who_want_one_reference_wait_for_each_other():
    """Oracle: three at once see the same features, and each image is looked at once in all.

    Threads stand for processes: each opens the lock for itself, which is what flock tells apart.
    """
    Colours.calls = 0
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: extract(source(images(1100)), [Colours()]), range(3)))
    assert all(torch.equal(one.rows[POOL], found[0].rows[POOL]) for one in found)
    assert Colours.calls == 1100


def test_what_another_uses_is_not_forgotten():
    """Oracle: the blocks stay while another holds them and go after it."""
    pictures, networks = source(images(20)), [Colours()]
    extract(pictures, networks)
    place = _folder(pictures, networks, None)
    with held(_lock(place)):
        discard(pictures, networks)
        assert (place / "00000.safetensors").is_file()
    discard(pictures, networks)
    assert not place.exists()


def test_a_place_that_cannot_be_locked(tmp_path):
    (tmp_path / "file").write_text("")
    for hold in (alone, held):
        with pytest.raises(InputError, match=says("below")), hold(tmp_path / "file" / "below"):
            pass


def test_directories_of_lwd_sample(tmp_path, capsys):
    """Oracle: an unfinished set is refused; the grid and the trajectory are never samples."""
    run = tmp_path / "run"
    folder(run / "images", images(12))
    for name in ("grid.png", "trajectory.png"):
        Image.fromarray(images(1)[0]).save(run / name)
    assert len(open_pictures(run)) == 12
    (run / "manifest.json").write_text("{}")
    assert len(open_pictures(run)) == 12
    (run / "parts").mkdir()
    (run / "parts" / "plan.json").write_text("{}")
    assert says("run", "lwd sample").search(one_line(capsys, "evaluate", run, "--reference", run))


SIGMA = np.eye(12)


@pytest.mark.parametrize(
    ("moments", "facts"),
    [
        ({"mu": np.full(12, np.nan), "sigma": SIGMA}, ("mu", "NaN")),
        ({"mu": np.zeros(12), "sigma": np.full((12, 12), np.inf)}, ("sigma", "NaN")),
        ({"mu": np.zeros(12), "sigma": SIGMA + np.eye(12, k=1)}, "sigma"),
        ({"mu": np.zeros(12), "sigma": np.diag([-0.1] + [1.0] * 11)}, ("sigma", -0.1)),
        ({"mu": np.zeros(12), "sigma": -SIGMA}, ("sigma", -1)),
        ({"mu": np.zeros(12)}, ("mu", "sigma")),
        ({"sigma": SIGMA}, ("sigma", "mu")),
        ({"mu": np.zeros(0), "sigma": np.zeros((0, 0))}, ("mu", "(0,)", "(0, 0)")),
        ({"mu": np.zeros(7), "sigma": np.eye(7)}, (7, 12)),
    ],
)
def test_moments_that_are_none(tmp_path, capsys, moments, facts):
    np.savez(tmp_path / "ref.npz", images(12), **moments)
    good = folder(tmp_path / "good", images(20))
    assert says(facts).search(one_line(capsys, "evaluate", good, "--reference", tmp_path / "ref.npz"))


def test_moments_of_another_network_are_refused_before_the_pass(tmp_path):
    """Oracle: the file's 12 dimensions against Inception's 2048; moments to rounding are taken."""

    class Wide(Colours):
        widths = InceptionNetwork.widths

    np.savez(tmp_path / "ref.npz", mu=np.zeros(12), sigma=SIGMA)
    with pytest.raises(InputError, match=says("ref.npz", "mu", 12, 2048)):
        given_moments(ArrayFile(tmp_path / "ref.npz"), [Wide()])
    rough = np.diag([-1e-9] + [1.0] * 11) + 1e-9 * np.eye(12, k=1)
    np.savez(tmp_path / "ref.npz", mu=np.zeros(12), sigma=rough)
    assert set(given_moments(ArrayFile(tmp_path / "ref.npz"), [Colours()])) == {POOL}


def array(shape, data=b"", descr="|u1"):
    """An .npy with any header."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (63 - (len(text) + 10) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data


def archive(path, content, name="arr_0.npy", kind=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", kind) as file:
        file.writestr(name, content)


def patch(path, offset, value, signature):
    """Change bytes after every occurrence of a header's signature."""
    data, place = bytearray(path.read_bytes()), 0
    while (place := data.find(signature, place)) >= 0:
        data[place + offset : place + offset + len(value)] = value
        place += 4
    path.write_bytes(bytes(data))


def damage(path, kind):
    pixels = images(12)
    archive(path, array(pixels.shape, pixels.tobytes()))
    if kind == "name":
        archive(path, array(pixels.shape, pixels.tobytes()), name="arr_0")
    elif kind in ("negative", "zero", "huge"):
        archive(
            path, array({"negative": (-1, 12, 12, 3), "zero": (12, 0, 12, 3), "huge": (10**30, 10**30, 9, 3)}[kind])
        )
    elif kind == "header":
        archive(path, array(pixels.shape).replace(b"}", b"("))
    elif kind == "magic":
        archive(path, b"nothing")
    elif kind == "short":
        archive(path, array(pixels.shape, pixels.tobytes()[:-5]))
    elif kind == "deflate":
        data = bytearray(path.read_bytes())
        data[200:900] = bytes(700)
        path.write_bytes(bytes(data))
    else:  # encrypted: bit 0 of the flags; unknown: method 77
        offset, value = {"encrypted": (0, b"\x01\x00"), "unknown": (2, b"\x4d\x00")}[kind]
        patch(path, 6 + offset, value, b"PK\x03\x04")
        patch(path, 8 + offset, value, b"PK\x01\x02")


KINDS = ["name", "negative", "zero", "huge", "header", "magic", "short", "deflate", "encrypted", "unknown"]


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_arrays_get_one_line(tmp_path, capsys, kind):
    damage(tmp_path / "bad.npz", kind)
    good = folder(tmp_path / "good", images(20))
    assert "bad.npz" in one_line(capsys, "evaluate", tmp_path / "bad.npz", "--reference", good)


def test_an_image_that_pillow_calls_a_bad_value(tmp_path, capsys, monkeypatch):
    """Oracle: Pillow's ValueError is one line; our own message is not wrapped into another."""
    good = folder(tmp_path / "good", images(12))
    Image.fromarray(images(1)[0][..., 0]).save(good / "0003.png")
    assert "readable" not in one_line(capsys, "evaluate", good, "--reference", good)

    def broken(*_, **__):
        raise ValueError("buffer is not large enough")

    monkeypatch.setattr(Image, "open", broken)
    assert says("0000.png", "buffer").search(one_line(capsys, "evaluate", good, "--reference", good))


def test_settings_check_themselves(tmp_path, capsys):
    good = folder(tmp_path / "good", images(12))
    for option, value in (("--threads", 0), ("--batch", -1), ("--size", -4)):
        assert says(option, value).search(one_line(capsys, "evaluate", good, "--reference", good, option, value))


@pytest.mark.parametrize(
    "change",
    [
        {"reference.digest": ["a"]},
        {"metrics.fid.error": -1},
        {"metrics.fid.value": float("nan")},
        {"metrics.fid.value": True},
        {"metrics.fid.value": 10**400},
        {"samples.model.step": "many"},
        {"samples.nfe": [1]},
        {"samples.count": {}},
    ],
)
def test_malformed_evaluations(tmp_path, capsys, change):
    """Oracle: the file and the key are named."""
    good = {"format": "lwd.evaluation", "version": 1, "metrics": {"fid": {"value": 1.0, "error": 0.1}}}
    good |= {"samples": {"name": "s", "count": 3, "model": {}}, "reference": {"name": "r", "count": 3, "digest": "a"}}
    (tmp_path / "a.json").write_text(json.dumps(good))
    assert list(read_evaluations([tmp_path / "a.json"])) == ["a"]
    ((place, value),) = change.items()
    *sections, key = place.split(".")
    inner = good
    for section in sections:
        inner = inner[section]
    inner[key] = value
    (tmp_path / "b.json").write_text(json.dumps(good))
    message = one_line(capsys, "compare", tmp_path / "a.json", tmp_path / "b.json", "--out", tmp_path / "c")
    assert "b.json" in message
    assert place in message


def test_a_manifest_of_wrong_types(tmp_path):
    """Oracle: the file and the key are named; what is no manifest of samples is not asked."""
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(manifest(3, step=7)))
    assert room.about_samples(tmp_path)["model"].step == 7
    for key, value in itertools.product(("model", "settings", "guide", "nfe"), ([1], "x", 3)):
        path.write_text(json.dumps(manifest(3) | {key: value}))
        with pytest.raises(InputError, match=says("manifest.json", key)):
            room.about_samples(tmp_path)
    path.write_text("{}")
    assert room.about_samples(tmp_path) == {}


def test_an_encoder_without_its_reference_is_reported():
    found = extract(source(images(20)), [Colours()])
    rows = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    asked = {**found.parts, ENCODER: [Moments().update(rows[i::10]) for i in range(10)]}
    seen = type(found)("x", 20, found.rows, asked)
    reference = Reference.of(found, {}, "ref")
    assert score(seen, reference).unavailable == {"frechet": NO_IMAGES}
    assert "frechet" not in score(found, reference).unavailable


class Undrawn:
    """A generator that must not be asked for samples."""

    device = torch.device("cpu")

    def check_decoder(self):
        pass


def test_quality_is_refused_before_anything_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(quality, "networks_for", lambda *_: ([Colours()], ""))
    np.savez(tmp_path / "bare.npz", mu=np.zeros(12), sigma=SIGMA)
    with pytest.raises(InputError, match=says(9, 10)):
        quality.Quality(Undrawn(), str(tmp_path / "bare.npz"), 9)
    with pytest.raises(InputError, match=says("bare.npz", "encoder")):
        quality.Quality(Undrawn(), str(tmp_path / "bare.npz"), 10, "some/encoder")
    assert quality.Quality(Undrawn(), str(tmp_path / "bare.npz"), 10).reference.count == 0


def test_what_would_fail_in_the_end_fails_before_a_look(tmp_path, capsys):
    """Oracle: the network's count of images stays 0."""
    good, few = folder(tmp_path / "good", images(20)), folder(tmp_path / "few", images(9))
    (tmp_path / "file").write_text("")
    Colours.calls = 0
    assert says("few", 9, 10).search(one_line(capsys, "evaluate", few, "--reference", good))
    assert says("few", 9, 10).search(one_line(capsys, "evaluate", good, "--reference", few))
    for out, named in ((tmp_path / "file" / "x.json", tmp_path / "file"), (tmp_path, tmp_path)):
        assert says(named).search(one_line(capsys, "evaluate", good, "--reference", good, "--out", out))
    assert Colours.calls == 0


def test_numbers_are_shown_even_if_they_cannot_be_written(tmp_path, capsys, monkeypatch):
    """Oracle: a disk that fills up at the end."""

    def full(path, value):
        del value
        raise InputError(f"cannot write {path}: No space left on device")

    monkeypatch.setattr("lwd.io.records.write_json", full)
    good = folder(tmp_path / "good", images(20))
    assert main(["evaluate", str(good), "--reference", str(good), "--out", str(tmp_path / "x.json")]) == 2
    shown = capsys.readouterr().out
    assert "FID" in shown
    assert "No space left on device" in shown


def test_weights_without_a_classifier_are_replaced(tmp_path, monkeypatch):
    """Oracle: what lies in the cache after each of four requests; the advice of the Inception Score works."""
    brought = {"head": {"head": torch.ones(2)}, "plain": {"other": torch.zeros(2)}}
    monkeypatch.setattr(inception_weights, "_obtain", lambda source, _: source or "plain")
    monkeypatch.setattr(inception_weights, "read_weights", lambda file, _: (brought[file], file))

    def fetched(source=None):
        place = inception_weights.fetch_inception(source, tmp_path / "cache")
        assert [p.name for p in place.parent.iterdir()] == ["inception"]  # nothing half written beside it
        return json.loads((place / "config.json").read_text())["source"]

    assert [fetched(source) for source in (None, None, "plain")] == ["plain"] * 3
    assert [fetched(source) for source in ("head", "plain", None)] == ["head"] * 3
    (tmp_path / "cache" / "inception" / "config.json").write_text("[]")
    with pytest.raises(InputError, match=says("config.json", "lwd.inception")):
        inception_weights.load_inception(tmp_path / "cache")
