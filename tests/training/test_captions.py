"""Training on captions: conditions, losses, resuming, and models that sample."""

import json

import pytest
import torch
from PIL import Image
from torch.testing import assert_close

import lwd
from captioned import TEXTS, saved, settings, write_complete, write_latents
from lwd.checkpoints.sefi import TextCheckpoint, schedule_of
from lwd.checkpoints.text import load_text
from lwd.cli import main
from lwd.latents.captions import CaptionReader
from lwd.models.sefi import SeFiNetwork
from lwd.objective import FlowObjective
from lwd.representations.text import TextEncoder, TextSettings
from lwd.sampling.text import TextPipeline
from lwd.training.config import load_config
from lwd.training.journal import read_metrics
from lwd.training.task import Task
from lwd.training.train import build_network, open_data
from lwd.training.trainer import Trainer
from messages import exit_code, says
from sefi import LAYOUT, fixture, network, write_model
from train_data import cpu


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_complete(tmp_path_factory.mktemp("SeFi-Image-tiny-Base"))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The directory of latents, and the latents with the semantic channels first."""
    return write_latents(tmp_path_factory.mktemp("data") / "latents")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def cached(cache, monkeypatch):
    monkeypatch.setenv("LWD_CACHE", str(cache))


def encoder(model, **options):
    return TextEncoder(TextSettings(model / "text_encoder" / "Qwen3-VL-2B-Instruct", (1, 2, 3), 24), **options)


def trainer(model, latents, out, **sections):
    config = settings(model, **sections)
    data = open_data(latents, config)
    task = Task(build_network(config, data), FlowObjective(LAYOUT), schedule_of(0.1))
    return Trainer(config, data, out, task, cpu())


def test_the_preset_is_the_public_recipe():
    """Oracle: the reference's configuration for all weights (full_1b_zero2.yaml and its base), but its averaging."""
    config = load_config("sefi")
    o, r, loss = config.optimizer, config.run, config.objective
    assert (o.lr, o.beta1, o.beta2, o.weight_decay, o.warmup, o.clip) == (1e-5, 0.9, 0.999, 0.01, 1000, 1.0)
    assert (o.ema, r.steps, r.label_drop, r.tau, r.tau_mean) == (0.9999, 10_000, 0.1, "logit-normal", -1.532)
    assert (config.schedule, config.groups) == ("offset:0.1", ("semantic", "texture"))
    assert (loss.reduction, loss.weight_gradient, loss.cosine, loss.align) == ("channels", "none", 0.0, 0.0)
    assert set(loss.weights.values()) <= {1.0}


def test_batches_have_embedded_captions(model, found):
    """Oracle: the embeddings of the captions with the numbers of the batch, beside the latents as they were written."""
    latents, wanted = found
    data = open_data(latents, settings(model))
    assert isinstance(data, CaptionReader)
    assert data.layout == LAYOUT
    for batch in (data.batch(1, 6, 0, flip=False), data.stored(1, 6, 0, flip=False).to("cpu")):
        texts = [TEXTS[i % 3] for i in batch.index.tolist()]
        assert torch.equal(batch.labels.embeddings, encoder(model)(texts).embeddings)
        assert torch.equal(batch.latents, wanted[batch.index])
    other = write_latents(latents.parent / "other", captions=TEXTS[:2])[0]
    assert open_data(other, settings(model)).fingerprint != data.fingerprint


