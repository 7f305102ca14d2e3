"""SeFi-Image's layout on the hub: what is read, and what is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import save_file
from torch.testing import assert_close

import lwd
from hub import LocalHub
from lwd.checkpoints.sefi import is_sefi, load_sefi, schedule_of
from lwd.checkpoints.sefi_config import read_config
from lwd.sampling.pipeline import LWDPipeline
from lwd.sampling.sefi import SeFiSettings, solve_sefi
from messages import says
from sefi import LAYOUT, NAME, fixture, prompts, settings, write_autoencoder, write_model


@pytest.mark.parametrize("shards", [1, 3])
def test_a_directory_of_the_hub(tmp_path, shards):
    """Oracle: the fixture's prediction and its six guided steps."""
    tensors = fixture()[0]
    point = load_sefi(write_model(tmp_path, shards))
    times = 1 - torch.stack([tensors["sigma_sem"], tensors["sigma_tex"]], 1).double()
    assert_close(point.velocity(tensors["latents"], times, prompts()), -tensors["prediction"], atol=1e-5, rtol=0)
    guided = lwd.ClassifierFree(point.velocity, prompts("negative_embeds"), point.sampling.scale, LAYOUT)
    steps = SeFiSettings(point.sampling.steps, point.sampling.shift)
    z = solve_sefi(guided, point.schedule, LAYOUT, tensors["latents"], prompts(), steps).z
    assert_close(z[:, 4:], tensors["euler_texture"], atol=1e-4, rtol=0)
    assert point.layout == LAYOUT
    assert is_sefi(tmp_path)


def test_recorded_defaults(tmp_path):
    """Oracle: the reference's defaults by family, and what the file says instead."""
    base = load_sefi(write_model(tmp_path / "a"))
    assert base.schedule == schedule_of(0.1)
    assert (base.sampling.solver, base.sampling.steps, base.sampling.shift, base.sampling.scale) == ("sefi", 6, 0.3, 4)
    assert base.size == (64, 64)
    turbo = load_sefi(write_model(tmp_path / "SeFi-Image-1B-turbo", inference={"steps": None, "delta_t": 0.25}))
    assert (turbo.family, turbo.sampling.steps, turbo.sampling.shift, turbo.sampling.scale) == ("turbo", 4, 1.0, 1.0)
    assert turbo.schedule == schedule_of(0.25)
    rl = load_sefi(write_model(tmp_path / "b", inference={"family": "RL", "guidance_scale": 3, "width": 128}))
    assert (rl.family, rl.sampling.scale, rl.size) == ("rl", 3.0, (64, 128))
    named = load_sefi(tmp_path / "a", name="SeFi-Image/SeFi-Image-5B-RL")
    assert named.family == "rl"


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("SeFi-Image-2B-turbo", "turbo"),
        ("own-dmd2-4steps", "turbo"),
        ("distilled_model", "turbo"),
        ("SeFi-Image-1B-RL", "rl"),
        ("scalar-reward", "rl"),
        ("curl-model", "base"),
    ],
)
def test_the_family_by_name(tmp_path, name, family):
    """Oracle: the reference's rules: turbo, distill, dmd and scalar anywhere in the name, rl as a word."""
    assert load_sefi(write_model(tmp_path / "m"), name=f"someone/{name}").family == family


def test_keys_that_the_reference_ignores(tmp_path):
    """Oracle: the network without them: of transformer_overrides the reference reads six keys, and no other."""
    overrides = settings()["model"]["transformer_overrides"]
    ignored = {"eps": 0.5, "rope_theta": 3, "axes_dims_rope": [8, 8, 0, 0], "note": "text", "out_channels": 7}
    backbone = load_sefi(write_model(tmp_path / "a")).config.backbone
    point = load_sefi(write_model(tmp_path / "b", model={"transformer_overrides": overrides | ignored}))
    assert point.config.backbone == backbone


def test_recorded_guidance_up_to_one_is_none(tmp_path):
    """Oracle: the reference guides only with a scale above 1."""
    for scale in (0.5, 1):
        found = load_sefi(write_model(tmp_path, inference={"guidance_scale": scale})).sampling
        assert (found.guide, found.scale) == ("", 1.0)


def test_pixels_per_token_are_the_autoencoders(tmp_path):
    """Oracle: 2 latent pixels per token, and a factor of 2 for each of the autoencoder's levels but one."""
    write_autoencoder(write_model(tmp_path))
    assert load_sefi(tmp_path).grid((32, 48)) == (2, 3)
    path = tmp_path / "vae" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"block_out_channels": [4, 4]}))
    point = load_sefi(tmp_path)
    assert point.grid((32, 48)) == (8, 12)
    assert point.config.grid == (16, 16)
    with pytest.raises(lwd.InputError, match=says(4, "30x32")):
        point.grid((30, 32))


