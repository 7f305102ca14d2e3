"""Reading the weights that exist: every wrapping, every failure, and bit-exact round trips."""

import argparse
import os
import pickle
import subprocess
import sys
import zipfile

import pytest
import torch
from torch.testing import assert_close

import lwd
from lwd.checkpoints.convert import Options, convert, export_reference
from lwd.cli import main
from lwd.io.tensors import read_safetensors, read_state, write_safetensors
from lwd.models.lightningdit import LightningDiT
from messages import says
from reference import LAYOUT, busy_network, reference_state, sfd, sfd_network, small_config

SFD = Options(layout=LAYOUT, schedule="offset:0.3")


def converted(tmp_path, content, options=SFD, name="in.pt"):
    torch.save(content, tmp_path / name)
    convert(tmp_path / name, tmp_path / "out", options)
    return lwd.load(tmp_path / "out")


@pytest.mark.parametrize(
    "wrap",
    [
        lambda s: {"ema": s},
        lambda s: {"model": {k: v + 1 for k, v in s.items()}, "ema": s, "opt": {"state": {}, "param_groups": []}},
        lambda s: {"ema": {f"module.{k}": v for k, v in s.items()}},
        lambda s: {"model": {f"module._orig_mod.{k}": v for k, v in s.items()}, "args": argparse.Namespace(x=1)},
        lambda s: s,
    ],
    ids=["ema", "model+ema+opt", "module.", "compiled+args", "bare"],
)
def test_every_wrapping_of_sfd_weights_loads(tmp_path, wrap):
    """Oracle: the stored output of the reference network."""
    stored, state, _ = sfd()
    point = converted(tmp_path, wrap(state))
    assert (point.layout, point.schedule, point.statistics) == (LAYOUT, lwd.Offset(0.3), None)
    out = point.velocity(stored["x1"], torch.stack([stored["t_tex"], stored["t_sem"]], 1), stored["y"])
    assert_close(out, stored["out"], atol=2e-5, rtol=0)


def test_weights_can_be_chosen(tmp_path):
    state = reference_state(small_config())
    options = Options(layout=LAYOUT, schedule="offset:0.3", weights="model")
    point = converted(
        tmp_path,
        {"ema": state, "model": {k: v if k == "pos_embed" or "rope" in k else v * 2 for k, v in state.items()}},
        options,
    )
    assert torch.equal(point.velocity.blocks[0].attn.qkv.weight, 2 * state["blocks.0.attn.qkv.weight"])
    torch.save({"ema": state}, tmp_path / "ema.pt")
    with pytest.raises(lwd.InputError, match=says("ema.pt", "model", "ema")):
        read_state(tmp_path / "ema.pt", "model")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tap": 2, "projector_width": 16, "features": 6},
        {"patch": 2},
        {"depth": 3, "width": 32, "heads": 2},
        {"shift": False},
    ],
)
def test_shapes_tell_the_configuration(tmp_path, changes):
    """Oracle: the configuration that made the weights."""
    config = small_config(**changes)
    point = converted(tmp_path, {"ema": reference_state(config)})
    assert point.config == config if config.tap else point.config.to_dict() == config.to_dict()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "layer", "mlp": "gelu", "qk_norm": False, "rotary": False},
        {"norm": "layer", "mlp": "gelu", "qk_norm": False, "rotary": False, "learned_sigma": True, "patch": 2},
    ],
    ids=["LightningDiT", "DiT", "SiT with sigma"],
)
def test_single_clock_networks_load_as_one_group(tmp_path, changes):
    """Oracle: the network that made the weights, called with one clock."""
    config = small_config(lwd.Layout.of(texture=4), **changes)
    heads = None if config.qk_norm else 4
    point = converted(tmp_path, {"model": reference_state(config, seed=3)}, Options(heads=heads))
    assert point.schedule == lwd.Synchronous(("texture",))
    z, t, label = torch.randn(2, 4, 4, 4), torch.rand(2, 1), torch.tensor([0, 5])
    with torch.no_grad():
        assert torch.equal(point.velocity(z, t, label), busy_network(config, seed=3)(z, t, label))


