"""Prompts in, images out: text encoder, autoencoder, pipeline and command."""

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

import lwd
from lwd.checkpoints.sefi import load_sefi, schedule_of
from lwd.cli import main
from lwd.models.sefi import SeFiNetwork
from lwd.representations.flux2 import Flux2Autoencoder
from lwd.representations.text import TextEncoder, TextSettings
from lwd.representations.texture import TextureAutoencoder, to_uint8
from lwd.sampling.sefi import sample_sefi
from lwd.sampling.text import TextPipeline, offload_blocks
from messages import exit_code, says
from sefi import (
    LAYOUT,
    flux2_autoencoder,
    network,
    prompts,
    random_prompts,
    settings,
    write_autoencoder,
    write_model,
    write_text_encoder,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A complete directory."""
    root = tmp_path_factory.mktemp("SeFi-Image-tiny-Base")
    return write_text_encoder(write_autoencoder(write_model(root, 2)))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LWD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "prompts"


def test_the_autoencoder_normalises_patches(model):
    """Oracle: diffusers' own patches and the batch norm's statistics, as its Flux 2 pipeline uses them."""
    from diffusers import Flux2KleinPipeline  # seconds, in this file's process only

    kl, ours = flux2_autoencoder(), TextureAutoencoder.load(model / "vae")
    assert isinstance(ours, Flux2Autoencoder)
    assert (ours.channels, ours.factor) == (8, 16)
    images = torch.rand(2, 3, 32, 48, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        raw = kl.encode(images).latent_dist.mode()
        patches = Flux2KleinPipeline._patchify_latents(raw)
        mean, std = (part.reshape(1, -1, 1, 1) for part in (kl.bn.running_mean, (kl.bn.running_var + 1e-4).sqrt()))
        latents = ours.encode(images)
        assert_close(latents, (patches - mean) / std, atol=1e-5, rtol=1e-5)
        assert_close(ours.decode(latents), kl.decode(raw).sample, atol=1e-4, rtol=1e-4)
    with pytest.raises(lwd.InputError, match=says(16, "40x32")):
        ours.encode(torch.zeros(1, 3, 40, 32))


def test_embeddings_are_hidden_states(model, cache):
    """Oracle: the hidden states of the full model, at the configured layers, of the padded prompt."""
    from transformers import AutoTokenizer, Qwen3VLForConditionalGeneration

    folder = model / "text_encoder" / "Qwen3-VL-2B-Instruct"
    encoder = TextEncoder(TextSettings(folder, (1, 2, 3), 24))
    found = encoder(["a red apple", "", "a red apple"])
    assert found.embeddings.shape == (3, 24, 24)
    assert torch.equal(found.embeddings[0], found.embeddings[2])
    full, tokenizer = Qwen3VLForConditionalGeneration.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    text = "user a red apple assistant"
    tokens = tokenizer(text, return_tensors="pt", padding="max_length", max_length=24)
    with torch.no_grad():
        states = full.model(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"],
                            output_hidden_states=True).hidden_states  # fmt: skip
    wanted = torch.stack([states[i] for i in (1, 2, 3)], 2).flatten(2)[0]
    assert_close(found.embeddings[0], wanted, atol=1e-5, rtol=1e-4)
    assert len(list(cache.glob("*.safetensors"))) == 2
    encoder.free()
    assert torch.equal(encoder(["a red apple"]).embeddings[0], found.embeddings[0])
    assert not encoder.is_loaded  # from the cache
    assert encoder(["a blue mug"]).embeddings.shape == (1, 24, 24)
    assert encoder.is_loaded


def test_the_template_of_the_processor_comes_first(model, tmp_path):
    """Oracle: the reference asks the processor, whose chat_template.json comes before that of the tokenizer."""
    folder = model / "text_encoder" / "Qwen3-VL-2B-Instruct"
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    own = (other / "chat_template.jinja").read_text()
    (other / "chat_template.jinja").unlink()
    config = json.loads((other / "tokenizer_config.json").read_text())
    (other / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": "apple"}))
    of_tokenizer = TextEncoder(TextSettings(other, (1, 2, 3), 24))(["a mug"]).embeddings
    (other / "chat_template.json").write_text(json.dumps({"chat_template": own}))
    wanted = TextEncoder(TextSettings(folder, (1, 2, 3), 24))(["a mug"]).embeddings
    assert torch.equal(TextEncoder(TextSettings(other, (1, 2, 3), 24))(["a mug"]).embeddings, wanted)
    assert not torch.equal(of_tokenizer, wanted)


def test_hidden_states_from_the_end(model):
    """Oracle: the same states by their number; the encoder has an embedding and four blocks."""
    folder = model / "text_encoder" / "Qwen3-VL-2B-Instruct"
    found = [TextEncoder(TextSettings(folder, layers, 24))(["a mug"]).embeddings for layers in ((-1, -3), (4, 2))]
    assert torch.equal(*found)


def test_bad_prompts(model, cache, tmp_path):
    """Oracle: one line that says how many tokens there are and may be, or what is missing."""
    folder = model / "text_encoder" / "Qwen3-VL-2B-Instruct"
    encoder = TextEncoder(TextSettings(folder, (1, 2, 3), 24))
    with pytest.raises(lwd.InputError, match=says(32, 24)):
        encoder(["apple " * 30])
    with pytest.raises(lwd.InputError, match=says("prompts")):
        encoder("apple")
    with pytest.raises(lwd.InputError, match=says(9, 4)):
        TextEncoder(TextSettings(folder, (1, 9), 24))(["apple"])
    with pytest.raises(lwd.InputError, match=says("config.json", "text_encoder")):
        TextEncoder(TextSettings(tmp_path, (1,), 24))(["apple"])
    assert not list(cache.glob("*")) if cache.exists() else True


def truncated(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:500])


def without_a_block(folder):
    state = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in state.items() if "layers.2." not in name}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})


def without_a_tokenizer(folder):
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()


def without_padding(folder):
    path = folder / "tokenizer_config.json"
    value = json.loads(path.read_text())
    value.pop("pad_token")
    path.write_text(json.dumps(value))


@pytest.mark.parametrize(
    ("broken", "facts"),
    [
        (truncated, ()),
        (without_a_block, ("model.language_model.layers.2.input_layernorm.weight",)),
        (without_a_tokenizer, ("tokenizer.json",)),
        (without_padding, ("padding",)),
    ],
)
def test_incomplete_text_encoders(model, tmp_path, capfd, broken, facts):
    """Oracle: one line that names the directory, instead of embeddings of random weights or of no tokens."""
    folder = tmp_path / "encoder"
    shutil.copytree(model / "text_encoder" / "Qwen3-VL-2B-Instruct", folder)
    broken(folder)
    with pytest.raises(lwd.InputError, match=says(str(folder), *facts)) as error:
        TextEncoder(TextSettings(folder, (1, 2, 3), 24))(["apple"])
    assert "\n" not in str(error.value)
    assert not capfd.readouterr().err


def test_a_call_is_embed_sample_decode(model):
    """Oracle: the three steps by hand, with the model's recorded settings."""
    pipe = lwd.LWDPipeline.from_pretrained(model)
    assert isinstance(pipe, TextPipeline)
    out = pipe(["a red apple", "a blue mug"], negative_prompt="wooden", seed=7, size=(32, 48))
    texts, null = pipe.encoder(["a red apple", "a blue mug"]), pipe.encoder(["wooden"])
    guided = lwd.ClassifierFree(pipe.checkpoint.velocity, null, 4.0, LAYOUT)
    by_hand = sample_sefi(guided, schedule_of(0.1), LAYOUT, seeds=[7, 8], labels=texts, size=(2, 3), steps=6, shift=0.3)
    assert torch.equal(out.solution.z, by_hand.z)
    with torch.no_grad():
        pixels = to_uint8(pipe.autoencoder.decode(by_hand.z[:, 4:])).numpy()
    assert [np.asarray(image).tolist() for image in out.images] == pixels.tolist()
    assert out.images[0].size == (48, 32)
    one = pipe("a blue mug", negative_prompt="wooden", seed=8, size=(32, 48))
    assert_close(one.solution.z[0], out.solution.z[1], atol=1e-5, rtol=1e-4)


def test_other_solvers_and_guides():
    """Oracle: `lwd.sample` with the same settings; scale 1 is the network alone."""
    pipe = TextPipeline(lwd_checkpoint())
    both = prompts()
    heun = {"method": "heun", "steps": 4}
    plain = lwd.sample(network(), schedule_of(0.1), LAYOUT, seeds=[0, 1], labels=both, size=(2, 2), **heun).z
    assert torch.equal(pipe(both, solver=heun, size=32, scale=1).solution.z, plain)
    weak = pipe(both, solver=heun, size=32, guide=pipe.checkpoint, scale=2.0)
    assert_close(weak.solution.z, plain, atol=1e-4, rtol=1e-4)
    each = pipe(both, prompts("negative_embeds"), solver=heun, size=32)
    assert not torch.equal(each.solution.z, plain)
    assert each.images is None
    with pytest.raises(lwd.InputError, match=says("text encoder")):
        pipe("a red apple")
    with pytest.raises(lwd.InputError, match=says(16, "33x33")):
        pipe(both, size=33)
    with pytest.raises(lwd.InputError, match=says("strength")):
        pipe(both, strength=1)
    with pytest.raises(lwd.InputError, match=says("negative")):
        pipe(both, prompts("negative_embeds"), scale=1)
    with pytest.raises(lwd.InputError, match=says(24, 7)):
        TextPipeline(lwd_checkpoint(), encoder=lambda texts: lwd.Prompts.of(torch.zeros(len(texts), 5, 7)))("apple")


def lwd_checkpoint(**changes):
    from lwd.checkpoints.formats import SamplingDefaults
    from lwd.checkpoints.sefi import TextCheckpoint

    defaults = SamplingDefaults(solver="sefi", steps=6, shift=0.3, guide="null", scale=4.0)
    return TextCheckpoint(network(), schedule_of(0.1), sampling=defaults, size=(64, 96), **changes)


def test_turbo_models_refuse_what_they_cannot_do():
    """Oracle: the reference's rules: 4, 8 or 10 steps, no guidance."""
    pipe = TextPipeline(lwd_checkpoint(family="turbo"))
    with pytest.raises(lwd.InputError, match=says(4, 8, 10, 6)):
        pipe(prompts(), solver={"method": "sefi", "steps": 6}, scale=1)
    with pytest.raises(lwd.InputError, match=says("turbo", 3)):
        pipe(prompts(), solver={"method": "sefi", "steps": 4}, scale=3)


def test_the_text_encoder_is_freed_when_asked(model):
    """Oracle: whether its weights are there after the call."""
    for asked in (False, True):
        pipe = lwd.LWDPipeline.from_pretrained(model, free_text=asked)
        pipe(f"a red mug {asked}", size=32, solver={"method": "sefi", "steps": 1})
        assert pipe.encoder.is_loaded is not asked


def test_offloaded_weights_give_the_same_velocity(tmp_path):
    """Oracle: the same network in memory."""
    point = load_sefi(write_model(tmp_path))
    z, times = torch.randn(2, 12, 2, 2), torch.tensor([[0.5, 0.4]] * 2)
    before = point.velocity(z, times, prompts())
    offload_blocks(point.velocity, torch.device("cpu"))
    assert_close(point.velocity(z, times, prompts()), before)
    pipe = lwd.LWDPipeline.from_pretrained(tmp_path, offload=True)
    assert next(pipe.checkpoint.velocity.parameters()).device.type == "meta"
    out = pipe(random_prompts(1), size=32, solver={"method": "sefi", "steps": 2}, scale=1)
    assert torch.isfinite(out.solution.z).all()


def test_the_command(model, tmp_path, capsys):
    """Oracle: the pipeline's image; a manifest with prompt and recorded settings; the same command continues."""
    out = tmp_path / "out"
    command = ["sample", "--model", str(model), "--prompt", "a red apple", "--prompt", "a blue mug", "--size", "32x48"]
    command += ["--seed", "5", "--device", "cpu", "--batch", "8"]
    assert main([*command, "--out", str(out)]) == 0
    found = json.loads((out / "manifest.json").read_text())
    assert found["size"] == [32, 48]
    assert found["settings"]["prompts"] == ["a red apple", "a blue mug"]
    assert found["solver"] == {"method": "sefi", "steps": 6, "shift": 0.3}
    assert found["settings"]["scale"] == 4.0
    assert len(list((out / "images").glob("*.png"))) == 2
    assert main([*command, "--out", str(out)]) == 0
    assert exit_code([*command, "--negative", "table", "--out", str(out)]) == 2
    assert says("negative").match(capsys.readouterr().err)


def test_a_picture_costs_no_more_than_itself(model, tmp_path, monkeypatch):
    """Oracle: rows that network and autoencoder see: one picture at a time, or as many as asked for."""
    seen = {"network": [], "autoencoder": []}
    forward, decode = SeFiNetwork.forward, Flux2Autoencoder.decode
    monkeypatch.setattr(SeFiNetwork, "forward", lambda *a: seen["network"].append(len(a[1])) or forward(*a))
    monkeypatch.setattr(Flux2Autoencoder, "decode", lambda *a: seen["autoencoder"].append(len(a[1])) or decode(*a))
    command = ["sample", "--model", str(model), "--size", "32", "--device", "cpu", "--steps", "1", "--scale", "1"]
    command += ["--prompt", "a red apple", "--prompt", "a blue mug", "--prompt", "table"]
    for options, rows in (([], [1, 1, 1]), (["--batch", "2"], [2, 2])):
        assert main([*command, *options, "--out", str(tmp_path / f"out{len(rows)}")]) == 0
        assert seen == {"network": rows, "autoencoder": rows}
        for part in seen.values():
            part.clear()
    alone, pair = (np.load(tmp_path / f"out{n}" / "samples.npz")["arr_0"].astype(int) for n in (3, 2))
    assert np.abs(alone - pair).max() <= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        "--solver heun --steps 4 --placement shift:0.3 --scale 1",
        "--steps 3 --trajectory",
        "--solver ab2 --steps 6 --placement optimised",
        "--shift 1 --free-text",
    ],
)
def test_other_samplers_by_command(model, tmp_path, options):
    """Oracle: a picture of the size asked for."""
    command = ["sample", "--model", str(model), "--prompt", "a red apple", "--size", "32", "--device", "cpu"]
    assert main([*command, *options.split(), "--out", str(tmp_path / "out")]) == 0
    with Image.open(tmp_path / "out" / "images" / "000000.png") as picture:
        assert picture.size == (32, 32)


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ([], ("--prompt",)),
        (["--prompt", "apple " * 30], (32, 24, "--prompt")),
        (["--prompt", "apple", "--label", "3"], ("--label",)),
        (["--prompt", "apple", "--size", "40"], (16, "40x40", "--size")),
        (["--prompt", "apple", "--size", "wide"], ("wide", "--size")),
        (["--prompt", "apple", "--negative", "mug", "--scale", "1"], ("--negative",)),
        (["--prompt", "apple", "--schedule", "offset:0.3"], ("0.1", "--other-schedule")),
        (["--prompt", "apple", "--solver", "heun", "--steps", "4", "--shift", "0.3"], ("shift", "sefi", "--shift")),
    ],
)
def test_bad_commands(model, tmp_path, capsys, options, facts):
    """Oracle: exit code 2 and one line with the flag."""
    assert exit_code(["sample", "--model", model, *options, "--device", "cpu", "--out", tmp_path / "out"]) == 2
    line = capsys.readouterr().err.strip()
    assert says(*facts).match(line)
    assert "\n" not in line


def test_prompts_are_for_text_models(tmp_path, capsys):
    """Oracle: a class-conditional model refuses a prompt, and a text model's configuration is untouched by it."""
    assert exit_code(["sample", "--model", "fashion", "--prompt", "a dress", "--out", tmp_path / "x.png"]) == 2
    assert says("prompts").match(capsys.readouterr().err)
    assert settings()["model"]["semantic_channels"] == 4
