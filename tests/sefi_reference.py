"""A second, slow implementation of SeFi-Image, written from the description in fixtures/sefi_tiny.json.

The network is diffusers' own forward pass; noise levels are embedded and the loop is written here, in NumPy where it
decides which level is used. Nothing of `lwd` is imported; diffusers is, where it is used: it takes seconds.
"""

import numpy as np
import torch
from torch import nn


class Levels(nn.Module):
    """Two noise levels, one as Flux 2's timestep and one as its guidance, embedded separately."""

    def __init__(self, frequencies, width):
        super().__init__()
        self.frequencies = frequencies
        halves = {"semantic_embedder": width // 2, "texture_embedder": width - width // 2}
        for name, size in halves.items():
            layers = {
                "linear_1": nn.Linear(frequencies, size, bias=False),
                "linear_2": nn.Linear(size, size, bias=False),
            }
            self.add_module(name, nn.ModuleDict(layers))

    def forward(self, timestep, guidance):
        from diffusers.models.embeddings import get_timestep_embedding

        parts = []
        for layers, level in ((self.semantic_embedder, timestep), (self.texture_embedder, guidance)):
            waves = get_timestep_embedding(level, self.frequencies, flip_sin_to_cos=True, downscale_freq_shift=0)
            parts.append(layers["linear_2"](nn.functional.silu(layers["linear_1"](waves))))
        return torch.cat(parts, 1)


class Reference:
    """Weights by the published names; `predict` is noise - data at noise levels from 1 (noise) to 0."""

    def __init__(self, backbone, state, semantic):
        from diffusers import Flux2Transformer2DModel

        known = {key: value for key, value in backbone.items() if key not in ("guidance_embeds",)}
        self.flux = Flux2Transformer2DModel(**known, guidance_embeds=True)
        levels = Levels(backbone["timestep_guidance_channels"], self.flux.inner_dim)
        self.flux.time_guidance_embed = levels
        own = {name.removeprefix("backbone."): t for name, t in state.items() if name.startswith("backbone.")}
        own |= {name.replace("dual_time_embed.", "time_guidance_embed."): t
                for name, t in state.items() if name.startswith("dual_time_embed.")}  # fmt: skip
        self.flux.load_state_dict(own)
        self.flux.requires_grad_(False).eval()
        self.semantic = semantic

    def predict(self, z, semantic, texture, embeddings):
        count, _, height, width = z.shape
        image_ids = [[0, row, column, 0] for row in range(height) for column in range(width)]
        text_ids = [[0, 0, 0, place] for place in range(embeddings.shape[1])]
        tokens = z.permute(0, 2, 3, 1).reshape(count, height * width, -1)
        found = self.flux(
            hidden_states=tokens,
            encoder_hidden_states=embeddings,
            timestep=torch.full((count,), semantic),
            guidance=torch.full((count,), texture),
            img_ids=torch.tensor(image_ids).float(),
            txt_ids=torch.tensor(text_ids).float(),
            return_dict=False,
        )[0]
        return found.reshape(count, height, width, -1).permute(0, 3, 1, 2)

    def sample(self, z, prompts, negative, steps, offset, shift, scale):
        """The loop of the description; scale 1 is no guidance."""
        f = np.float32
        sigmas = (np.arange(1000, 0, -1) / f(1000)).astype(f)
        u = torch.linspace(0, 1, steps + 1).numpy()
        raw = f(shift) * u / (f(1) + f(shift - 1) * u) * f(1 + offset)
        places = [(np.clip(x, f(0), f(1)) * f(999)).astype(int) for x in (raw, raw - f(offset))]
        for k in range(steps):
            now, after = ([float(sigmas[place[i]]) for place in places] for i in (k, k + 1))
            found = self.predict(z, *now, prompts)
            if scale != 1:
                other = self.predict(z, *now, negative)
                found = other + scale * (found - other)
            step = torch.full((1, z.shape[1], 1, 1), after[1] - now[1])
            step[:, : self.semantic] = after[0] - now[0]
            z = z + step * found
        return z
