"""Training without labels: what the labels of the shards are makes no difference."""

import torch
from safetensors.torch import load_file

from lwd.checkpoints.directory import load, locate
from lwd.groups import Layout
from lwd.latents.reader import LatentReader
from lwd.latents.shards import write_manifest, write_shard
from lwd.latents.statistics import Statistics
from lwd.training.train import train
from train_data import cpu, settings

LAYOUT = Layout.of(texture=2, semantic=1)


def shards(folder, labels, classes):
    folder.mkdir()
    generator = torch.Generator().manual_seed(0)
    tensors = {"labels": labels, "latents": torch.randn(8, 2, 2, 2, generator=generator)}
    tensors["latents_sv"] = torch.randn(8, 1, 2, 2, generator=generator)
    lines = [write_shard(folder / "shard-000.safetensors", tensors)]
    sizes = {"texture": 2, "semantic": 1}
    zeros, ones = ({name: make(n) for name, n in sizes.items()} for make in (torch.zeros, torch.ones))
    write_manifest(folder, LAYOUT, classes, lines, Statistics(zeros, ones))
    return folder


def test_labels_do_not_matter(tmp_path):
    """Oracle: the weights of a training on data of one class without dropped labels."""
    unlabelled = settings(run={"labels": False, "label_drop": 0.1, "steps": 3}, schedule="offset:0.3")
    train(unlabelled, shards(tmp_path / "ten", torch.arange(8), 10), tmp_path / "without", cpu())
    one = settings(run={"label_drop": 0.0, "steps": 3}, schedule="offset:0.3")
    train(one, shards(tmp_path / "one", torch.zeros(8, dtype=torch.int64), 1), tmp_path / "one-class", cpu())
    a, b = (load_file(locate(tmp_path / name) / "model.safetensors") for name in ("without", "one-class"))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert load(locate(tmp_path / "without")).config.classes == 1
    assert LatentReader(tmp_path / "ten").classes == 10
