"""The shell commands that README and docs show: found in the Markdown, cut down, and the files they promise."""

import json
import re
import shlex
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lwd.cli import Parser, build_parser

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHELLS = ("", "sh", "bash", "shell", "console")
STARTS = ("lwd", "make", "torchrun", "accelerate", "srun", "python", "python3", "pip", "git", "uv", "conda", "docker")
FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """A line of a page; `words` are what a shell would make of it, without comments and variables before it."""

    page: str
    line: int
    text: str

    @property
    def words(self) -> tuple[str, ...]:
        words = shlex.split(self.text, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            words.pop(0)
        return tuple(words)

    def __str__(self) -> str:
        return f"{self.page}:{self.line} {shlex.join(self.words)}"


def commands_of(page: Path) -> Iterator[Command]:
    """Lines of fenced blocks that begin like a command, and inline `lwd ...` that the parser accepts."""
    text = page.read_text()
    for block in FENCE.finditer(text):
        language, body = block[2].strip(), block[3]
        if language not in SHELLS:
            continue
        first = text[: block.start(3)].count("\n") + 1
        whole = re.sub(r"\\\n", "\0", body)  # one line to the shell, several on the page
        for line in whole.split("\n"):
            shown = line.replace("\0", " ").strip().removeprefix("$ ")
            command = Command(page.name, first, " ".join(shown.split()))
            if shown and command.words and command.words[0] in STARTS:
                yield command
            first += 1 + line.count("\0")
    for line, inline in mentions(page):
        if parsed(shlex.split(inline)[1:]) is not None:
            yield Command(page.name, line, inline)


def mentions(page: Path) -> Iterator[tuple[int, str]]:
    """Inline code that begins with `lwd `, with its line."""
    text = FENCE.sub(lambda block: "\n" * block[0].count("\n"), page.read_text())
    for found in re.finditer(r"`(lwd [^`]+)`", text):
        if found[1].count("'") % 2 == 0:
            yield text[: found.start()].count("\n") + 1, " ".join(found[1].split())


@cache
def parser() -> Parser:
    """The command line; building it once saves a second per hundred commands."""
    return build_parser()


def parsed(arguments: Sequence[str]) -> Namespace | None:
    """What argparse makes of the words after `lwd`; None if it refuses them."""
    try:
        return parser().parse_args(list(arguments))
    except SystemExit:
        return None


def unwrapped(words: Sequence[str]) -> list[str]:
    """The words after `lwd`, whatever starts it: nothing, python -m, torchrun or accelerate launch."""
    start, *rest = words
    if start == "lwd":
        return rest
    if start in ("python", "python3") and rest[:2] == ["-m", "lwd"]:
        return rest[2:]
    if start == "srun":
        return unwrapped(rest[next(i for i, word in enumerate(rest) if not word.startswith("-")) :])
    if start == "torchrun":
        from torch.distributed.run import get_args_parser

        found = get_args_parser().parse_args(rest)
    elif start == "accelerate" and rest[0] == "launch":
        from accelerate.commands.launch import launch_command_parser

        found = launch_command_parser().parse_args(rest[1:])
    else:
        raise ValueError(f"{' '.join(words)!r} does not start lwd; run it, or list it with a reason")
    assert (found.module, found.training_script) == (True, "lwd"), "processes are started with -m lwd"
    return list(found.training_script_args)


NETWORK = ("size=''", "depth=2", "width=16", "heads=2", "patch=1", "projector_width=32")
RUN = ("batch=16", "log_every=1", "save_every=2")
CHANGES = [f"network.{change}" for change in NETWORK] + [f"run.{change}" for change in RUN]
SMALL_RUN = shlex.join(["--cpu", *(word for change in CHANGES for word in ("--set", change))])
SMALLER = {
    "fit texture": "--steps 2 --batch 8 --held-out 8 --width 32",
    "fit semantic": "--batch 16 --held-out 8",
    "encode": "--shard-size 16 --batch 8 --threads 1",
    "probe": f"--steps 3 --set probe.burn_in=1 {SMALL_RUN}",
    "sweep": f"--steps 3 --set probe.burn_in=1 {SMALL_RUN}",
    "train": f"--steps 2 {SMALL_RUN}",
    "sample": "--count 12 --batch 12 --threads 1",
    "bench sampler": "--budgets 4 --count 2 --threads 1",
    "evaluate": "--threads 1",
    "demo": "--quick",
    "reproduce": "--plan",
}


def name_of(a: Namespace) -> str:
    return f"{a.command} {a.action}" if getattr(a, "action", None) else str(a.command)


def smaller(arguments: Sequence[str]) -> list[str]:
    """The same command at a quick scale, on one process."""
    a = parser().parse_args(list(arguments))
    name, more = name_of(a), []
    more += shlex.split(SMALLER.get(name, ""))
    if getattr(a, "size", 0):
        more += ["--size", "32"]
    if name == "fit semantic" and a.kind == "semvae":
        length = "--epochs 1" if a.epochs else "--steps 2"
        more += [*length.split(), "--limit", "16", "--width", "32", "--heads", "2"]
    if name == "probe" and a.method == "surface":
        more += ["--points", "5", "--samples", "32"]
    if name == "train" and a.decoder:
        more += ["--set", "run.sample_every=2"]
    if name in ("probe", "sweep", "train") and "run.parallel=fsdp2" in a.set:
        more += ["--set", "run.parallel=ddp"]  # nothing to share with one process
    if name == "sweep":
        more += ["--kinetic", ",".join(a.kinetic.split(",")[:2])]
    if name == "schedule path":
        more += ["--lambdas", "0.01,0.05", *(["--steps", "20"] if a.steps else [])]
    if name == "sample" and a.steps:
        more += ["--steps", "6"]  # as many as an SDE under Offset has stops, and one
    if name == "bench sampler" and a.reference:
        more += ["--samples", "12"]
    return [*arguments, *more]


def same_as(a: Namespace) -> str:
    """What distinguishes a command once it is small; where it writes does not."""
    return repr(sorted((key, value) for key, value in vars(a).items() if key not in ("out", "run")))


WRITES = {
    "fit texture": ("config.json", "model.safetensors"),
    "fit semantic": ("config.json",),
    "encode": ("manifest.json",),
    "probe": ("schedule.json", "trace.json", "probe.png", "metrics.jsonl", "checkpoints/latest"),
    "probe surface": ("surfaces.safetensors", "surfaces.json", "metrics.jsonl", "checkpoints/latest"),
    "sweep": ("sweep.json", "sweep.png"),
    "train": ("run.json", "metrics.jsonl", "checkpoints/latest"),
    "schedule path": ("path.png", "path.json"),
    "sample": ("manifest.json", "grid.png"),
    "bench sampler": ("sampler.png", "sampler.json"),
    "compare": ("comparison.md", "comparison.png"),
    "demo": ("report.html",),
}


def writes(a: Namespace, folder: Path) -> list[Path]:
    """The files that the documentation promises of a command."""
    name, out = name_of(a), getattr(a, "out", None)
    if name == "reproduce":
        return []  # only its plan is printed here; tests/reproduce runs it
    if name == "data show" and not out:
        return [folder / a.directory / "contact-sheet.png"]
    if name == "runs show" and not out:
        return [folder / a.run_dir / "curves.png"]
    if name == "evaluate" and not out:
        return [folder / a.samples / "evaluation.json"]
    if not out:
        return []
    found = [folder / out]
    if name == "sample" and out.endswith(".png"):
        return found
    key = "probe surface" if name == "probe" and a.method == "surface" else name
    found += [folder / out / file for file in WRITES.get(key, ())]
    if name == "sample":
        kinds = a.kinds or "png,npz"
        found += [folder / out / "samples.npz"] if "npz" in kinds else []
        found += [folder / out / "images" / "000000.png"] if "png" in kinds else []
        found += [folder / out / "trajectory.png"] if a.trajectory else []
    if name == "sweep":
        found += [folder / out / f"lambda-{float(k):g}" / "schedule.json" for k in a.kinetic.split(",")]
    if name == "schedule path" and (folder / out / "path.json").exists():
        there = json.loads((folder / out / "path.json").read_text())
        found += [folder / out / f"{key}.json" for key in ("weakest", "chosen") if there[key] is not None]
    if name == "train" and a.decoder:
        found += [folder / out / "samples" / "00000002.png"]
    return found
