import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

import lwd
from lwd.representations.texture import PatchAutoencoder, from_uint8, psnr, to_uint8
from messages import says


def images(count=32, size=16, seed=0):
    """Smooth coloured waves: easy to compress."""
    generator = torch.Generator().manual_seed(seed)
    phase, rate = torch.rand(2, count, 3, 1, 1, generator=generator)
    grid = torch.arange(size) / size
    return torch.sin(6 * (grid[:, None] * rate + grid * (1 - rate) + phase))


def test_patches_go_in_and_out_in_place():
    """Oracle: without attention, a changed pixel changes its own patch and no other."""
    torch.manual_seed(0)
    model = PatchAutoencoder.small(channels=4, width=32, depth=1).eval()
    data = images(2)
    assert model.encode(data).shape == (2, 4, 4, 4)
    assert model.decode(model.encode(data)).shape == data.shape
    for block in (*model.vae.encoder, *model.vae.decoder):  # without attention patches cannot see each other
        torch.nn.init.zeros_(block.attn.proj.weight)
    changed = data.clone()
    changed[:, :, 13, 2] += 1
    moved = (model.decode(model.encode(changed)) - model.decode(model.encode(data))).abs().amax((0, 1)) > 1e-6
    assert moved[12:, :4].all()
    assert moved.sum() == 16


@pytest.mark.parametrize(("steps", "gain"), [(30, 1), pytest.param(150, 10, marks=pytest.mark.slow)])
def test_it_learns_to_reconstruct(steps, gain):
    """Oracle: held-out PSNR after some steps, against the best constant image."""
    torch.manual_seed(0)
    model = PatchAutoencoder.small(channels=4, width=64, depth=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    train, held_out = images(256), images(64, seed=3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        batch = train[torch.randperm(256, generator=generator)[:64]]
        loss = model.losses(batch, torch.randn(64, 4, 4, 4, generator=generator), kl=1e-6).total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        found = psnr(model.decode(model.encode(held_out)), held_out).mean()
    constant = psnr(held_out.mean((2, 3), keepdim=True).expand_as(held_out), held_out).mean()
    assert found > constant + gain


def test_files_and_the_common_loader(tmp_path):
    torch.manual_seed(0)
    model = PatchAutoencoder.small(channels=4, width=32, depth=1).eval()
    (tmp_path / "a").mkdir()
    model.save(tmp_path / "a")
    again = lwd.TextureAutoencoder.load(tmp_path / "a")
    assert (again.channels, again.factor) == (4, 4)
    assert torch.equal(again.encode(images(2)), model.encode(images(2)))
    text = (tmp_path / "a" / "config.json").read_text()
    (tmp_path / "a" / "config.json").write_text(text.replace('"patch": 4', '"patch": "x"'))
    with pytest.raises(lwd.InputError, match=says("patch")):
        lwd.TextureAutoencoder.load(tmp_path / "a")
    (tmp_path / "a" / "config.json").write_text(text.replace('"patch": 4', '"patch": 2'))
    with pytest.raises(lwd.InputError, match=says(12, 48)):
        lwd.TextureAutoencoder.load(tmp_path / "a")
    with pytest.raises(lwd.InputError, match=says(4)):
        model.encode(torch.zeros(1, 3, 30, 32))


def test_a_kl_autoencoder_that_is_not_whole_is_refused(tmp_path):
    """Oracle: a missing tensor is named; zero groups are a sentence, not a traceback."""
    diffusers = pytest.importorskip("diffusers")
    blocks = {"down_block_types": ["DownEncoderBlock2D"], "up_block_types": ["UpDecoderBlock2D"]}
    diffusers.AutoencoderKL(block_out_channels=[8], norm_num_groups=4, **blocks).save_pretrained(tmp_path)
    assert lwd.TextureAutoencoder.load(tmp_path).channels == 4
    path, config = tmp_path / "diffusion_pytorch_model.safetensors", tmp_path / "config.json"
    save_file({k: v for k, v in load_file(path).items() if k != "quant_conv.weight"}, path, metadata={"format": "pt"})
    with pytest.raises(lwd.InputError, match=says("quant_conv.weight")):
        lwd.TextureAutoencoder.load(tmp_path)
    config.write_text(config.read_text().replace('"norm_num_groups": 4', '"norm_num_groups": 0'))
    with pytest.raises(lwd.InputError, match=says("AutoencoderKL")):
        lwd.TextureAutoencoder.load(tmp_path)


def test_pixels_round_trip_and_psnr():
    """Oracle: every byte comes back; PSNR of a known error."""
    pixels = torch.arange(256, dtype=torch.uint8).reshape(1, 16, 16, 1).expand(1, 16, 16, 3)
    assert torch.equal(to_uint8(from_uint8(pixels)), pixels)
    flat = torch.zeros(2, 3, 4, 4)
    assert_close(psnr(flat, flat + 0.2), torch.full((2,), 20.0), atol=1e-4, rtol=0)