def test_the_loss_and_dropped_captions(model, found, tmp_path):
    """Oracle: the squared error by hand, of the network that gets the empty prompt where a caption is dropped."""
    one = trainer(model, found[0], tmp_path, run={"label_drop": 0.5, "batch": 12})
    (batch,) = one._fetch()
    draws = one._draws(0, 12)
    assert 0 < draws.dropped.sum() < 12
    texts = ["" if gone else TEXTS[i % 3] for i, gone in zip(batch.index.tolist(), draws.dropped, strict=True)]
    times = schedule_of(0.1).times(draws.tau)
    z = torch.lerp(draws.noise, batch.latents, LAYOUT.expand(times, 4).float())
    with torch.no_grad():
        velocity = one.inner(z, times, encoder(model)(texts))
    rates = LAYOUT.expand(schedule_of(0.1).rates(draws.tau), 4).float()
    by_hand = ((velocity - (batch.latents - draws.noise)).square() * rates).mean()
    assert_close(one.losses(batch, draws).total, by_hand, atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_the_loss_falls(model, found, tmp_path):
    """Oracle: the data are three points with little noise, so a network that reads captions can learn them."""
    config = settings(model, run={"steps": 30, "batch": 12, "save_every": 30}, optimizer={"lr": 5e-3})
    lwd.train(config, found[0], tmp_path, cpu())
    losses = [line["total"] for line in read_metrics(tmp_path / "metrics.jsonl")]
    assert sum(losses[-5:]) < 0.6 * sum(losses[:5])


class Power(Exception):
    """It went out."""


def fail_at(step):
    def look(one):
        if one.step == step:
            raise Power

    return look


@pytest.mark.parametrize("run", [lwd.train, pytest.param(lwd.surface_probe, marks=pytest.mark.slow)])
def test_stopping_and_resuming_changes_no_bit(model, found, tmp_path, run):
    """Oracle: a run of 4 steps that nobody disturbed, in weights, moments, averages and surfaces."""
    run(settings(model), found[0], tmp_path / "one", cpu())
    with pytest.raises(Power):
        run(settings(model), found[0], tmp_path / "two", cpu(on_step=fail_at(3)))
    run(settings(model), found[0], tmp_path / "two", cpu())
    one, two = (saved(tmp_path / name, 4) for name in ("one", "two"))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    if run is lwd.surface_probe:
        tables = [lwd.load_surfaces(tmp_path / name)[0].losses for name in ("one", "two")]
        assert torch.equal(*tables)


def test_initial_weights(model, found, tmp_path):
    """Oracle: the first checkpoint has the model's weights, from its directory or from a run; else random ones."""
    config, start = settings(run={"steps": 1, "keep_at": (1,), "keep_last": 3}), fixture()[1]
    lwd.train(config, found[0], tmp_path / "tuned", cpu(), init_from=model)
    first = saved(tmp_path / "tuned", 0)
    assert all(torch.equal(first[f"ema.{name}"], tensor) for name, tensor in start.items())
    last = saved(tmp_path / "tuned", 1)
    lwd.train(config, found[0], tmp_path / "again", cpu(), init_from=tmp_path / "tuned")
    again = saved(tmp_path / "again", 0)
    assert all(torch.equal(again[f"ema.{name}"], last[f"ema.{name}"]) for name in start)
    fresh = build_network(settings(model), open_data(found[0], settings(model))).state_dict()
    assert fresh.keys() == start.keys()
    assert not torch.equal(fresh["backbone.proj_out.weight"], start["backbone.proj_out.weight"])
    kept = load_text(tmp_path / "tuned" / "kept" / "00000001")
    assert torch.equal(kept.velocity.backbone.proj_out.weight, last["ema.backbone.proj_out.weight"])


def test_the_text_encoder_is_needed_once(model, found, tmp_path, monkeypatch):
    """Oracle: with all captions in the cache its weights are not loaded; live embeddings leave no files."""
    monkeypatch.setenv("LWD_CACHE", str(tmp_path / "cache"))
    lwd.train(settings(model, text={"live": True}), found[0], tmp_path / "live", cpu())
    assert not (tmp_path / "cache").exists()
    lwd.train(settings(model), found[0], tmp_path / "one", cpu())
    assert len(list((tmp_path / "cache" / "prompts").glob("*.safetensors"))) == len(TEXTS) + 1
    one, live = saved(tmp_path / "one", 4), saved(tmp_path / "live", 4)
    assert all(torch.equal(one[name], live[name]) for name in one)
    monkeypatch.setattr(TextEncoder, "_load", lambda _: pytest.fail("loaded"))
    lwd.train(settings(model), found[0], tmp_path / "two", cpu())


def test_recomputed_blocks_give_the_same_gradient():
    """Oracle: the same network without recomputation."""
    gradients = []
    for again in (False, True):
        one = SeFiNetwork(network().config, recompute=again)
        one.load_state_dict(fixture()[1])
        z, times = fixture()[0]["latents"], torch.tensor([[0.5, 0.4]] * 2)
        one(z, times, lwd.Prompts.of(fixture()[0]["prompt_embeds"])).square().mean().backward()
        gradients.append([weight.grad for weight in one.parameters()])
    assert all(gradient is not None for gradient in gradients[0])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_commands(model, found, tmp_path, monkeypatch, capsys):
    """Oracle: a fine-tuned model draws a picture by its prompt, with the settings of the model it came from."""
    monkeypatch.chdir(tmp_path)
    small = [f"--set={change}" for change in ("run.batch=6", "objective.cosine=0", "run.sample_every=2")]
    train = ["train", str(found[0]), "--init-from", str(model), "--schedule", "offset:0.1", "--steps", "2", "--cpu"]
    assert main([*train, *small, "--out", "run"]) == 0
    assert "no sample grid" not in capsys.readouterr().err
    assert (tmp_path / "run" / "samples" / "00000002.png").is_file()
    point = lwd.load("run")
    assert isinstance(point, TextCheckpoint)
    assert point.sampling.to_dict() == load_text(model).sampling.to_dict()
    assert (point.schedule, point.band, point.text, point.size) == (
        schedule_of(0.1), (0.1, 0.1), load_text(model).text, (64, 64)
    )  # fmt: skip
    draw = ["sample", "--model", "run", "--prompt", "a red apple", "--size", "32", "--device", "cpu"]
    assert main([*draw, "--out", "pictures"]) == 0
    with Image.open("pictures/images/000000.png") as picture:
        written = picture.convert("RGB")
    assert written.size == (32, 32)
    manifest = json.loads((tmp_path / "pictures" / "manifest.json").read_text())
    assert manifest["solver"] == {"method": "sefi", "steps": 6, "shift": 0.3}
    pipe = lwd.LWDPipeline.from_pretrained("run")
    assert isinstance(pipe, TextPipeline)
    drawn = pipe("a red apple", size=32).images[0]
    assert drawn.tobytes() == written.tobytes()


@pytest.mark.slow
def test_a_surface_probe_on_captions(model, found, tmp_path, monkeypatch):
    """Oracle: surfaces on the grid, and a network that samples under any schedule, also the one found on them."""
    monkeypatch.chdir(tmp_path)
    small = [f"--set={change}" for change in ("run.batch=6", "run.flip=false", "optimizer.lr=1e-3")]
    probe = ["probe", str(found[0]), "--method", "surface", "--init-from", str(model), "--steps", "2", "--cpu"]
    assert main([*probe, *small, "--points", "5", "--samples", "32", "--out", "probe"]) == 0
    table, about = lwd.load_surfaces(tmp_path / "probe")
    assert table.losses.shape == (25, 2)
    assert set(about["error_scales"]) == {"1", "2"}
    point = lwd.load("probe")
    assert point.any_schedule
    curve = lwd.Bernstein([[0.2, 0.3, 0.5]], LAYOUT.names).freeze()
    assert point.under(curve).schedule == curve
    draw = ["sample", "--model", "probe", "--prompt", "a blue mug", "--size", "32", "--device", "cpu", "--scale", "1"]
    options = ["--schedule", "offset:0.4", "--solver", "euler", "--steps", "3"]
    assert main([*draw, *options, "--out", "pictures"]) == 0


def test_a_model_under_a_curve(model, found, tmp_path):
    """Oracle: the reference's sampler is for offsets: such a model records Euler's method, with the same guidance."""
    curve = lwd.Bernstein([[0.2, 0.3, 0.5]], LAYOUT.names).freeze()
    lwd.save_schedule(curve, tmp_path / "curve.json")
    config = settings(model, schedule=str(tmp_path / "curve.json"), run={"steps": 1})
    lwd.train(config, found[0], tmp_path / "run", cpu(), init_from=model)
    pipe = lwd.LWDPipeline.from_pretrained(tmp_path / "run")
    found_defaults = pipe.checkpoint.sampling
    assert (found_defaults.solver, found_defaults.steps, found_defaults.scale) == ("euler", 6, 4.0)
    assert pipe("a red apple", size=32).solution.nfe == 6
    with pytest.raises(lwd.InputError, match=says("schedule")):
        pipe.under(schedule_of(0.1))


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (["--groups", "texture,semantic"], ("--groups", "semantic, texture")),
        (["--set", "objective.align=1", "--set", "network.tap=1"], ("objective.align",)),
        (["--text-model", "fashion"], ("fashion",)),
        (["--text-model", "nowhere"], ("nowhere",)),
    ],
)
def test_bad_commands(model, found, tmp_path, capsys, options, facts):
    """Oracle: exit code 2 and one line."""
    text = [] if "--text-model" in options else ["--text-model", model]
    command = ["train", found[0], *text, "--schedule", "offset:0.1", "--cpu", "--out", tmp_path / "x", *options]
    assert exit_code(command) == 2
    line = capsys.readouterr().err.strip()
    assert says(*facts).match(line)
    assert "\n" not in line


def test_bad_data(model, found, tmp_path):
    """Oracle: what is missing or does not fit, before the first step."""
    bare = write_latents(tmp_path / "bare", captions=())[0]
    with pytest.raises(lwd.InputError, match=says("captions.json", "run.labels")):
        lwd.train(settings(model), bare, tmp_path / "a", cpu())
    assert lwd.train(settings(model, run={"labels": False, "steps": 1}), bare, tmp_path / "b", cpu()).finished
    long = write_latents(tmp_path / "long", captions=("apple " * 30, "a blue mug"))[0]
    with pytest.raises(lwd.InputError, match=says("apple", 32, 24)):
        lwd.train(settings(model), long, tmp_path / "c", cpu())
    turbo = write_model(tmp_path / "turbo", inference={"family": "turbo"})
    with pytest.raises(lwd.InputError, match=says("turbo")):
        lwd.train(settings(turbo), found[0], tmp_path / "d", cpu())
    other = cpu(network=torch.nn.Linear(1, 1))
    with pytest.raises(lwd.InputError, match=says("text-to-image")):
        lwd.train(settings(), found[0], tmp_path / "e", other, init_from=model)
