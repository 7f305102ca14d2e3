"""Make the models that ship with the embedded data: autoencoder, judge, the model `fashion` and its weak partner.

Run by a maintainer, after tools/make_fashion.py; about half an hour on two cores. Every stage resumes after an
interruption; the results are packed in 16 bits into src/lwd/assets/fashion:

    python tools/make_fashion_model.py WORK

The judge and the autoencoder are kept if they are there, because every study in results/ depends on them; remove
their folders to train them again.
"""

import argparse
import shutil
from pathlib import Path

import torch
from packing import lwd, pack, pack_directory, size
from torch.nn.functional import cross_entropy

from lwd.assets import AUTOENCODERS
from lwd.checkpoints.directory import locate
from lwd.images.fashion import FOLDER, load_fashion
from lwd.representations.judge import FashionJudge, seen_classes
from lwd.representations.texture import from_uint8

RULE = ("--steps", "20", "--tolerance", "0.02")
"""The schedule: the weakest lambda for which the predicted error of 20 Heun steps is at most 0.02."""
SETTINGS = tuple(
    word
    for change in ("run.sample_every=0", "objective.weight_gradient=none", "run.tau=logit-normal")
    for word in ("--set", change)
)
"""No rate correction and logit-normal times: the best cell of the ablation in docs/findings-trained.md."""
LAMBDAS = "0.0005,0.001,0.002,0.004,0.008,0.016,0.03,0.06,0.12,0.25"


def make_judge(out: Path, epochs: int = 12, seed: int = 0) -> None:
    """Train the classifier, with images shifted by up to two pixels, to which metrics should be invariant."""
    torch.manual_seed(seed)
    judge, source = FashionJudge(), load_fashion("train")
    images, labels = from_uint8(torch.tensor(source.images)), torch.from_numpy(source.labels)
    optimizer = torch.optim.AdamW(judge.parameters(), lr=2e-3, weight_decay=0.05)
    steps = epochs * len(images) // 100
    decay = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    for _ in range(steps):
        rows = torch.randint(len(images), (100,))
        shift = torch.randint(-2, 3, (2,)).tolist()
        loss = cross_entropy(judge.classes(images[rows].roll(shift, (2, 3))), labels[rows], label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
    test = load_fashion("test")
    seen = seen_classes(judge, from_uint8(torch.tensor(test.images)))
    print(f"judge: {(seen == torch.from_numpy(test.labels)).float().mean():.3f} of the test images")
    pack({name: tensor.detach() for name, tensor in judge.state_dict().items()}, out / "model.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    work: Path = parser.parse_args().work
    if not (FOLDER / "judge" / "model.safetensors").is_file():
        make_judge(FOLDER / "judge")
    if not (AUTOENCODERS["fashion"] / "model.safetensors").is_file():
        fit = ("--patch", "7", "--channels", "16", "--steps", "3000", "--kl", "1e-4")
        lwd("fit", "texture", "fashion/train", *fit, "--out", f"{work}/ae")
        pack_directory(work / "ae", AUTOENCODERS["fashion"])
    lwd("encode", "fashion/train", "--texture", "fashion", "--semantic", "embedded", "--out", f"{work}/latents")
    probe = ("--method", "surface", "--preset", "fashion-small", "--steps", "2000")
    lwd("probe", f"{work}/latents", *probe, "--out", f"{work}/surface")
    lwd("schedule", "path", f"{work}/surface", *RULE, "--lambdas", LAMBDAS, "--out", f"{work}/path")
    train = ("--preset", "fashion-small", "--schedule", f"{work}/path/chosen.json", *SETTINGS)
    lwd(
        "train", f"{work}/latents", *train, "--init-from", f"{work}/surface", "--steps", "4000", "--out", f"{work}/main"
    )
    lwd("train", f"{work}/latents", *train, "--weak", "--steps", "1000", "--out", f"{work}/weak")
    for name, target in (("main", "model"), ("weak", "weak")):
        pack_directory(locate(work / name), FOLDER / target)
    (FOLDER / "surfaces").mkdir(exist_ok=True)
    for path in (
        work / "surface" / "surfaces.safetensors",
        work / "surface" / "surfaces.json",
        work / "path/path.json",
    ):
        shutil.copy(path, FOLDER / "surfaces")
    print(f"model and weak partner: {size(FOLDER / 'model', FOLDER / 'weak'):.1f} MB")


if __name__ == "__main__":
    main()