def test_non_square_grids_need_and_take_the_option(tmp_path):
    config = small_config(grid=(2, 6))
    torch.save({"ema": reference_state(config)}, tmp_path / "in.pt")
    with pytest.raises(lwd.InputError, match=says(12)):
        convert(tmp_path / "in.pt", tmp_path / "out", SFD)
    convert(tmp_path / "in.pt", tmp_path / "out", Options(LAYOUT, "offset:0.3", grid=(2, 6)))
    assert lwd.load(tmp_path / "out").config.grid == (2, 6)


def test_round_trips_are_bit_exact(tmp_path):
    """Oracle: bytes of model.safetensors after directory -> .pt -> directory."""
    converted(tmp_path, {"ema": sfd()[1]})
    export_reference(tmp_path / "out", tmp_path / "back.pt")
    again = torch.load(tmp_path / "back.pt", weights_only=True)["ema"]
    assert again.keys() == sfd()[1].keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in sfd()[1].items())
    convert(tmp_path / "back.pt", tmp_path / "again", SFD)
    for name in ("model.safetensors", "schedule.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_save_and_load_are_inverse(tmp_path):
    statistics = lwd.Statistics(
        {"texture": torch.randn(8), "semantic": torch.randn(4)},
        {"texture": torch.rand(8) + 0.5, "semantic": torch.ones(4)},
    )
    point = lwd.Checkpoint(busy_network(small_config()), lwd.Polynomial([[0.1, 0.2, 0.3]]).freeze(), statistics)
    lwd.save(point, tmp_path / "p")
    again = lwd.load(tmp_path / "p")
    assert (again.schedule, again.statistics, again.config) == (point.schedule, statistics, point.config)
    for name, tensor in point.velocity.state_dict().items():
        assert torch.equal(again.velocity.state_dict()[name], tensor)
    z = torch.randn(2, 12, 4, 4)
    latents = again.latents(statistics.normalize(z, LAYOUT))
    assert_close(latents["semantic"], z[:, 8:])
    assert "2 blocks of 48, texture=8,semantic=4" in repr(again)


def test_reference_statistics_are_read(tmp_path):
    """Oracle: SFD's form, (1, c, 1, 1) under 'mean' and 'std'."""
    values = {}
    for name, c in (("texture", 8), ("semantic", 4)):
        values[name] = {"mean": torch.randn(1, c, 1, 1), "std": torch.rand(1, c, 1, 1) + 0.1}
        torch.save(values[name], tmp_path / f"{name}.pt")
    files = {name: str(tmp_path / f"{name}.pt") for name in values}
    point = converted(tmp_path, sfd()[1], Options(LAYOUT, "offset:0.3", statistics=files))
    for name, value in values.items():
        assert torch.equal(point.statistics.mean[name], value["mean"].flatten())
        assert torch.equal(point.statistics.std[name], value["std"].flatten())
    with pytest.raises(lwd.InputError, match=says("texture=4", "texture=8,semantic=4")):
        converted(tmp_path, sfd()[1], Options(LAYOUT, "offset:0.3", statistics={"texture": files["semantic"]}), "b.pt")


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


def test_compressed_archives_and_all_prefixes_are_read(tmp_path):
    """Oracle: the stored weights; a deflated archive cannot be memory-mapped, so it must not be."""
    torch.save({"ema": {f"_orig_mod.module.{name}": t for name, t in sfd()[1].items()}}, tmp_path / "plain.pt")
    with zipfile.ZipFile(tmp_path / "plain.pt") as old, zipfile.ZipFile(tmp_path / "small.pt", "w") as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry), compress_type=zipfile.ZIP_DEFLATED)
    for name in ("plain.pt", "small.pt"):
        state = read_state(tmp_path / name)
        assert all(torch.equal(state[key], tensor) for key, tensor in sfd()[1].items())
    torch.save({"ema": {"a": torch.zeros(1), "module.a": torch.zeros(1)}}, tmp_path / "twice.pt")
    with pytest.raises(lwd.InputError, match=says("twice.pt", "module.")):
        read_state(tmp_path / "twice.pt")


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


