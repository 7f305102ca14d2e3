"""The violations that fuzzing found, each as a test of its own: what was a traceback is one line now."""

import gzip
import io
import json
import os
import shutil
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

import lwd
from fuzz.archives import bomb, with_bomb
from fuzz.corpora import EARLIER
from lwd.checkpoints.sefi_config import MAX_BYTES, read_config
from lwd.cli import main
from lwd.errors import LONGEST
from lwd.images.cifar import read_archive
from lwd.images.pictures import open_pictures
from lwd.images.sources import FolderSource
from lwd.io.downloads import unpack
from lwd.io.files import read_json, sha256
from lwd.io.tensors import read_pickle, read_state
from lwd.latents.encoders import load_compressor
from lwd.latents.reader import LatentReader
from lwd.latents.statistics import read_reference_statistics
from lwd.report.runs import describe_run, plot_run
from lwd.training.config import MAX_YAML_BYTES, load_config
from lwd.training.state import newest
from messages import says


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"{", b"\x80\x02}."], ids=["empty", "0xff", "brace", "pickle"])
@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
def test_convert_refuses_what_are_no_weights(tmp_path, capsys, name, content):
    """An empty .safetensors and one of 100 bytes 0xFF were tracebacks."""
    (tmp_path / name).write_bytes(content)
    assert main(["convert", str(tmp_path / name), "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr().err
    assert says(name).search(printed)
    assert printed.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "loop"])
@pytest.mark.parametrize(
    "read",
    [read_json, sha256, read_state, read_pickle, lwd.load_schedule, lambda p: load_config(str(p))],
    ids=["json", "sha256", "state", "pickle", "schedule", "preset"],
)
def test_what_is_no_file_is_not_read(tmp_path, read, kind):
    """A pipe blocked for ever, /dev/zero filled the memory."""
    path = tmp_path / "x.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "device" else path)
    with pytest.raises(lwd.InputError, match=says(path.name)):
        read(path)


def test_a_message_is_one_line_of_bounded_length():
    """Names in files put line breaks, terminal codes and 70,000 characters into messages."""
    message = str(lwd.InputError("a\nb\r\x1b[31m\u202e\ud800" + "x" * 70_000 + "end"))
    assert message.isprintable()
    assert len(message) < 2 * LONGEST
    assert message.endswith("end")
    message.encode()
    assert str(lwd.InputError("plain é")) == "plain é"


