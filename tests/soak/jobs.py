"""What is killed: each long command of `lwd` at a small scale, and the files that must be the same in the end."""

import json
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from commands import CHANGES
from lwd.cli import main
from lwd.errors import InputError
from lwd.representations import descent
from lwd.training import state
from stand_ins import Shop, stand_in

NETWORK = shlex.join(["--cpu", *(word for change in CHANGES for word in ("--set", change))])
SHORT = f"--steps 8 --set run.save_every=2 --set probe.burn_in=1 --preset cifar-small {NETWORK}"
SEMVAE = "--kind semvae --steps 6 --limit 16 --width 32 --heads 2 --size 32 --held-out 6 --batch 6"
VOLATILE = ("steps per second", "seconds", "time", "eta", "data wait", "peak memory", "MFU")
SKIPPED = (".lock", "tensorboard", "report.html", "curves.png", "probe.png")
"""Not compared: locks, event files with times, pictures and pages that show times."""
DEBRIS = re.compile(r"(^|/)\.[^/]+\.[0-9a-f]{12}(/|$)")
"""Temporary files of a killed process; they are hidden, and no command reads them."""


@dataclass(frozen=True)
class Job:
    """A command in a directory of its own; `run` is called in a forked process, in that directory."""

    name: str
    run: Callable[[], int]
    processes: int = 1
    alternate: bool = False
    """Whether attempts change between one and two processes."""
    exact: bool = True
    """False where another number of processes rounds differently: then losses are compared within 1e-5."""
    refuses: bool = False
    """Whether the command refuses to write where its complete result is."""


def command(line: str) -> Callable[[], int]:
    """`lwd LINE`."""
    return lambda: main(shlex.split(line))


def _demo() -> int:
    import lwd.demo.plan
    import lwd.demo.run
    from test_demo import TINY

    lwd.demo.run.run_demo("out", TINY.changed(train_steps=3, joint_steps=3, probe_steps=3), lambda _: None)
    return 0


def _reproduce() -> int:
    from lwd.reproduce.run import reproduce
    from reproduce.small import SMALL

    reproduce("schedules", "out", None, lambda _: None, SMALL)
    return 0


def make_jobs(root: Path, patch: Any = None) -> dict[str, Job]:
    """Build the inputs once in `root`, and list the jobs; patch: pytest's monkeypatch, which takes changes back."""
    keep = "lwd.representations.descent.KEEP_EVERY"
    if patch is not None:
        patch.setenv("LWD_CACHE", str(root / "cache"))
        patch.setattr(keep, 2)
        stand_in(patch.setattr)
    else:
        os.environ["LWD_CACHE"] = str(root / "cache")
        descent.KEEP_EVERY = 2
        stand_in()
    shop = Shop(root)
    made = {kind: shop.made(kind) for kind in ("photos", "ae", "pca", "latents", "schedule", "run", "samples")}
    photos, ae, latents = made["photos"], made["ae"], made["latents"]
    encode = (
        f"encode {photos} --texture {ae} --semantic resnet50:3@64 --compress {made['pca']} --size 32 --shard-size 6"
    )
    encode += " --batch 3 --threads 1 --out out"
    sample = f"sample --model {made['run']} --decoder {ae} --solver heun --steps 2 --count 12 --batch 2 --threads 1"
    sample += " --out out"
    train = f"train {latents} --schedule {made['schedule']} {SHORT} --set run.keep_at=[3] --out out"
    probe = f"probe {latents} {SHORT}"
    jobs = (
        Job("encode", command(encode)),
        Job("encode, 2 processes", command(encode), processes=2),
        Job("encode, 1 and 2 in turn", command(encode), alternate=True),
        Job(
            "fit texture",
            command(f"fit texture {photos} --steps 6 --batch 6 --held-out 6 --width 32 --size 32 --out out"),
            refuses=True,
        ),
        Job(
            "fit semantic",
            command(f"fit semantic {photos} --encoder resnet50:3@64 --grid 4x4 {SEMVAE} --out out"),
            refuses=True,
        ),
        Job("probe", command(f"{probe} --out out")),
        Job("probe, surface", command(f"{probe} --method surface --points 5 --samples 32 --out out")),
        Job("train", command(train)),
        Job("train, 2 processes", command(train), processes=2),
        Job("train, 1 and 2 in turn", command(train), alternate=True, exact=False),
        Job("sample", command(sample)),
        Job("sample, 2 processes", command(sample), processes=2),
        Job("sample, 1 and 2 in turn", command(sample), alternate=True),
        Job("evaluate", command(f"evaluate {made['samples']} --reference cifar10/test --threads 1 --out out/e.json")),
        Job("reproduce", _reproduce),
        Job("demo", _demo),
    )
    return {job.name: job for job in jobs}


def content(out: Path) -> dict[str, str]:
    """Checksums of the files that a command leaves, by path; times in JSON are left out."""
    found = {}
    for path in sorted(out.rglob("*")):
        name = str(path.relative_to(out))
        if not path.is_file() or any(part in name for part in SKIPPED) or DEBRIS.search(name):
            continue
        data = path.read_bytes()
        if path.suffix in (".json", ".jsonl"):
            lines = data.splitlines() if path.suffix == ".jsonl" else [data]
            data = json.dumps([_timeless(json.loads(line)) for line in lines], sort_keys=True).encode()
        found[name] = sha256(data).hexdigest()
    return found


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        # The checksum of a file is compared by the file itself.
        return {k: _timeless(v) for k, v in value.items() if k not in VOLATILE and k != "sha256"}
    return [_timeless(v) for v in value] if isinstance(value, list) else value


def losses(out: Path) -> list[float]:
    """The losses of a training, line by line."""
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["total"] for line in lines]


def progress(out: Path) -> int:
    """What may never go back: the step of the newest intact checkpoint, or the number of finished parts."""
    steps = 0
    for folder in out.rglob("checkpoints"):
        for path in state.candidates(folder):
            try:
                steps += state.read(path).step
                break
            except InputError:
                continue
    return steps + len(list(out.rglob("parts/[0-9]*.json"))) + 1000 * len(list(out.rglob("manifest.json")))