def test_schedules_of_the_band(tmp_path):
    """Oracle: offsets that it was trained with are allowed, others only if asked for."""
    sefi = {"delta_t_min": 0.0, "delta_t_max": 0.2}
    point = load_sefi(write_model(tmp_path, training={"sefi": sefi}))
    assert point.schedule == schedule_of(0.2)
    for offset in (0.0, 0.1):
        assert point.under(schedule_of(offset)).schedule == schedule_of(offset)
    with pytest.raises(lwd.InputError, match=says("0", "0.2")):
        point.under(schedule_of(0.3))
    assert point.under(schedule_of(0.3), anyway=True).schedule == schedule_of(0.3)


def test_dtype_and_prefix(tmp_path):
    """Oracle: weights of a wrapped, bfloat16 model, read as float32 on a CPU unless asked otherwise."""
    state = {f"module.{name}": tensor.bfloat16() for name, tensor in fixture()[1].items()}
    write_model(tmp_path, state=state)
    point = load_sefi(tmp_path)
    assert {weight.dtype for weight in point.velocity.parameters()} == {torch.float32}
    assert load_sefi(tmp_path, dtype=torch.bfloat16).velocity.dtype == torch.bfloat16
    tensors, times = fixture()[0], torch.tensor([[0.5, 0.4]] * 2)
    whole = point.velocity(tensors["latents"], times, prompts())
    half = load_sefi(tmp_path, dtype=torch.bfloat16).velocity(tensors["latents"], times, prompts())
    assert half.dtype == torch.float32
    assert_close(half, whole, atol=0.05, rtol=0.05)


def test_references_between_keys(tmp_path):
    """Oracle: OmegaConf's ${a.b} is replaced; anything that would be evaluated stays text."""
    value = settings(model={"model_name": "${oc.env:HOME}"}, inference={"steps": "${training.count}"})
    value["training"]["count"] = 9
    (tmp_path / "sefi_config.yaml").write_text(yaml.safe_dump(value))
    config = read_config(tmp_path / "sefi_config.yaml")
    assert config.inference.steps == 9
    assert config.model.assets.scheduler_path == "."
    assert config.model.model_name == "${oc.env:HOME}"


def broken(root, how):
    folder = root / "transformer"
    index = folder / f"{NAME}.safetensors.index.json"
    if how == "shard":
        next(folder.glob("*00002*")).unlink()
    elif how == "traversal":
        value = json.loads(index.read_text())
        value["weight_map"]["backbone.proj_out.weight"] = "../x.safetensors"
        index.write_text(json.dumps(value))
    elif how == "truncated":
        path = next(folder.glob("*00002*"))
        path.write_bytes(path.read_bytes()[:-10])
    elif how == "index":
        index.write_text("{}")
    elif how == "weights":
        for path in folder.glob(f"{NAME}*"):
            path.unlink()
    elif how == "yaml":
        (root / "sefi_config.yaml").write_text("model: [")
    elif how == "levels":
        (root / "scheduler" / "scheduler_config.json").write_text('{"num_train_timesteps": 500}')
    elif how == "fixed shift":
        (root / "scheduler" / "scheduler_config.json").write_text('{"shift": 3.0}')
    elif how == "no architecture":
        (folder / "config.json").unlink()


@pytest.mark.parametrize(
    ("how", "facts"),
    [
        ("shard", (f"{NAME}-00002-of-00002.safetensors",)),
        ("traversal", ("../x.safetensors",)),
        ("truncated", (f"{NAME}-00002-of-00002.safetensors",)),
        ("index", ("weight_map",)),
        ("weights", (f"{NAME}.safetensors",)),
        ("yaml", ("sefi_config.yaml", "YAML")),
        ("levels", ("scheduler_config.json", 1000, 500)),
        ("fixed shift", ("scheduler_config.json", "3.0")),
        ("no architecture", ("config.json",)),
    ],
)
def test_broken_directories(tmp_path, how, facts):
    """Oracle: one line that names the file."""
    broken(write_model(tmp_path, 2), how)
    with pytest.raises(lwd.InputError, match=says(*facts)) as error:
        load_sefi(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"model": {"transformer_scale": "7b"}}, ("sefi_config.yaml", "7b", "0p5b", "9b")),
        ({"model": {"transformer_scale": "", "model_name": "flux2-klein-base-11b-sefi"}}, ("11b", "model.model_name")),
        ({"model": {"semantic_channels": 0}}, ("sefi_config.yaml", "semantic_channels", 1, 0)),
        ({"model": {"semantic_channels": None}}, ("sefi_config.yaml", "semantic_channels")),
        ({"model": {"semantic_channels": 12}}, ("semantic_channels", 12)),
        ({"model": {"transformer_scale": "1b"}}, ("backbone.proj_out.weight", "(12, 32)", "(12, 2048)")),
        ({"training": {"sefi": {"delta_t_min": 0.4, "delta_t_max": 0.1}}}, ("delta_t_min", "0.4")),
        ({"training": {"sefi": {"delta_t_max": 1.5}}}, ("delta_t_max", "1.5")),
        ({"inference": {"family": "large"}}, ("large", "turbo")),
        ({"inference": {"timestep_shift_alpha": 0}}, ("timestep_shift_alpha", 0)),
    ],
)
def test_bad_configurations(tmp_path, changes, facts):
    """Oracle: one line that names the file, the key and the value."""
    write_model(tmp_path, **changes)
    with pytest.raises(lwd.InputError, match=says(*facts)) as error:
        load_sefi(tmp_path)
    assert "\n" not in str(error.value)


