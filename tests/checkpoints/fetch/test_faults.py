"""What can go wrong while a model is fetched: one line each, and nothing is half written."""

import sys

import pytest
import torch

import lwd
from checkpoints.fetch.small_files import FOLDER, VAE, WEIGHTS, config, leftovers, packed
from lwd.checkpoints.fetch import fetch
from lwd.checkpoints.published import SFD
from messages import exit_code, says
from reference import busy_network, ldm, reference_state, small_config


def test_an_interrupted_download_is_resumed(hub, cache, monkeypatch):
    """Oracle: the bytes that the server sent: the second call begins where the first one ended."""
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 4096)  # 10 MB, more than the small file
    size = (hub.root / SFD / WEIGHTS).stat().st_size
    half = size // 2 // 4096 * 4096
    hub.cut[WEIGHTS] = half
    with pytest.raises(lwd.InputError, match=says("4000000.pt", SFD)) as caught:
        fetch("sfd-xl")
    assert "\n" not in str(caught.value)
    assert leftovers(cache) == ["sd-vae-f16d32"]
    got = sum(count for path, _, count in hub.sent if path == WEIGHTS)
    assert got == half
    hub.cut.clear()
    hub.sent.clear()
    fetch("sfd-xl")
    assert [one for one in hub.sent if one[0] == WEIGHTS] == [(WEIGHTS, half, size - half)]
    assert VAE.path not in {path for path, _, _ in hub.sent}
    assert torch.equal(
        lwd.load("sfd-xl").velocity.x_embedder.proj.weight, busy_network(config(), 0).x_embedder.proj.weight
    )


