"""Weights that cannot be converted: each is refused with its reason, and nothing is half written."""

import os
import pickle
import zipfile

import pytest
import torch

import lwd
from checkpoints.converted import SFD
from lwd.checkpoints.convert import Options, convert
from messages import says
from reference import LAYOUT, sfd


def test_two_clocks_without_a_schedule_are_refused_and_told_why(tmp_path):
    torch.save({"ema": sfd()[1]}, tmp_path / "xl_1m.pt")
    with pytest.raises(lwd.InputError, match=says("schedule", "offset:0.3")):
        convert(tmp_path / "xl_1m.pt", tmp_path / "out", Options(layout=LAYOUT))
    with pytest.raises(lwd.InputError, match=says(12, "texture=32,semantic=16")):
        convert(tmp_path / "xl_1m.pt", tmp_path / "out", Options(schedule="offset:0.3"))
    lwd.save_schedule(lwd.Polynomial([[0.0, 1.0]]), tmp_path / "learned.json")
    convert(tmp_path / "xl_1m.pt", tmp_path / "out", Options(LAYOUT, str(tmp_path / "learned.json")))
    assert lwd.load(tmp_path / "out").schedule == lwd.Polynomial([[0.0, 1.0]])


class Bomb:
    """A pickle that would create a file when it is loaded without care."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.system, (f"touch {self.path}",))


def change(**tensors):
    return {"ema": {name: t for name, t in (sfd()[1] | tensors).items() if t is not None}}


def test_every_bad_tensor_is_listed_and_the_destination_stays(tmp_path):
    """Oracle: names in the message; bytes of a destination that was there before."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("old")
    bad = change(**{
        "blocks.1.attn.qkv.weight": None, "blocks.2.norm1.weight": torch.zeros(7), "blocks.0.extra": torch.zeros(2),
        "final_layer.linear.bias": torch.zeros(12, dtype=torch.int64), "pos_embed": torch.rand(1, 64, 96),
    })  # fmt: skip
    torch.save(bad, tmp_path / "bad.pt")
    with pytest.raises(lwd.InputError) as caught:
        convert(tmp_path / "bad.pt", tmp_path / "out", SFD, replace=True)
    for facts in (
        ("blocks.1.attn.qkv.weight", "(288, 96)"), ("blocks.2.norm1.weight", "(7,)", "(96,)"),
        ("blocks.0.extra", "(2,)"), ("final_layer.linear.bias", "torch.int64"), "pos_embed",
    ):  # fmt: skip
        assert says(facts).search(str(caught.value))
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["precious"]