def test_rotary_is_what_the_tables_say(tmp_path):
    """Oracle: a network with qk-norm and without rotary embedding survives the round trip."""
    config = small_config(rotary=False)
    point = converted(tmp_path, {"ema": reference_state(config)})
    assert point.config == config


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


def test_provenance_travels(tmp_path):
    """Oracle: load, save, load; the schedule's own provenance and the file's name."""
    lwd.save_schedule(lwd.Polynomial([[0.0, 1.0]]), tmp_path / "learned.json", {"lambda": 0.04})
    torch.save({"ema": sfd()[1]}, tmp_path / "xl.pt")
    convert(tmp_path / "xl.pt", tmp_path / "out", Options(LAYOUT, str(tmp_path / "learned.json")))
    lwd.save(lwd.load(tmp_path / "out"), tmp_path / "again")
    for name in ("config.json", "schedule.json", "model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    assert lwd.load(tmp_path / "again").provenance == {"converted_from": "xl.pt", "schedule": {"lambda": 0.04}}


def test_dtypes_and_devices_of_loaded_models(tmp_path):
    """Oracle: a float32 load, to the precision of the dtype; mixed files get the widest."""
    halves = {name: t.half() if name.startswith("blocks.0") else t for name, t in sfd()[1].items()}
    point = converted(tmp_path, {"ema": halves})
    assert {p.dtype for p in point.velocity.parameters()} == {torch.float32}
    stored = sfd()[0]
    times = torch.stack([stored["t_tex"], stored["t_sem"]], 1)
    for dtype, tolerance in ((torch.bfloat16, 0.1), (torch.float64, 2e-2)):
        network = lwd.load(tmp_path / "out", dtype=dtype).velocity
        assert_close(network(stored["x1"], times, stored["y"]).float(), stored["out"], atol=tolerance, rtol=0)
    with pytest.raises(lwd.InputError, match=says("gpu")):
        lwd.load(tmp_path / "out", "gpu")


def test_a_renamed_safetensors_file_is_still_read(tmp_path):
    """Oracle: content decides, not the suffix."""
    write_safetensors(tmp_path / "weights.pt", sfd()[1])
    convert(tmp_path / "weights.pt", tmp_path / "out", SFD)
    assert lwd.load(tmp_path / "out").config == sfd_network().config


def test_broken_directories_are_refused(tmp_path):
    converted(tmp_path, {"ema": sfd()[1]})
    out = tmp_path / "out"
    weights = (out / "model.safetensors").read_bytes()
    for content in (weights[:100], weights[:-10], b""):
        (out / "model.safetensors").write_bytes(content)
        with pytest.raises(lwd.InputError, match=says("model.safetensors")):
            lwd.load(out)
    write_safetensors(out / "model.safetensors", {"x": torch.zeros(1)})
    with pytest.raises(lwd.InputError, match=says("model.safetensors", "x")):
        lwd.load(out)
    for text, facts in (
        ('{"format": "other"}', ("lwd.model", "other")), ('{"format": "lwd.model", "version": 9}', ("version", 9)),
        ('{"format": "lwd.model", "version": 1, "architecture": "lightningdit"}', ("config.json", "network")),
        ('{"format": "lwd.model", "version": 1, "network": 5}', ("config.json", "network", 5)),
        ("{", ("config.json", "JSON")),
    ):  # fmt: skip
        (out / "config.json").write_text(text)
        with pytest.raises(lwd.InputError, match=says(facts)):
            lwd.load(out)
    with pytest.raises(lwd.InputError, match=says("in.pt", "lwd convert")):
        lwd.load(tmp_path / "in.pt")


def test_our_safetensors_writer_is_the_formats(tmp_path):
    """Oracle: the safetensors library reads back every dtype, empty and scalar tensors, and views."""
    tensors = {
        "a": torch.randn(3, 4).T, "b": torch.tensor(2.5), "c": torch.zeros(0, 3), "d": torch.randn(5).bfloat16(),
        "é": torch.arange(3), "f": torch.tensor([True, False]), "g": torch.randn(2).half(),
    }  # fmt: skip
    write_safetensors(tmp_path / "t.safetensors", tensors)
    again = read_safetensors(tmp_path / "t.safetensors")
    assert again.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert again[name].dtype == tensor.dtype
        assert torch.equal(again[name], tensor)


@pytest.mark.slow
def test_peak_memory_is_below_1_3_times_the_weights(tmp_path):
    """Oracle: resident memory of a fresh process, with and without the conversion of 200 MB (model and ema: 400)."""
    config = small_config(depth=6, width=768, heads=12)
    with torch.device("meta"):
        shapes = LightningDiT(config).state_dict()
    from lwd.checkpoints.reference import to_reference

    state = to_reference({name: torch.zeros(t.shape) for name, t in shapes.items()}, config)
    size = sum(t.numel() * 4 for t in state.values())
    torch.save({"model": state, "ema": {k: v.clone() for k, v in state.items()}}, tmp_path / "big.pt")
    code = (
        "import sys, resource; from lwd.checkpoints.convert import *; from lwd.groups import Layout\n"
        "import lwd.checkpoints.directory\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "if sys.argv[1] == 'convert':\n"
        "    options = Options(Layout.of(texture=8, semantic=4), 'offset:0.3')\n"
        f"    convert({str(tmp_path / 'big.pt')!r}, {str(tmp_path / 'out')!r}, options)\n"
        "else:\n"
        f"    kept = lwd.checkpoints.directory.load({str(tmp_path / 'out')!r})\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    unit = 1 if sys.platform == "darwin" else 1024
    for action in ("convert", "load"):
        grown = subprocess.run([sys.executable, "-c", code, action], capture_output=True, text=True, check=True).stdout
        assert int(grown) * unit < 1.3 * size, action


def test_the_command(tmp_path, capsys):
    torch.save({"ema": sfd()[1]}, tmp_path / "sfd.pt")
    arguments = ["convert", str(tmp_path / "sfd.pt"), "--out", str(tmp_path / "o")]
    assert main([*arguments, "--groups", "texture=8,semantic=4", "--schedule", "offset:0.3"]) == 0
    out = capsys.readouterr().out
    assert says(3, 96, 4, 1, 10, "8x8", "texture=8,semantic=4").search(out), out
    assert main(["convert", str(tmp_path / "o"), "--out", str(tmp_path / "back.pt")]) == 0
    for extra, facts in (
        (["--groups", "texture=8,semantic=4", "--schedule", "offset:0.3"], "--force"),
        (
            ["--groups", "texture=8,semantic=5", "--schedule", "offset:0.3", "--force"],
            (13, 12),
        ),
        (["--groups", "texture=12", "--schedule", "synchronous", "--force"], ("texture=12", "semantic")),
        (["--groups", "texture=8,semantic=4", "--force"], "--schedule"),
        (["--groups", "texture=8,semantic=4", "--schedule", "offset:0.3", "--grid", "8"], "'8'"),
        (["--groups", "texture=8,semantic=4", "--schedule", "offset:0.3", "--heads", "3", "--force"], (3, 4)),
        (["--statistics", "x"], "'x'"),
    ):
        capsys.readouterr()
        assert main([*arguments, *extra]) == 2
        err = capsys.readouterr().err
        assert says(facts).search(err), err
        assert err.count("\n") == 1
    assert main(["convert", str(tmp_path / "o"), "--out", str(tmp_path / "x.pt"), "--groups", "a=1"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert main(["convert", str(tmp_path / "o"), "--out", str(tmp_path / "x.bin")]) == 2


def test_a_process_of_a_cpu_group_reads_too(tmp_path):
    """Oracle: accelerate names the device of a gloo process "cpu:0"; the tensors are the same."""
    write_safetensors(tmp_path / "a.safetensors", {"x": torch.arange(4.0)})
    assert torch.equal(read_safetensors(tmp_path / "a.safetensors", "cpu:0")["x"], torch.arange(4.0))