def test_a_conversion_that_is_killed_leaves_nothing_and_needs_no_second_download(hub, cache, monkeypatch):
    """Oracle: names in the cache; the server's log of the second call."""
    with monkeypatch.context() as patch:
        patch.setattr(
            "lwd.checkpoints.fetch.shutil.copytree", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            fetch("sfd-xl")
    assert leftovers(cache) == ["sd-vae-f16d32"]
    hub.sent.clear()
    assert fetch("sfd-xl").new
    assert hub.sent == []


def remove(hub, path):
    (hub.root / SFD / path).unlink()


def replace(hub, path, value):
    hub.put(SFD, path, packed(value))


FAULTS = {
    "missing weights": (lambda h: remove(h, WEIGHTS), (SFD, WEIGHTS, "model_weights/sfd_xl/checkpoints/0400000.pt")),
    "missing statistics": (lambda h: remove(h, f"{FOLDER}/latents_sv_stats.pt"), (SFD, "latents_sv_stats.pt")),
    "truncated": (lambda h: h.claimed.update({WEIGHTS: {"size": 10**6}}), (WEIGHTS, 10**6)),
    "corrupt": (lambda h: h.claimed.update({WEIGHTS: {"sha256": "0" * 64}}), (WEIGHTS, "0" * 64, "removed")),
    "other size": (
        lambda h: replace(h, WEIGHTS, {"ema": reference_state(config(depth=3))}), (WEIGHTS, "sfd-xl", "XL/1", 3, 2),
    ),
    "other classes": (
        lambda h: replace(h, WEIGHTS, {"ema": reference_state(config(classes=7))}), (WEIGHTS, "sfd-xl", 7, 10),
    ),
    "one clock": (
        lambda h: replace(h, WEIGHTS, {"ema": reference_state(small_config(lwd.Layout.of(texture=6)))}),
        (WEIGHTS, "sfd-xl", "one clock"),
    ),
    "other channels": (
        lambda h: replace(h, WEIGHTS, {"ema": reference_state(small_config(lwd.Layout.of(texture=8, semantic=4)))}),
        (WEIGHTS, "sfd-xl", "texture=4,semantic=2", 12),
    ),
    "not a network": (lambda h: replace(h, WEIGHTS, {"state_dict": ldm()[1]}), (WEIGHTS, "sfd-xl", "LightningDiT")),
    "text": (lambda h: h.put(SFD, WEIGHTS, b"an error page"), "4000000.pt"),
    "statistics of other channels": (
        lambda h: replace(h, f"{FOLDER}/latents_stats.pt", {"mean": torch.zeros(3), "std": torch.ones(3)}),
        ("latents_stats.pt", "texture=3,semantic=2", "texture=4,semantic=2"),
    ),
    "no autoencoder": (lambda h: (h.root / VAE.repository / VAE.path).unlink(), (VAE.repository, VAE.path)),
    "network as autoencoder": (
        lambda h: h.put(VAE.repository, VAE.path, packed(reference_state(config()))), (VAE.path, "autoencoder"),
    ),
    "gated listing": (lambda h: h.denied.update(list=(403, "GatedRepo")), (SFD, "login", "hf auth login")),
    "gated file": (lambda h: h.denied.update(file=(403, "GatedRepo")), (VAE.repository, "login", "hf auth login")),
    "private": (lambda h: h.denied.update(list=(401, "RepoNotFound")), (SFD, "login", "hf auth login")),
    "no repository": (lambda h: h.denied.update(list=(404, "RepoNotFound")), (SFD, "repository")),
    "file gone": (lambda h: h.denied.update(file=(404, "EntryNotFound")), (VAE.path, "repository")),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_line_and_nothing_is_half_written(hub, cache, capsys, fault):
    """Oracle: exit code 2, one line with the facts; no directory of the model, no temporary one."""
    break_it, facts = FAULTS[fault]
    break_it(hub)
    assert exit_code(["fetch", "sfd-xl"]) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("lwd: ")]
    assert len(said) == 1
    assert says(facts).search(said[0]), said
    assert leftovers(cache) in ([], ["sd-vae-f16d32"])


def test_a_corrupt_download_is_not_kept(hub):
    """Oracle: after the hub is repaired, the same command works."""
    hub.claimed[WEIGHTS] = {"sha256": "0" * 64}
    with pytest.raises(lwd.InputError, match=says("removed")):
        fetch("sfd-xl")
    hub.claimed.clear()
    assert fetch("sfd-xl").new


@pytest.mark.parametrize("damage", ["shorter", "longer"])
def test_a_download_that_was_damaged_on_disk_is_noticed(cache, monkeypatch, damage):
    """Oracle: the size that the hub gives; the call after that downloads the file again."""
    with monkeypatch.context() as patch:
        patch.setattr("lwd.checkpoints.fetch._install", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fetch("sfd-statistics")
    (file,) = (cache / "downloads").rglob("latents_stats.pt")
    whole = file.read_bytes()
    file.write_bytes(whole[:-10] if damage == "shorter" else whole + b"more")
    with pytest.raises(lwd.InputError, match=says("latents_stats.pt", len(whole), file.stat().st_size)):
        fetch("sfd-statistics")
    file.with_name("latents_stats.pt.partial").write_bytes(whole + b"more")
    assert fetch("sfd-statistics").new


def test_an_unreachable_hub_and_an_unknown_revision(cache, monkeypatch):
    with pytest.raises(lwd.InputError, match=says("v9")) as caught:
        fetch("sfd-xl", revision="v9")
    assert caught.value.argument == "revision"
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(lwd.InputError, match=says(SFD, "connection")) as caught:
        fetch("sfd-xl")
    assert "\n" not in str(caught.value)
    assert leftovers(cache) == []


def test_without_the_hub_package_the_message_says_what_to_install(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(lwd.InputError, match=says("huggingface_hub", "pip install 'lwd[hub]'")):
        fetch("sfd-xl")
    assert leftovers(cache) == []


def test_something_else_in_the_models_place_is_not_touched(hub, cache):
    (cache / "models" / "sfd-xl").mkdir(parents=True)
    (cache / "models" / "sfd-xl" / "thesis.tex").write_text("years")
    with pytest.raises(lwd.InputError, match=says("sfd-xl")):
        fetch("sfd-xl")
    assert (cache / "models" / "sfd-xl" / "thesis.tex").read_text() == "years"
    assert hub.sent == []


def test_unknown_names_get_the_nearest():
    with pytest.raises(lwd.InputError, match=says("sfd-xll", "sfd-xl")):
        fetch("sfd-xll")
    with pytest.raises(lwd.InputError, match=says("sfd-xll", "sfd-xl", "fashion")):
        lwd.LWDPipeline.from_pretrained("sfd-xll")
