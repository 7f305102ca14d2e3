"""Seeded fuzzing: try number i of a loader is a function of (seed, loader, i), so runs resume and violations replay.

An own mutator rather than hypothesis: the inputs are corrupted copies of real files, a try must be replayable from one
number across versions, and thousands run per minute. A violation is shrunk by leaving out mutations.
"""

import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from fuzz.archives import change_npy, change_npz, change_torch, change_zip
from fuzz.formats import CANARY, change_bytes, change_lines, change_png, change_safetensors, change_yaml
from fuzz.guard import Violation, guarded
from fuzz.hostile import change_json
from lwd.errors import InputError

SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
LOADED, REFUSED = "loaded", "refused"
BY_SUFFIX = {
    ".json": change_json,
    ".jsonl": change_lines,
    ".safetensors": change_safetensors,
    ".pt": change_torch,
    ".ckpt": change_torch,
    ".npz": change_npz,
    ".npy": change_npy,
    ".whl": change_zip,
    ".png": change_png,
    ".yaml": change_yaml,
}


@dataclass(frozen=True)
class Step:
    """One mutation: of the bytes of a file, or of the file itself."""

    file: str
    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.kind}({self.file}, {self.seed})"


@dataclass(frozen=True)
class Target:
    """A loader: what builds its files, and a function that reads them and uses the result."""

    name: str
    build: Callable[[Path], None]
    load: Callable[[Path], object]


@dataclass(frozen=True)
class Found:
    """A violation with the fewest mutations that still give it."""

    target: str
    number: int
    steps: tuple[Step, ...]
    problem: str

    def __str__(self) -> str:
        return f"{self.target} #{self.number}: {self.problem} after {', '.join(map(str, self.steps))}"


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def _replace_by_directory(path: Path, rng: Random) -> None:
    _remove(path)
    path.mkdir()
    if rng.random() < 0.5:
        (path / "x").write_bytes(b"x")


def _replace_by_link(path: Path, rng: Random) -> None:
    targets = [path.name, "/dev/zero", "/dev/null", "/nowhere/at/all", "/etc/passwd", "/", "..", ".", "/proc/self/mem"]
    _remove(path)
    path.symlink_to(rng.choice(targets))


def _replace_by_pipe(path: Path, rng: Random) -> None:
    del rng
    _remove(path)
    os.mkfifo(path)


def _swap(path: Path, rng: Random) -> None:
    others = [p for p in sorted(path.parent.iterdir()) if p.is_file() and not p.is_symlink() and p != path]
    if others and path.is_file() and not path.is_symlink():
        other = rng.choice(others)
        mine, theirs = path.read_bytes(), other.read_bytes()
        path.write_bytes(theirs)
        other.write_bytes(mine)


def _rename(path: Path, rng: Random) -> None:
    if path.exists():
        path.rename(
            path.with_name(rng.choice(("x", f"{path.name}.bak", f".{path.name}", "x" * 200, "\udcff.png", "a b")))
        )


FILE_STEPS: dict[str, Callable[[Path, Random], None]] = {
    "remove": lambda path, _: _remove(path),
    "directory": _replace_by_directory,
    "link": _replace_by_link,
    "pipe": _replace_by_pipe,
    "swap": _swap,
    "rename": _rename,
}


def plan(target: Target, seed: int, number: int, files: list[str]) -> tuple[Step, ...]:
    """The mutations of try `number`."""
    rng = Random(f"{seed} {target.name} {number}")
    steps = []
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        draw, file = rng.random(), rng.choice(files)
        kind = "content" if draw < 0.72 else "bytes" if draw < 0.92 else rng.choice(list(FILE_STEPS))
        steps.append(Step(file, kind, rng.randrange(2**32)))
    return tuple(steps)


def apply(directory: Path, step: Step) -> None:
    """Mutate one file of a directory."""
    path, rng = directory / step.file, Random(step.seed)
    if step.kind in FILE_STEPS:
        FILE_STEPS[step.kind](path, rng)
    elif path.is_file() and not path.is_symlink():
        change = BY_SUFFIX.get(path.suffix, change_bytes) if step.kind == "content" else change_bytes
        content = path.read_bytes()
        try:
            changed = change(content, rng)
        except Exception:  # not every mutation can be applied to what earlier ones left
            changed = change_bytes(content, Random(step.seed))
        path.write_bytes(changed)


class Fuzz:
    """The tries of one loader, in a scratch directory."""

    def __init__(self, target: Target, seed: int, scratch: Path) -> None:
        self.target, self.seed, self.scratch = target, seed, scratch
        self.clean = scratch / "clean"
        self.clean.mkdir()
        target.build(self.clean)
        target.load(self.clean)  # what is imported on first use is imported here
        shutil.rmtree(scratch / "out", ignore_errors=True)
        self.files = sorted(str(p.relative_to(self.clean)) for p in self.clean.rglob("*") if p.is_file())

    def steps(self, number: int) -> tuple[Step, ...]:
        return plan(self.target, self.seed, number, self.files)

    def outcome(self, steps: tuple[Step, ...]) -> str:
        """LOADED, REFUSED, or what is wrong."""
        directory = self.scratch / "try" / "in"
        shutil.rmtree(directory.parent, ignore_errors=True)
        shutil.copytree(self.clean, directory)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for step in steps:
                apply(directory, step)
        size = sum(p.stat().st_size for p in directory.rglob("*") if p.is_file() and not p.is_symlink())
        try:
            with warnings.catch_warnings(), guarded(directory.parent, size):
                warnings.simplefilter("ignore")
                try:
                    self.target.load(directory)
                except InputError as error:
                    if "\n" in str(error) or "\r" in str(error):
                        return f"a message of several lines: {str(error)!r:.200}"
                    if not str(error) or len(str(error)) > 4000:
                        return f"a message of {len(str(error))} characters"
                    return REFUSED
        except Violation as error:
            return str(error)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return f"{type(error).__name__}: {str(error)!r:.300}"
        return LOADED

    def check(self, number: int) -> Found | str:
        """Run one try; a violation is shrunk."""
        steps = self.steps(number)
        problem = self.outcome(steps)
        if problem in (LOADED, REFUSED):
            return problem
        for step in steps:
            fewer = tuple(other for other in steps if other is not step)
            shorter = self.outcome(fewer) if fewer else LOADED
            if shorter not in (LOADED, REFUSED):
                steps, problem = fewer, shorter
        return Found(self.target.name, number, steps, problem)


@contextmanager
def fuzzing(target: Target, seed: int) -> Iterator[Fuzz]:
    """A Fuzz whose scratch directory is removed at the end."""
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="fuzz-") as scratch:
        before = os.environ.get(CANARY)
        os.environ[CANARY] = str(Path(scratch) / "canary")
        try:
            yield Fuzz(target, seed, Path(os.path.realpath(scratch)))
        finally:
            if before is None:
                os.environ.pop(CANARY, None)
            else:
                os.environ[CANARY] = before
