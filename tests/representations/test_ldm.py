"""The LDM autoencoder in diffusers' form, against the reference's stored numbers."""

import pytest
import torch
from torch.testing import assert_close

import lwd
from lwd.checkpoints.convert import Options, convert
from lwd.representations.ldm import autoencoder_from_ldm, infer_ldm_config
from lwd.representations.texture import to_uint8
from messages import says
from reference import ldm


def test_moments_and_reconstruction_are_the_references():
    """Oracle: stored mean, log variance and reconstruction from the mean (<= 1e-4)."""
    stored, state = ldm()
    autoencoder = autoencoder_from_ldm(state)
    assert (autoencoder.channels, autoencoder.factor) == (4, 4)
    with torch.no_grad():
        mean, logvar = autoencoder.moments(stored["image"])
        reconstruction = autoencoder.decode(mean)
    assert_close(mean, stored["mean"], atol=1e-4, rtol=0)
    assert_close(logvar, stored["logvar"], atol=1e-4, rtol=0)
    assert_close(reconstruction, stored["reconstruction"], atol=1e-4, rtol=0)


def test_a_ckpt_converts_and_loads(tmp_path):
    """Oracle: the stored mean, through a .ckpt with a discriminator, the command's function, and the directory."""
    stored, state = ldm()
    extra = {"loss.discriminator.main.0.weight": torch.zeros(3), "loss.logvar": torch.zeros(())}
    torch.save({"state_dict": state | extra, "global_step": 7}, tmp_path / "vae.ckpt")
    assert says(4).search(convert(tmp_path / "vae.ckpt", tmp_path / "vae", Options()))
    autoencoder = lwd.TextureAutoencoder.load(tmp_path / "vae")
    with torch.no_grad():
        assert_close(autoencoder.encode(stored["image"]), stored["mean"], atol=1e-4, rtol=0)


def test_the_published_shape_is_inferred():
    """Oracle: f16-d32's settings (METHOD 7) and diffusers' parameter count for them, on the meta device."""
    import diffusers

    with torch.device("meta"):
        kl = diffusers.AutoencoderKL(
            down_block_types=["DownEncoderBlock2D"] * 4 + ["AttnDownEncoderBlock2D"],
            up_block_types=["AttnUpDecoderBlock2D"] + ["UpDecoderBlock2D"] * 4,
            block_out_channels=[128, 128, 256, 256, 512],
            layers_per_block=2,
            latent_channels=32,
        )
    state = {}
    for name, tensor in kl.state_dict().items():
        state[ldm_name(name, 5)] = tensor
    config = infer_ldm_config(state)
    assert config["block_out_channels"] == [128, 128, 256, 256, 512]
    assert (config["latent_channels"], config["layers_per_block"]) == (32, 2)
    assert config["down_block_types"] == ["DownEncoderBlock2D"] * 4 + ["AttnDownEncoderBlock2D"]
    assert config["up_block_types"] == ["AttnUpDecoderBlock2D"] + ["UpDecoderBlock2D"] * 4


def ldm_name(name, levels):
    """diffusers' names back to LDM's, written independently of the code under test, for the names that matter here."""
    parts = name.split(".")
    if parts[1] == "down_blocks":
        kind = {"resnets": "block", "attentions": "attn"}.get(parts[3])
        if kind:
            rest = ".".join(parts[5:]).replace("group_norm", "norm")
            return f"encoder.down.{parts[2]}.{kind}.{parts[4]}.{rest}"
    if parts[1] == "up_blocks":
        kind = {"resnets": "block", "attentions": "attn"}.get(parts[3])
        if kind:
            rest = ".".join(parts[5:]).replace("group_norm", "norm")
            return f"decoder.up.{levels - 1 - int(parts[2])}.{kind}.{parts[4]}.{rest}"
    return name


def test_what_does_not_fit_is_listed():
    state = dict(ldm()[1])
    del state["decoder.conv_out.bias"]
    state["encoder.norm_out.weight"] = torch.zeros(3)
    with pytest.raises(lwd.InputError, match=says("encoder.conv_norm_out.weight", "(3,)", "decoder.conv_out.bias")):
        autoencoder_from_ldm(state)
    with pytest.raises(lwd.InputError, match=says("surprise.weight")):
        autoencoder_from_ldm(ldm()[1] | {"surprise.weight": torch.zeros(1)})
    with pytest.raises(lwd.InputError, match=says("AutoencoderKL")):
        autoencoder_from_ldm(ldm()[1] | {"post_quant_conv.weight": torch.zeros(4, 5, 1, 1)})


def test_pixels():
    """Oracle: clamp(127.5 x + 128, 0, 255), by hand."""
    values = torch.tensor([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0]).reshape(1, 1, 1, 6).expand(1, 3, 1, 6)
    assert to_uint8(values)[0, 0, :, 0].tolist() == [0, 0, 128, 191, 255, 255]


def test_a_missing_extra_names_its_install_command(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "diffusers", None)
    with pytest.raises(lwd.InputError, match=says("lwd[images]")):
        autoencoder_from_ldm(ldm()[1])


def test_a_broken_autoencoder_directory_is_refused(tmp_path):
    with pytest.raises(lwd.InputError, match=says("config.json")):
        lwd.TextureAutoencoder.load(tmp_path)
    autoencoder_from_ldm(ldm()[1]).save(tmp_path / "vae")
    weights = next((tmp_path / "vae").glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(lwd.InputError, match=says("AutoencoderKL")):
        lwd.TextureAutoencoder.load(tmp_path / "vae")
