"""`lwd fetch` with the real huggingface_hub client, against a hub on 127.0.0.1 that holds small files in SFD's layout.

The published files have not been downloaded here.
"""

import io
import sys

import pytest
import torch
from torch.testing import assert_close

import lwd
from hub import COMMIT, LocalHub
from lwd.checkpoints.fetch import fetch
from lwd.checkpoints.formats import OriginFile
from lwd.checkpoints.published import PUBLISHED, SFD
from lwd.io.files import sha256
from lwd.models.lightningdit import SIZES
from lwd.representations.ldm import autoencoder_from_ldm
from lwd.representations.texture import TextureAutoencoder
from lwd.sampling.formats import SamplesFile
from lwd.sampling.generator import open_generator
from lwd.sampling.settings import SampleSettings
from messages import exit_code, says
from reference import busy_network, ldm, reference_state, small_config

LAYOUT = lwd.Layout.of(texture=4, semantic=2)
VAE = PUBLISHED["sd-vae-f16d32"].weights
WEIGHTS = "model_weights/sfd_xl/checkpoints/4000000.pt"
FOLDER = "imagenet1k-latents/sdvae_f16d32_semvaebasech16_repadinov2_vitb14_reg/imagenet_train_256"


def packed(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def config(**changes):
    """What stands in for every published size."""
    return small_config(LAYOUT, **{"classes": 10, "tap": 2, "projector_width": 16, "features": 6} | changes)


def filled(hub):
    """SFD's layout with small files: averaged weights, statistics, autoencoder with its training's leftovers."""
    for seed, (folder, step) in enumerate(
        [("sfd_xl", "4000000"), ("sfd_xl", "0400000"), ("sfd_autoguidance_b", "0070000")]
    ):
        state = {"ema": reference_state(config(), seed)}
        hub.put(SFD, f"model_weights/{folder}/checkpoints/{step}.pt", packed(state))
    for name, channels in (("latents_stats", 4), ("latents_sv_stats", 2)):
        value = {"mean": torch.full((1, channels, 1, 1), 0.5), "std": torch.full((1, channels, 1, 1), 2.0)}
        hub.put(SFD, f"{FOLDER}/{name}.pt", packed(value))
    hub.put(SFD, "README.md", b"not ours")
    extra = {"loss.logvar": torch.zeros(())}
    hub.put(VAE.repository, VAE.path, packed({"state_dict": ldm()[1] | extra}))
    hub.revisions |= {VAE.revision: VAE.revision, "v1": "beef" + "0" * 36}
    return hub


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LWD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def catalog(monkeypatch):
    """The catalog at the size of the small files; everything else stays as published."""
    for size in ("XL", "B"):
        monkeypatch.setitem(SIZES, size, (2, 48, 4))
    groups = {"texture": 4, "semantic": 2}
    for name in ("sfd-xl", "sfd-xl-80", "sfd-xl-weak"):
        monkeypatch.setitem(PUBLISHED, name, PUBLISHED[name].changed(groups=groups, classes=10, grid=(4, 4)))
    monkeypatch.setitem(PUBLISHED, "sfd-statistics", PUBLISHED["sfd-statistics"].changed(groups=groups))
    monkeypatch.setitem(PUBLISHED, "sd-vae-f16d32", PUBLISHED["sd-vae-f16d32"].changed(channels=4))


@pytest.fixture(autouse=True)
def hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda _: None)  # between its own attempts
    with filled(LocalHub(tmp_path / "hub")).serving() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


def leftovers(cache):
    """What lies among the models; locks do not count."""
    return sorted(p.name for p in (cache / "models").iterdir() if not p.name.endswith(".lock"))


def test_a_fetched_model_is_the_reference_network(cache):
    """Oracle: the networks and the autoencoder that the small files were made of; bytes of the statistics."""
    done = fetch("sfd-xl")
    assert (done.new, done.directory) == (True, cache / "models" / "sfd-xl")
    pipe = lwd.LWDPipeline.from_pretrained("sfd-xl")
    point = pipe.checkpoint
    assert (point.schedule, point.layout) == (lwd.Offset(0.3), LAYOUT)
    z, times, label = torch.randn(2, 6, 4, 4), torch.rand(2, 2), torch.tensor([0, 9])
    with torch.no_grad():
        assert torch.equal(point.velocity(z, times, label), busy_network(config(), 0)(z, times, label))
        latents = torch.randn(1, 4, 4, 4)
        assert_close(pipe.autoencoder.decode(latents), autoencoder_from_ldm(ldm()[1]).decode(latents))
    assert point.statistics.mean["semantic"].tolist() == [0.5, 0.5]
    assert point.statistics.std["texture"].tolist() == [2.0] * 4
    assert lwd.load("sfd-xl").config == point.config


