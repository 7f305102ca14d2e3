"""A hub with small files in SFD's layout. The published files have not been downloaded here."""

import io
from functools import cache

import torch

import lwd
from lwd.checkpoints.published import PUBLISHED, SFD
from reference import ldm, reference_state, small_config

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


@cache
def files():
    """SFD's layout with small files, by repository and path: averaged weights, statistics, autoencoder."""
    found = {(SFD, "README.md"): b"not ours"}
    weights = [("sfd_xl", "4000000"), ("sfd_xl", "0400000"), ("sfd_autoguidance_b", "0070000")]
    for seed, (folder, step) in enumerate(weights):
        state = {"ema": reference_state(config(), seed)}
        found[SFD, f"model_weights/{folder}/checkpoints/{step}.pt"] = packed(state)
    for name, channels in (("latents_stats", 4), ("latents_sv_stats", 2)):
        value = {"mean": torch.full((1, channels, 1, 1), 0.5), "std": torch.full((1, channels, 1, 1), 2.0)}
        found[SFD, f"{FOLDER}/{name}.pt"] = packed(value)
    leftover = {"loss.logvar": torch.zeros(())}  # of the autoencoder's training
    found[VAE.repository, VAE.path] = packed({"state_dict": ldm()[1] | leftover})
    return found


def filled(hub):
    for (repository, path), content in files().items():
        hub.put(repository, path, content)
    hub.revisions |= {VAE.revision: VAE.revision, "v1": "beef" + "0" * 36}
    return hub


def leftovers(cache):
    """What lies among the models; locks do not count."""
    return sorted(p.name for p in (cache / "models").iterdir() if not p.name.endswith(".lock"))