def test_hostile_truncated_and_foreign_files_are_refused_without_running_them(tmp_path):
    """Oracle: no file appears, the destination is not created, the message says why."""
    good, trace = tmp_path / "good.pt", tmp_path / "trace"
    torch.save({"ema": sfd()[1]}, good)
    files = {
        "bomb.pt": pickle.dumps({"ema": Bomb(trace)}),
        "truncated.pt": good.read_bytes()[: good.stat().st_size // 2],
        "empty.pt": b"",
        "text.pt": b"not a checkpoint at all",
        "list.pt": None,
        "number.pt": None,
    }
    torch.save([1, 2], tmp_path / "list.pt")
    torch.save({"ema": {"a": 3}}, tmp_path / "number.pt")
    torch.save({"ema": Bomb(trace)}, tmp_path / "zipbomb.pt")
    with zipfile.ZipFile(tmp_path / "zip.pt", "w") as archive:
        archive.writestr("hello.txt", "hello")
    facts = {"zipbomb.pt": "system", "list.pt": "list", "number.pt": "a"}
    for name in (*files, "zipbomb.pt", "zip.pt", "absent.pt"):
        if files.get(name) is not None:
            (tmp_path / name).write_bytes(files[name])
        with pytest.raises(lwd.InputError, match=says(name, facts.get(name, ()))) as caught:
            convert(tmp_path / name, tmp_path / "out", SFD)
        assert "\n" not in str(caught.value)
        assert not trace.exists()
        assert not (tmp_path / "out").exists()
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


ODD = {
    "far block": ({"blocks.200000.x": torch.zeros(1)}, ("blocks", 3)),
    "long number": ({f"blocks.{'9' * 5000}.x": torch.zeros(1)}, ("blocks", 3)),
    "flat table": ({"pos_embed": torch.zeros(64)}, "(64,)"),
    "empty norm": ({"blocks.0.attn.q_norm.weight": torch.zeros(0)}, 96),
    "float8": ({"final_layer.linear.bias": torch.zeros(12).to(torch.float8_e4m3fn)}, "final_layer.linear.bias"),
    "sparse": ({"final_layer.linear.bias": torch.zeros(12).to_sparse()}, "final_layer.linear.bias"),
    "flat embedder": ({"x_embedder.proj.weight": torch.zeros(96, 12)}, ("x_embedder.proj.weight", 4, "(96, 12)")),
    "no table": ({"pos_embed": None, "feat_rope.freqs_cos": None, "feat_rope.freqs_sin": None}, "pos_embed"),
    "no embedder": ({"x_embedder.proj.weight": None}, "x_embedder.proj.weight"),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_tensors_get_a_sentence(tmp_path, name):
    tensors, facts = ODD[name]
    torch.save(change(**tensors), tmp_path / "odd.pt")
    with pytest.raises(lwd.InputError, match=says(facts)):
        convert(tmp_path / "odd.pt", tmp_path / "out", SFD)
    assert not (tmp_path / "out").exists()


def test_channel_order_and_null_rows_are_not_guessed(tmp_path):
    """Oracle: the reference has texture first; a table of exactly N rows has no null label."""
    torch.save({"ema": sfd()[1]}, tmp_path / "in.pt")
    with pytest.raises(lwd.InputError, match=says("texture", "semantic")):
        convert(tmp_path / "in.pt", tmp_path / "out", Options(lwd.Layout.of(semantic=4, texture=8), "offset:0.3"))
    with pytest.raises(lwd.InputError, match=says("polynomial")):
        convert(tmp_path / "in.pt", tmp_path / "out", Options(LAYOUT, "polynomial"))
    with pytest.raises(lwd.InputError, match=says(11, 12)):
        convert(tmp_path / "in.pt", tmp_path / "out", Options(LAYOUT, "offset:0.3", classes=12))
    convert(tmp_path / "in.pt", tmp_path / "out", Options(LAYOUT, "offset:0.3", classes=11))
    point = lwd.load(tmp_path / "out")
    assert (point.config.classes, point.config.null_row) == (11, False)
    with pytest.raises(lwd.InputError, match=says("null")):
        _ = point.null_label


def test_only_models_are_replaced_and_links_are_kept(tmp_path):
    """Oracle: what lies in the directories afterwards."""
    torch.save({"ema": sfd()[1]}, tmp_path / "in.pt")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("years")
    (tmp_path / "file").write_text("text")
    with pytest.raises(lwd.InputError, match=says("thesis", "config.json")):
        convert(tmp_path / "in.pt", tmp_path / "thesis", SFD, replace=True)
    with pytest.raises(lwd.InputError, match=says("file")):
        convert(tmp_path / "in.pt", tmp_path / "file", SFD, replace=True)
    with pytest.raises(lwd.InputError, match=says("in.pt")):
        convert(tmp_path / "in.pt", tmp_path, SFD, replace=True)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for _ in range(2):
        convert(tmp_path / "in.pt", tmp_path / "link", SFD, replace=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "model.safetensors").is_file()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "in.pt", "link", "real", "thesis"]


def test_killed_halfway_leaves_the_old_model(tmp_path, monkeypatch):
    """Oracle: bytes of the old directory; no leftovers."""
    torch.save({"ema": sfd()[1]}, tmp_path / "in.pt")
    convert(tmp_path / "in.pt", tmp_path / "out", SFD)
    before = {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()}
    monkeypatch.setattr("lwd.io.records.write_json", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        convert(tmp_path / "in.pt", tmp_path / "out", SFD, replace=True)
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.pt", "out"]
