"""Models in SeFi-Image's layout on the hub, small: the fixture's weights, and parts of random weights around them."""

import json
from functools import cache
from pathlib import Path

import torch
import yaml
from safetensors.torch import load_file, save_file

import lwd
from lwd.models.sefi import Prompts, SeFiConfig, SeFiNetwork

FIXTURES = Path(__file__).parent / "fixtures"
LAYOUT = lwd.Layout.of(semantic=4, texture=8)
SIZES = ("attention_head_dim", "num_attention_heads", "num_layers", "num_single_layers", "joint_attention_dim")
WORDS = ["a", "red", "apple", "on", "wooden", "table", "blue", "mug"]
NAME = "diffusion_pytorch_model"


@cache
def fixture():
    """Tensors, weights by the reference's names, and description of sefi_tiny."""
    tensors = load_file(FIXTURES / "sefi_tiny.safetensors")
    state = {name.removeprefix("weights."): t for name, t in tensors.items() if name.startswith("weights.")}
    return tensors, state, json.loads((FIXTURES / "sefi_tiny.json").read_text())


@cache
def network():
    _, state, about = fixture()
    found = SeFiNetwork(SeFiConfig(LAYOUT, about["backbone"], (4, 6)))
    found.load_state_dict(state)
    return found.requires_grad_(False).eval()


def prompts(which="prompt_embeds"):
    tensors = fixture()[0]
    return Prompts(tensors[which], tensors["text_ids"])


def random_prompts(count=2, tokens=5, seed=0):
    return Prompts.of(torch.randn(count, tokens, 24, generator=torch.Generator().manual_seed(seed)))


def settings(**changes):
    """sefi_config.yaml with the keys of the published ones; changes: sections."""
    backbone = fixture()[2]["backbone"]
    model = {
        "model_name": "flux2-klein-base-custom-sefi",
        "transformer_scale": "custom",
        "transformer_overrides": {key: backbone[key] for key in SIZES} | {"mlp_ratio": 3.0},
        "semantic_channels": 4,
        "texture_vae": {"name": "flux2", "base_path": "."},
        "text_encoder": {"model_name": "qwen3vl_2b", "weights_root": "text_encoder", "max_length": 24,
                         "hidden_layers": [1, 2, 3]},
        "assets": {"transformer_config_path": ".", "scheduler_path": "${model.texture_vae.base_path}"},
    }  # fmt: skip
    training = {"sefi": {"delta_t_min": 0.1, "delta_t_max": 0.1}, "mixed_precision": "bf16"}
    found = {"model": model, "training": training, "data": {"resolution": 64}, "inference": {"steps": 6}}
    return {key: found.get(key, {}) | changes.get(key, {}) for key in {**found, **changes}}


def write_model(root, shards=1, state=None, **changes):
    """A directory without autoencoder and text encoder."""
    state = fixture()[1] if state is None else state
    (root / "transformer").mkdir(parents=True, exist_ok=True)
    (root / "scheduler").mkdir(exist_ok=True)
    (root / "sefi_config.yaml").write_text(yaml.safe_dump(settings(**changes)))
    base = {key: value for key, value in fixture()[2]["backbone"].items() if key not in SIZES}
    base |= {"_class_name": "Flux2Transformer2DModel", "in_channels": 128, "out_channels": None}
    (root / "transformer" / "config.json").write_text(json.dumps(base))
    scheduler = {"num_train_timesteps": 1000, "shift": 3.0, "use_dynamic_shifting": True}
    (root / "scheduler" / "scheduler_config.json").write_text(json.dumps(scheduler))
    if shards == 1:
        save_file(state, root / "transformer" / f"{NAME}.safetensors")
        return root
    names, listed = sorted(state), {}
    for number in range(shards):
        file = f"{NAME}-{number + 1:05}-of-{shards:05}.safetensors"
        part = {name: state[name] for name in names[number::shards]}
        save_file(part, root / "transformer" / file)
        listed |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": listed}
    (root / "transformer" / f"{NAME}.safetensors.index.json").write_text(json.dumps(index))
    return root


def flux2_autoencoder():
    """Two latent channels, so 8 channels in patches; 16 pixels per token, as the published one."""
    from diffusers import AutoencoderKLFlux2

    torch.manual_seed(3)
    kinds = {"down_block_types": ("DownEncoderBlock2D",) * 4, "up_block_types": ("UpDecoderBlock2D",) * 4}
    widths = {"block_out_channels": (4, 4, 4, 4), "norm_num_groups": 2, "layers_per_block": 1}
    found = AutoencoderKLFlux2(**kinds, **widths, latent_channels=2, mid_block_add_attention=False)
    with torch.no_grad():
        found.bn.running_mean.copy_(torch.linspace(-1, 1, 8))
        found.bn.running_var.copy_(torch.linspace(0.5, 2, 8))
    return found.eval()


def write_autoencoder(root):
    flux2_autoencoder().save_pretrained(root / "vae")
    return root


def write_text_encoder(root):
    """A random Qwen3-VL of three blocks of width 8, with a tokenizer of eight words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3VLConfig, Qwen3VLForConditionalGeneration

    folder = root / "text_encoder" / "Qwen3-VL-2B-Instruct"
    vocabulary = {word: i for i, word in enumerate(["<pad>", "<unk>", "user", "assistant", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>")
    fast.chat_template = (
        "{% for m in messages %}{{ m.role }} {% for c in m.content %}{{ c.text }}{% endfor %} {% endfor %}"
        "{% if add_generation_prompt %}assistant{% endif %}"
    )
    fast.save_pretrained(folder)
    torch.manual_seed(4)
    rope = {"rope_type": "default", "mrope_section": [1, 1, 0], "rope_theta": 10000.0}
    text = {"vocab_size": 32, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 4, "head_dim": 4}
    text |= {"num_attention_heads": 2, "num_key_value_heads": 1, "rope_scaling": rope, "rope_parameters": rope}
    vision = {"depth": 1, "hidden_size": 8, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 8}
    vision |= {"deepstack_visual_indexes": [0], "num_position_embeddings": 16}
    config = Qwen3VLConfig(text_config=text, vision_config=vision)
    Qwen3VLForConditionalGeneration(config).save_pretrained(folder)
    return root