def test_a_broken_archive_is_no_checkpoint(tmp_path):
    """zipfile's BadZipFile came through."""
    torch.save({"a": torch.zeros(3)}, tmp_path / "a.pt")
    content = (tmp_path / "a.pt").read_bytes()
    at = content.rfind(b"PK\x01\x02")
    (tmp_path / "a.pt").write_bytes(content[:at] + b"XX" + content[at + 2 :])
    with pytest.raises(lwd.InputError, match=says("a.pt")):
        read_state(tmp_path / "a.pt")


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    """4 MB became 4 GB."""
    torch.save({"a": torch.zeros(3)}, tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    (tmp_path / "a.pt").write_bytes(with_bomb(entries, next(name for name in entries if name.endswith("data/0"))))
    with pytest.raises(lwd.InputError, match=says("a.pt", "refused")):
        read_state(tmp_path / "a.pt")
    (tmp_path / "a.whl").write_bytes(with_bomb({"w": b"x"}, "w"))
    with pytest.raises(lwd.InputError, match=says("a.whl", "refused")):
        unpack(tmp_path / "a.whl", "w", tmp_path)
    (tmp_path / "a.npz").write_bytes(_npz_bomb())
    pictures = open_pictures(tmp_path / "a.npz")
    with pytest.raises(lwd.InputError, match=says("moments")):
        pictures.moments()


def _npz_bomb():
    entries = {}
    for name, array in (("arr_0", np.zeros((2, 4, 4, 3), np.uint8)), ("mu", np.zeros(4))):
        out = io.BytesIO()
        np.save(out, array)
        entries[f"{name}.npy"] = out.getvalue()
    return with_bomb(entries, "mu.npy")


def test_a_gzip_bomb_is_refused(tmp_path):
    """It was unpacked to its end, twice."""
    head = gzip.compress(b"", mtime=0)[:10]
    (tmp_path / "a.tgz").write_bytes(head + bomb() + bytes(8))
    with pytest.raises(lwd.InputError, match=says("a.tgz", "refused")):
        read_archive(tmp_path / "a.tgz")


@pytest.mark.parametrize("count", [2**29, 2**33, 2**45])
def test_a_tensor_that_claims_more_than_the_file_holds_is_refused(tmp_path, count):
    """One number with stride 0 became gigabytes when it was written again."""
    torch.save({"a": torch.zeros(1).expand(count)}, tmp_path / "a.pt")
    with pytest.raises(lwd.InputError, match=says("a.pt", "shape")):
        read_state(tmp_path / "a.pt")


def test_unusual_tensors_are_refused(tmp_path):
    """Sparse and meta tensors ended in errors of torch."""
    for odd in (torch.zeros(2, 2).to_sparse(), torch.empty(3, device="meta")):
        torch.save({"a": odd}, tmp_path / "a.pt")
        with pytest.raises(lwd.InputError, match=says("a.pt", "plain")):
            read_state(tmp_path / "a.pt")


def test_few_lines_of_yaml_cannot_stand_for_billions_of_values(tmp_path):
    """Aliases of aliases were expanded."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    (tmp_path / "p.yaml").write_text("\n".join(lines))
    with pytest.raises(lwd.InputError, match=says("p.yaml", "alias")):
        load_config(str(tmp_path / "p.yaml"))


@pytest.mark.parametrize("line", ["about: 2001-99-99", "about: !!int x", "about: !!timestamp x", "<<: [1]"])
def test_impossible_yaml_values_are_refused(tmp_path, line):
    """A date of month 99 was a ValueError of Python."""
    (tmp_path / "p.yaml").write_text(line)
    with pytest.raises(lwd.InputError):
        load_config(str(tmp_path / "p.yaml"))


def test_a_picture_of_a_million_by_a_million_pixels_is_refused(tmp_path):
    """Up to 179 million pixels were decoded, in more than a gigabyte."""
    (tmp_path / "a").mkdir()
    Image.new("1", (12_000, 12_000)).save(tmp_path / "a" / "a.png")
    with pytest.raises(lwd.InputError, match=says("a.png", 12000)):
        FolderSource(tmp_path).image(0)
    with pytest.raises(lwd.InputError, match=says("a.png", 12000)):
        next(open_pictures(tmp_path, 8).batches(1))


def test_only_jpeg_png_and_webp_are_opened(tmp_path):
    """Pillow starts Ghostscript on an EPS file, whatever its name."""
    (tmp_path / "a").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "a" / "a.eps")
    (tmp_path / "a" / "a.eps").rename(tmp_path / "a" / "a.png")
    with pytest.raises(lwd.InputError, match=says("a.png", "readable")):
        FolderSource(tmp_path).image(0)


def test_links_to_themselves_and_pipes_are_no_pictures(tmp_path):
    """The link was an OSError, the pipe blocked."""
    (tmp_path / "a").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "a" / "a.png")
    (tmp_path / "a" / "b.png").symlink_to(tmp_path / "a" / "b.png")
    os.mkfifo(tmp_path / "a" / "c.png")
    assert len(FolderSource(tmp_path)) == 1
    assert len(open_pictures(tmp_path)) == 1


@pytest.mark.parametrize("latest", ["x" * 300, "../../..", "", "\ufffd" * 200])
def test_the_name_of_the_latest_checkpoint_is_checked(tmp_path, latest):
    """A long one was an OSError."""
    run = shutil.copytree(EARLIER / "run", tmp_path / "run")
    (run / "checkpoints" / "latest").write_text(latest)
    with pytest.raises(lwd.InputError, match=says("latest")):
        lwd.load(run)
    assert newest(run / "checkpoints", print).step == 4


@pytest.mark.parametrize("kind", [{}, [], 3, None])
def test_the_format_of_a_compressor_may_be_anything(tmp_path, kind):
    """A list was a TypeError."""
    (tmp_path / "config.json").write_text(json.dumps({"format": kind}))
    with pytest.raises(lwd.InputError, match=says("compressor")):
        load_compressor(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"block_out_channels": []},
        {"layers_per_block": 10**9},
        {"block_out_channels": [2**40]},
        {"down_block_types": ["x"]},
        {"latent_channels": None},
    ],
)
def test_a_diffusers_configuration_is_checked(tmp_path, change):
    """An empty list was an IndexError; a large number would have filled the memory."""
    good = {"_class_name": "AutoencoderKL", "block_out_channels": [32], "layers_per_block": 1, "latent_channels": 4}
    (tmp_path / "config.json").write_text(json.dumps(good | change))
    with pytest.raises(lwd.InputError, match=says(tmp_path.name)):
        lwd.TextureAutoencoder.load(tmp_path)


@pytest.mark.parametrize("change", [{"depth": 2**31}, {"width": 2**62}, {"classes": 10**30}, {"grid": [2**40, 2**40]}])
def test_a_network_that_nobody_can_build_is_refused(tmp_path, change):
    """2^31 blocks were built one by one."""
    folder = shutil.copytree(EARLIER / "run" / "checkpoints" / "00000004", tmp_path / "m")
    value = json.loads((folder / "config.json").read_text())
    value["network"] |= change
    (folder / "config.json").write_text(json.dumps(value))
    with pytest.raises(lwd.InputError, match=says("config.json")):
        lwd.load(folder)


def test_damaged_lines_of_a_journal_are_left_out(tmp_path):
    """Steps that are no numbers, and numbers of 400 digits, ended in tracebacks of `lwd runs show`."""
    run = shutil.copytree(EARLIER / "run", tmp_path / "run")
    with (run / "metrics.jsonl").open("a") as file:
        for line in (
            '{"step": "x"}',
            "[1]",
            '{"step": 5, "total": "high"}',
            '{"step": 6, "total": 1' + "0" * 400 + "}",
        ):
            file.write(line + "\n")
        file.write("[" * 100_000)
    assert says("step", 6).search(describe_run(run).replace("steps", "step"))
    plot_run(run)


def test_statistics_of_too_large_numbers_are_refused(tmp_path):
    """OverflowError of a number with 400 digits."""
    torch.save({"mean": [10**400], "std": [1.0]}, tmp_path / "s.pt")
    with pytest.raises(lwd.InputError, match=says("s.pt", "mean")):
        read_reference_statistics({"texture": tmp_path / "s.pt"})


def test_a_shard_whose_header_has_infinite_shapes_is_refused(tmp_path):
    """OverflowError of int(inf)."""
    head = b'{"labels": {"dtype": "I64", "shape": [Infinity], "data_offsets": [0, 8]}}'
    (tmp_path / "a.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + bytes(8))
    with pytest.raises(lwd.InputError, match=says("a.safetensors", "labels")):
        LatentReader(tmp_path)


def test_a_base_of_a_preset_may_be_too_long_for_a_file_name(tmp_path):
    """The kernel's refusal was an OSError."""
    (tmp_path / "p.yaml").write_text(f"base: {'x' * 5000}\n")
    with pytest.raises(lwd.InputError, match=says("preset")):
        load_config(str(tmp_path / "p.yaml"))


@pytest.mark.parametrize("opened", [FolderSource, open_pictures])
def test_folders_that_vanish_while_they_are_listed(tmp_path, monkeypatch, opened):
    """A link to / leads into /proc, where folders come and go: FileNotFoundError and PermissionError."""
    (tmp_path / "cats" / "gone").mkdir(parents=True)
    real = os.scandir

    def vanishing(path):
        if str(path).endswith("gone"):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", vanishing)
    with pytest.raises(lwd.InputError, match=says("cats")):
        opened(tmp_path / "cats" if opened is open_pictures else tmp_path)


LONG = "x" * 5000


@pytest.mark.parametrize(
    "command",
    [
        f"train {LONG} --preset cifar-small --out out",
        f"data verify {LONG}",
        f"evaluate {LONG} --reference fashion/test",
        f"surfaces show {LONG}",
        f"sample --model {LONG} --out out.png",
        f"plan {LONG}",
    ],
    ids=lambda command: command.split()[0],
)
def test_a_path_that_the_system_refuses_gets_one_line(command, capsys):
    """OSError: File name too long."""
    assert main(command.split()) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_links_to_a_folder_above_are_not_followed(tmp_path):
    """A link to / made the walk visit the whole file system: more than 10 s."""
    (tmp_path / "photos" / "cats").mkdir(parents=True)
    for place in (tmp_path / "else.png", tmp_path / "photos" / "cats" / "a.png"):
        Image.new("RGB", (8, 8)).save(place)
    for name, target in (("root", "/"), ("up", tmp_path), ("own", tmp_path / "photos")):
        (tmp_path / "photos" / "cats" / name).symlink_to(target)
    assert FolderSource(tmp_path / "photos").files == ["cats/a.png"]


def test_a_folder_is_no_npz(tmp_path):
    """images.npz as a link to / was listed as a folder of images."""
    (tmp_path / "images.npz").symlink_to("/")
    with pytest.raises(lwd.InputError, match=says("images.npz")):
        open_pictures(tmp_path / "images.npz")


@pytest.mark.parametrize(("name", "limit"), [("p.yaml", MAX_YAML_BYTES), ("sefi_config.yaml", MAX_BYTES)])
def test_yaml_beyond_any_configuration_is_not_parsed(tmp_path, name, limit):
    """PyYAML takes 25 s for a megabyte of values: more than 10 s."""
    (tmp_path / name).write_text("- a\n" * (limit // 4 + 1))
    with pytest.raises(lwd.InputError, match=says(name, str(limit))):
        load_config(str(tmp_path / name)) if name == "p.yaml" else read_config(tmp_path / name)


def test_names_that_are_not_utf8(tmp_path):
    """UnicodeEncodeError: in a data set they are refused before the work, in pictures to score they do not matter."""
    (tmp_path / "cats").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "cats" / "a.png")
    os.rename(tmp_path / "cats" / "a.png", tmp_path / "cats" / "\udcff.png")
    with pytest.raises(lwd.InputError, match=says("UTF-8")):
        FolderSource(tmp_path)
    assert len(open_pictures(tmp_path).digest) == 16
