"""`lwd fetch`: the model that arrives, its record, and its use by name."""

import sys

import pytest
import torch
from torch.testing import assert_close

import lwd
from checkpoints.fetch.small_files import FOLDER, LAYOUT, VAE, WEIGHTS, config, leftovers
from hub import COMMIT
from lwd.checkpoints.fetch import fetch
from lwd.checkpoints.formats import OriginFile
from lwd.checkpoints.published import SFD
from lwd.io.files import sha256
from lwd.representations.ldm import autoencoder_from_ldm
from lwd.representations.texture import TextureAutoencoder
from lwd.sampling.formats import SamplesFile
from lwd.sampling.generator import open_generator
from lwd.sampling.settings import SampleSettings
from messages import exit_code, says
from reference import busy_network, ldm


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
    draw += ["--solver", "heun", "--steps", "3"]
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