def test_a_fetched_model_is_sampled_as_in_its_table():
    """Oracle: SFD's scale for 80 epochs, its tolerances; a guide has no scale; the count stays the user's."""
    for name in ("sfd-xl-80", "sfd-xl-weak"):
        fetch(name)
    own = lwd.load("sfd-xl-80").sampling
    assert (own.solver, own.atol, own.rtol, own.guide, own.scale) == ("dopri5", 1e-6, 1e-3, "sfd-xl-weak", 1.6)
    weak = lwd.load("sfd-xl-weak").sampling
    assert (weak.solver, weak.guide, weak.scale, weak.count, own.count) == ("dopri5", "", None, None, None)
    for guide, scale in (("sfd-xl-weak", 1.6), (None, None)):
        settings = open_generator("sfd-xl-80", SampleSettings(count=2), guide).settings
        assert (settings.solver, settings.atol, settings.rtol, settings.scale) == ("dopri5", 1e-6, 1e-3, scale)
    assert open_generator("sfd-xl-80", SampleSettings(count=2, scale=2.0), "sfd-xl-weak").settings.scale == 2.0


def test_revision_and_checksums_are_kept(hub, cache):
    """Oracle: the hub's commit and the files' checksums; the autoencoder comes at its pinned commit."""
    fetch("sfd-xl", revision="v1")
    about = lwd.load("sfd-xl").provenance
    assert about["converted_from"] == "4000000.pt"
    found = OriginFile.read(cache / "models" / "sfd-xl" / "origin.json")
    assert about["published"] == found.to_dict()
    assert (found.repository, found.revision) == (SFD, "beef" + "0" * 36)
    assert set(found.files) == {WEIGHTS, f"{FOLDER}/latents_stats.pt", f"{FOLDER}/latents_sv_stats.pt"}
    for path, part in found.files.items():
        file = hub.root / SFD / path
        assert (part.size, part.sha256) == (file.stat().st_size, sha256(file))
    assert OriginFile.read(cache / "models" / "sfd-xl" / "vae" / "origin.json").revision == VAE.revision


def test_again_is_no_work_and_another_revision_is_not_mixed(hub):
    """Oracle: the server's log; the message names both revisions."""
    fetch("sfd-xl")
    hub.sent.clear()
    hub.denied["list"] = (500, "")
    assert not fetch("sfd-xl").new
    assert not fetch("sfd-xl", revision=COMMIT).new
    assert hub.sent == []
    with pytest.raises(lwd.InputError, match=says(COMMIT, "v1", "sfd-xl")):
        fetch("sfd-xl", revision="v1")
    hub.denied.clear()
    assert fetch("sfd-statistics", revision="v1").new
    hub.denied["list"] = (500, "")
    for same in ("v1", "beef000"):
        assert not fetch("sfd-statistics", revision=same).new
    with pytest.raises(lwd.InputError, match=says("sfd-statistics", "b")):
        fetch("sfd-statistics", revision="b")


def test_a_token_goes_to_the_hub_but_not_where_it_redirects(hub, monkeypatch):
    """Oracle: the headers that arrived at both hosts."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    fetch("sfd-statistics")
    assert hub.tokens == {"hub": {"Bearer hf_secret"}, "cdn": {None}}


def test_models_share_what_they_have_in_common(hub, cache):
    """Oracle: the server's log: the autoencoder is sent once; downloads do not stay beside the converted models."""
    fetch("sfd-xl")
    fetch("sfd-xl-weak")
    assert [path for path, _, _ in hub.sent].count(VAE.path) == 1
    assert leftovers(cache) == ["sd-vae-f16d32", "sfd-xl", "sfd-xl-weak"]
    assert list((cache / "downloads").iterdir()) == []


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


@pytest.mark.parametrize("flat", [False, True], ids=["by repository", "in one folder"])
def test_a_local_copy_needs_no_hub(hub, tmp_path, monkeypatch, flat):
    """Oracle: the same model as from the hub; files of huggingface_hub's bookkeeping do not count."""
    copy = tmp_path / "hub"
    if flat:
        copy = tmp_path / "hub" / SFD
        (hub.root / VAE.repository / VAE.path).rename(copy / VAE.path)
    (copy / ".cache").mkdir()
    (copy / ".cache" / "4000000.pt").write_bytes(b"unfinished")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    done = fetch("sfd-xl", source=copy)
    assert done.origin.revision == ""
    assert done.origin.files[WEIGHTS].sha256 == sha256(hub.root / SFD / WEIGHTS)
    assert lwd.LWDPipeline.from_pretrained("sfd-xl").autoencoder is not None
    for arguments, argument in (
        ({"source": tmp_path / "absent"}, "source"),
        ({"source": copy, "revision": "v1"}, "revision"),
    ):
        with pytest.raises(lwd.InputError) as caught:
            fetch("sfd-xl-weak", **arguments)
        assert caught.value.argument == argument


