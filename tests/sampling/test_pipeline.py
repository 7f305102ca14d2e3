import numpy as np
import pytest
import torch
from torch.testing import assert_close

import lwd
from lwd import LWDPipeline
from lwd.representations.ldm import autoencoder_from_ldm
from lwd.representations.texture import to_uint8
from messages import says
from pipelines import LAYOUT as FOUR
from pipelines import with_statistics as pipeline
from reference import busy_network, ldm, small_config

EULER = {"method": "euler", "steps": 8}


def test_a_call_is_sample_denormalise_decode():
    """Oracle: the three steps by hand."""
    pipe = pipeline()
    out = pipe([1, 3], seed=7, solver=EULER)
    point = pipe.checkpoint
    z = lwd.sample(point.velocity, point.schedule, FOUR, seeds=[7, 8], labels=[1, 3], size=(4, 4), **EULER).z
    assert torch.equal(out.solution.z, z)
    assert_close(out.latents["texture"], z[:, :4] * 2 + 0.5)
    with torch.no_grad():
        pixels = to_uint8(pipe.autoencoder.decode(out.latents["texture"])).numpy()
    assert [np.asarray(image).tolist() for image in out.images] == pixels.tolist()
    assert out.images[0].size == (16, 16)


def test_save_and_load_give_the_same_images(tmp_path):
    """Oracle: bytes of the pictures before and after; the hub layout; no network."""
    pipe = pipeline(schedule=lwd.Polynomial([[0.0, 1.0, 2.0]]).freeze())
    pipe.save_pretrained(tmp_path / "model")
    again = LWDPipeline.from_pretrained(tmp_path / "model")
    names = sorted(str(p.relative_to(tmp_path / "model")) for p in (tmp_path / "model").rglob("*") if p.is_file())
    assert names == [
        "README.md", "config.json", "model.safetensors", "schedule.json", "statistics.json", "vae/config.json",
        "vae/diffusion_pytorch_model.safetensors",
    ]  # fmt: skip
    first, second = pipe([0, 2], solver=EULER), again([0, 2], solver=EULER)
    assert [image.tobytes() for image in first.images] == [image.tobytes() for image in second.images]
    card = (tmp_path / "model" / "README.md").read_text()
    assert "texture=4,semantic=2" in card
    assert "library_name: lwd" in card
    with pytest.raises(lwd.InputError, match=says("model")):
        pipe.save_pretrained(tmp_path / "model")


def test_seeds_are_per_image():
    """Oracle: image i of seed s is image 0 of seed s + i."""
    pipe = pipeline(autoencoder=False)
    many = pipe([1, 1, 1], seed=np.int64(4), solver=EULER)
    assert many.images is None
    assert_close(pipe([1], seed=6, solver=EULER).solution.z[0], many.solution.z[2], atol=1e-5, rtol=1e-5)
    assert_close(pipe([1, 1], seed=[6, 4], solver=EULER).solution.z[1], many.solution.z[0], atol=1e-5, rtol=1e-5)


def test_guides():
    """Oracle: the wrappers of lwd.guidance called by hand; scale 1 is no guidance."""
    pipe, weak = pipeline(autoencoder=False), pipeline(seed=1, autoencoder=False)
    velocity, schedule = pipe.checkpoint.velocity, pipe.checkpoint.schedule
    run = {"seeds": [0], "labels": [2], "size": (4, 4), **EULER}
    for guide, by_hand in (
        (weak, lwd.AutoGuidance(velocity, weak.checkpoint.velocity, 1.5, FOUR, (0.1, 0.9))),
        (weak.checkpoint.velocity, lwd.AutoGuidance(velocity, weak.checkpoint.velocity, 1.5, FOUR, (0.1, 0.9))),
        ("null", lwd.ClassifierFree(velocity, 5, 1.5, FOUR, (0.1, 0.9))),
    ):
        out = pipe([2], solver=EULER, guide=guide, scale=1.5, interval=(0.1, 0.9))
        assert torch.equal(out.solution.z, lwd.sample(by_hand, schedule, FOUR, **run).z)
    plain = pipe([2], solver=EULER).solution.z
    assert torch.equal(pipe([2], solver=EULER, guide=weak, scale=1.0).solution.z, plain)