def test_tensors_that_do_not_fit(tmp_path):
    """Oracle: the names and shapes of the tensors, before any is read."""
    state = dict(fixture()[1])
    state["backbone.x_embedder.weight"] = torch.zeros(31, 12)
    state["extra"] = torch.zeros(2)
    del state["backbone.norm_out.linear.weight"]
    write_model(tmp_path, state=state)
    facts = ("backbone.x_embedder.weight", "(31, 12)", "(32, 12)", "extra", "backbone.norm_out.linear.weight")
    with pytest.raises(lwd.InputError, match=says(*facts)):
        load_sefi(tmp_path)


def test_the_autoencoder_decides_the_texture_channels(tmp_path):
    """Oracle: latent channels times 2 x 2; weights for another number do not fit."""
    write_autoencoder(write_model(tmp_path))
    assert load_sefi(tmp_path).autoencoder == tmp_path / "vae"
    value = json.loads((tmp_path / "vae" / "config.json").read_text())
    (tmp_path / "vae" / "config.json").write_text(json.dumps(value | {"latent_channels": 4}))
    with pytest.raises(lwd.InputError, match=says("(32, 12)", "(32, 20)")):
        load_sefi(tmp_path)


@pytest.mark.parametrize(("status", "code"), [(401, "RepoNotFound"), (403, "GatedRepo")])
def test_a_hub_id_that_needs_a_login(tmp_path, monkeypatch, status, code):
    """Oracle: one line that says how to log in, from the real client against a hub that refuses."""
    hub = LocalHub(tmp_path / "hub")
    hub.denied["list"] = (status, code)
    with hub.serving():
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
        with pytest.raises(lwd.InputError, match=says("hf auth login")) as error:
            LWDPipeline.from_pretrained("SeFi-Image/SeFi-Image-1B-Base")
    assert "\n" not in str(error.value)


PEAK = """
import sys, torch
from pathlib import Path
sys.path.insert(0, {tests!r})
def peak():
    line = next(l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
from lwd.checkpoints.sefi import load_sefi
from sefi import write_model
load_sefi({small!r})
before = peak()
point = load_sefi({large!r}, dtype={kind})
assert point.velocity.dtype == {kind}
size = sum(w.numel() * w.element_size() for w in point.velocity.parameters())
print((peak() - before) / size)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_memory_of_loading(tmp_path, kind, stored):
    """Oracle: the peak of a process of its own, over the size of the weights in memory: 210 MB, or 105 in bfloat16."""
    from lwd.models.sefi import SeFiConfig, SeFiNetwork

    sizes = {"attention_head_dim": 64, "num_attention_heads": 8, "num_layers": 2, "num_single_layers": 10}
    backbone = fixture()[2]["backbone"] | sizes | {"axes_dims_rope": [16, 16, 16, 16]}
    torch.manual_seed(0)
    state = {n: t.to(stored) for n, t in SeFiNetwork(SeFiConfig(LAYOUT, backbone)).state_dict().items()}
    overrides = {key: backbone[key] for key in (*sizes, "joint_attention_dim")}
    large = write_model(tmp_path / "large", 3, state, model={"transformer_overrides": overrides})
    config = large / "transformer" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"axes_dims_rope": [16, 16, 16, 16]}))
    small = write_model(tmp_path / "small")
    script = PEAK.format(tests=str(Path(__file__).parents[1]), small=str(small), large=str(large), kind=kind)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1.3


def test_pickled_weights_are_not_read(tmp_path):
    """Oracle: a directory with only a .bin has no weights for lwd."""
    write_model(tmp_path)
    (tmp_path / "transformer" / f"{NAME}.safetensors").unlink()
    torch.save(fixture()[1], tmp_path / "transformer" / f"{NAME}.bin")
    with pytest.raises(lwd.InputError, match=says(f"{NAME}.safetensors")):
        load_sefi(tmp_path)
    save_file(fixture()[1], tmp_path / "transformer" / f"{NAME}.safetensors")
    assert load_sefi(tmp_path).layout == LAYOUT
