"""Reading the weights that exist: every wrapping, and bit-exact round trips."""

import argparse
import subprocess
import sys

import pytest
import torch
from torch.testing import assert_close

import lwd
from checkpoints.converted import SFD, converted
from lwd.checkpoints.convert import Options, convert, export_reference
from lwd.cli import main
from lwd.io.tensors import read_state, write_safetensors
from lwd.models.lightningdit import LightningDiT
from messages import says
from reference import LAYOUT, busy_network, reference_state, sfd, sfd_network, small_config


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


def test_rotary_is_what_the_tables_say(tmp_path):
    """Oracle: a network with qk-norm and without rotary embedding survives the round trip."""
    config = small_config(rotary=False)
    point = converted(tmp_path, {"ema": reference_state(config)})
    assert point.config == config


def test_a_renamed_safetensors_file_is_still_read(tmp_path):
    """Oracle: content decides, not the suffix."""
    write_safetensors(tmp_path / "weights.pt", sfd()[1])
    convert(tmp_path / "weights.pt", tmp_path / "out", SFD)
    assert lwd.load(tmp_path / "out").config == sfd_network().config


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
    assert lwd.load(tmp_path / "o").layout == lwd.Layout.of(texture=8, semantic=4)
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
    assert says("--groups").search(capsys.readouterr().err)
    assert main(["convert", str(tmp_path / "o"), "--out", str(tmp_path / "x.bin")]) == 2
    assert says("x.bin", "--out").search(capsys.readouterr().err)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["back.pt", "o", "sfd.pt"]