def test_other_dtypes_sample(tmp_path):
    """Oracle: the float32 pipeline, to bfloat16's precision."""
    pipeline(autoencoder=False).save_pretrained(tmp_path / "m")
    full = LWDPipeline.from_pretrained(tmp_path / "m")([1], solver=EULER).solution.z
    for dtype in (torch.bfloat16, torch.float64):
        other = LWDPipeline.from_pretrained(tmp_path / "m", dtype=dtype)([1], solver=EULER).solution.z
        assert other.dtype == torch.float32
        assert_close(other, full, atol=0.1 * full.abs().max().item(), rtol=0)


def test_the_texture_group_is_decoded_wherever_it_stands():
    """Oracle: the decoder called with the group named texture."""
    layout = lwd.Layout.of(semantic=4, texture=4)
    point = lwd.Checkpoint(busy_network(small_config(layout)), lwd.Offset(0.3, layout.names))
    pipe = LWDPipeline(point, autoencoder_from_ldm(ldm()[1]))
    out = pipe([0], solver=EULER)
    with torch.no_grad():
        pixels = to_uint8(pipe.autoencoder.decode(out.latents["texture"])).numpy()
    assert np.array_equal(np.asarray(out.images[0]), pixels[0])


def test_larger_images():
    out = pipeline()([0], solver=EULER, size=(4, 8))
    assert out.images[0].size == (32, 16)


@pytest.mark.parametrize(
    ("call", "facts"),
    [
        (lambda p: p([9], solver=EULER), ("0..4", 9)),
        (lambda p: p([-1], solver=EULER), ("0..4", -1)),
        (lambda p: p([0], solver="eulr"), ("eulr", "euler")),
        (lambda p: p([1.7], solver=EULER), 1.7),
        (lambda p: p("12", solver=EULER), "'12'"),
        (lambda p: p(207, solver=EULER), ("class_labels", 207)),
        (lambda p: p([0], solver=7), ("solver", 7)),
        (lambda p: p([0], solver={"seeds": 3}), ("seeds", "steps")),
        (lambda p: p([0], scale=2.0), ("scale", "guide")),
        (lambda p: p([0], guide="null"), ("guide", "scale")),
        (lambda p: p([0], guide="weak", scale=2.0), ("weak", "null")),
        (lambda p: p([0], guide=pipeline(autoencoder=False, schedule=lwd.Cascade()), scale=2.0), ("guide", "schedule")),
        (lambda p: LWDPipeline(lwd.Checkpoint(busy_network(small_config()), lwd.Offset(0.3)), p.autoencoder), (4, 8)),
        (
            lambda p: p(
                [0], guide=lwd.Checkpoint(busy_network(small_config(FOUR, classes=3)), lwd.Offset(0.3)), scale=2.0
            ),
            ("guide", 3, 5),
        ),
        (
            lambda _: LWDPipeline.from_pretrained("no/such/place"),
            ("no/such/place", "fashion", "fashion-weak"),
        ),
        (
            lambda _: lwd.Checkpoint(busy_network(small_config()), lwd.Offset(0.3, ("a", "b"), "a")),
            ("schedule", "a", "b"),
        ),
    ],
)
def test_wrong_use_is_refused_with_a_sentence(call, facts):
    with pytest.raises(lwd.InputError, match=says(facts)):
        call(pipeline())


def test_a_hub_id_without_network_is_one_sentence(monkeypatch):
    """The download itself cannot run here; what it does with the answer can."""
    import huggingface_hub

    def offline(name, allow_patterns):
        assert "*.safetensors" in allow_patterns
        raise OSError(f"no connection while asking for {name}\nand more lines")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(lwd.InputError, match=says("me/model", "no connection while asking for me/model")):
        LWDPipeline.from_pretrained("me/model")


def test_a_hub_id_with_network_loads_the_snapshot(tmp_path, monkeypatch):
    import huggingface_hub

    pipeline(autoencoder=False).save_pretrained(tmp_path / "snapshot")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(tmp_path / "snapshot"))
    assert LWDPipeline.from_pretrained("me/model").checkpoint.layout == FOUR