def test_a_file_that_moved_inside_its_folder_is_found_by_its_name(hub):
    """Oracle: the same weights; two files of that name are not guessed between."""
    old = hub.root / SFD / WEIGHTS
    moved = hub.put(SFD, "model_weights/sfd_xl/ema/4000000.pt", old.read_bytes())
    with_two = fetch("sfd-xl").origin.files
    assert WEIGHTS in with_two
    old.unlink()
    hub.put(SFD, "model_weights/sfd_xl/raw/0400000.pt", moved.read_bytes())
    (hub.root / SFD / "model_weights/sfd_xl/checkpoints/0400000.pt").rename(moved.parent / "0400000.pt")
    with pytest.raises(lwd.InputError, match=says("ema/0400000.pt", "raw/0400000.pt")):
        fetch("sfd-xl-80")


def test_statistics_and_autoencoder_alone(cache):
    """Oracle: the values in the files; the autoencoder is found by its name."""
    fetch("sfd-statistics")
    there = cache / "models" / "sfd-statistics"
    assert sorted(p.name for p in there.iterdir()) == [
        "latents_stats.pt",
        "latents_sv_stats.pt",
        "origin.json",
        "statistics.json",
    ]
    fetch("sd-vae-f16d32")
    assert TextureAutoencoder.load("sd-vae-f16d32").channels == 4
    with pytest.raises(lwd.InputError, match=says("sfd-statistics")):
        lwd.load("sfd-statistics")


def test_sampling_by_name_says_what_to_run_and_then_runs(capsys):
    """Oracle: the commands of the documentation: first without, then with the models in the cache."""
    draw = ["sample", "--model", "sfd-xl", "--label", "7", "--count", "1", "--out", "a.png", "--seed", "3"]
    guided = [*draw, "--guide", "sfd-xl-weak", "--scale", "1.5"]
    assert exit_code(draw) == 2
    assert says("lwd fetch sfd-xl").search(capsys.readouterr().err)
    assert exit_code(["fetch", "sfd-xl"]) == 0
    assert says("sfd-xl", SFD, COMMIT).search(capsys.readouterr().out)
    assert exit_code(draw) == 0
    assert exit_code(guided) == 2
    assert says("lwd fetch sfd-xl-weak").search(capsys.readouterr().err)
    assert exit_code(["fetch", "sfd-xl-weak"]) == 0
    assert exit_code(guided) == 0
    assert exit_code(["fetch"]) == 0
    assert says("sfd-xxl", "sd-vae-f16d32", "in the cache").search(capsys.readouterr().out)


def test_a_recipe_fills_what_the_command_line_leaves_open(tmp_path, capsys):
    """Oracle: the manifest: SFD's solver, tolerances, scale and guide; what is given on the command line wins."""
    for name in ("sfd-xl", "sfd-xl-weak"):
        fetch(name)
    draw = ["sample", "--recipe", "sfd-xl-800-autoguidance", "--count", "2"]
    assert exit_code([*draw, "--out", "set"]) == 0
    found = SamplesFile.read(tmp_path / "set" / "manifest.json")
    assert (found.settings["scale"], found.settings["count"]) == (1.5, 2)
    assert {"method": "dopri5", "atol": 1e-6, "rtol": 1e-3}.items() <= found.solver.items()
    assert (found.model.name, found.guide.name) == ("sfd-xl", "sfd-xl-weak")
    assert exit_code([*draw, "--out", "other", "--solver", "heun", "--steps", "4", "--scale", "texture=2"]) == 0
    found = SamplesFile.read(tmp_path / "other" / "manifest.json")
    assert (found.settings["scale"], found.solver) == ({"texture": 2.0}, {"method": "heun", "steps": 4})
    for arguments, facts in ((["--recipe", "sfd-xl-900"], ("sfd-xl-900", "sfd-xl-80-unguided")), ([], "--model")):
        capsys.readouterr()
        assert exit_code(["sample", *arguments, "--out", "none"]) == 2
        assert says(facts).search(capsys.readouterr().err)


def test_a_directory_of_that_name_comes_first(tmp_path):
    """Oracle: the weights of the directory here."""
    fetch("sfd-xl")
    lwd.save(lwd.Checkpoint(busy_network(config(), 5), lwd.Offset(0.3)), tmp_path / "sfd-xl")
    assert torch.equal(
        lwd.load("sfd-xl").velocity.x_embedder.proj.weight, busy_network(config(), 5).x_embedder.proj.weight
    )


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
