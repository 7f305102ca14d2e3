"""Reading and writing files atomically: no file is ever half written."""

import errno
import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from lwd.errors import InputError

MAX_JSON_BYTES = 64 * 2**20
MODEL_FILES = (".json", ".safetensors", ".bin")
"""Files that determine the result of a model; a README, for example, does not."""


RECOMMENDED = "sampling.json"
"""Recommended solvers of a model, which are no part of it: they may be added later."""


def cache_dir() -> Path:
    """Return the directory of downloaded data: $LWD_CACHE, or ~/.cache/lwd."""
    return Path(os.environ.get("LWD_CACHE") or Path.home() / ".cache" / "lwd")


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that appears at `path` only if the block succeeds: temporary name, fsync, rename."""
    path = Path(path)
    temporary = path.parent / f".{path.name}.{secrets.token_hex(6)}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise cannot_write(path, error) from error
        raise


def cannot_write(path: str | os.PathLike[str], error: OSError) -> InputError:
    """Explain a failed write in one line that says what to do."""
    reason = f"cannot write {path}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return InputError(f"{reason}; free some space and run the same command again, what is complete is kept")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return InputError(f"{reason}; use a directory that you may write to")
    return InputError(reason)


def check_destination(path: str | os.PathLike[str], replace: bool = False) -> Path:
    """Raise an error if a directory may not be written; returns its real path. Long jobs call this first."""
    path = Path(os.path.realpath(path))  # so that a link is kept
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file, not a directory; use another name")
    if path.is_dir() and any(path.iterdir()):
        if not replace:
            raise InputError(f"{path} exists; use another name, or replace it", argument="replace")
        if not (path / "config.json").is_file():
            raise InputError(f"{path} is not a model directory (no config.json), so it is not replaced")
    check_writable(path.parent)
    return path


@contextmanager
def atomic_directory(path: str | os.PathLike[str], replace: bool = False, prepared: str = "") -> Iterator[Path]:
    """Yield a directory that appears at `path` only if the block succeeds; an old one stays until then.

    replace: allow replacing an old directory that contains a config.json; no other directory is ever replaced.
    prepared: name of an existing directory beside `path` to fill, which other processes may fill as well.
    """
    path = check_destination(path, replace)
    temporary, old = (path.parent / f".{path.name}.{secrets.token_hex(6)}" for _ in range(2))
    temporary = path.parent / prepared if prepared else temporary
    try:
        temporary.mkdir(parents=True, exist_ok=bool(prepared))
        yield temporary
        if replace and path.exists():
            os.replace(path, old)
        _sync(temporary)
        os.replace(temporary, path)  # fails if another process filled `path` in the meantime
        _sync(path.parent)
    except BaseException as error:
        if old.exists() and not path.exists():
            os.replace(old, path)
        if isinstance(error, OSError):
            raise cannot_write(path, error) from error
        raise
    finally:
        for leftover in (temporary, old):
            shutil.rmtree(leftover, ignore_errors=True)


def install(directory: Path, fill: Callable[[Path], None]) -> Path:
    """Fill a directory of the cache atomically; if another process was faster, keep its result."""
    try:
        with atomic_directory(directory) as temporary:
            fill(temporary)
    except InputError:
        if not (directory / "config.json").is_file():
            raise
    return directory


def check_file(path: str | os.PathLike[str]) -> int:
    """Return the size of a file; an error if it does not exist or is not a regular file (a pipe would block)."""
    try:
        about = os.stat(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"{path} does not exist") from error
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise InputError(f"cannot read {str(path)!r}: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(about.st_mode):
        raise InputError(f"{path} is not a file")
    return about.st_size


def sha256(path: str | os.PathLike[str]) -> str:
    """Return the checksum of a file."""
    check_file(path)
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def model_digest(directory: str | os.PathLike[str]) -> str:
    """Return a checksum (16 hexadecimal digits) of the configuration and weights in a model directory."""
    digest = hashlib.sha256()
    try:
        found = (p for p in Path(directory).iterdir() if p.suffix in MODEL_FILES and p.is_file())
        for path in sorted(p for p in found if p.name != RECOMMENDED):
            digest.update(f"{path.name} {sha256(path)}\n".encode())
    except OSError as error:
        raise InputError(f"cannot read {directory}: {error.strerror or error}") from error
    return digest.hexdigest()[:16]


def _sync(directory: Path) -> None:
    """Make renames in a directory survive a power failure, where the system supports it."""
    with suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_writable(directory: str | os.PathLike[str]) -> None:
    """Raise an error if a directory cannot be written: better before a long job than after it."""
    probe = Path(directory) / f".probe.{secrets.token_hex(6)}"
    try:
        probe.parent.mkdir(parents=True, exist_ok=True)
        probe.open("xb").close()
        probe.unlink(missing_ok=True)  # another process may have removed it
    except OSError as error:
        raise cannot_write(directory, error) from error


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` to `path` atomically."""
    with atomic_file(path) as file:
        file.write(content)


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` as JSON; floats keep every bit, NaN and infinity are rejected."""
    try:
        text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)
    except ValueError as error:
        raise InputError(f"cannot write {path}: it would contain NaN or infinity") from error
    write_bytes(path, (text + "\n").encode())


def read_json(path: str | os.PathLike[str]) -> Any:
    """Parse a JSON file, or raise an InputError that names it."""
    path = Path(path)
    size = check_file(path)
    if size > MAX_JSON_BYTES:
        raise InputError(f"{path} has {size} bytes; lwd reads JSON files of up to {MAX_JSON_BYTES} bytes")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        return json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON ({error}); is it truncated or another kind of file?") from error


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """List the differences between two JSON objects as phrases: 'batch was 4, is 5'."""
    out = []
    for key in sorted({*old, *new}):
        was, now = old.get(key), new.get(key)
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            out += [f"{key}: {phrase}" for phrase in changes(was, now)]
        elif was != now:
            was, now = (f"{str(value)[:80]}..." if len(str(value)) > 80 else str(value) for value in (was, now))
            out.append(f"{key.replace('_', '-')} was {was}, is {now}")
    return out
