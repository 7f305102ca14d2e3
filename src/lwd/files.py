"""Reading and writing small files so that nothing is ever half written."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from lwd.errors import InputError

MAX_JSON_BYTES = 64 * 2**20


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` to `path` in one atomic step: temporary name beside it, fsync, rename."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InputError(f"cannot write {path}: {error.strerror or error}") from error
        raise


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` as JSON; floats keep every bit, NaN and infinity are refused."""
    write_bytes(path, (json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode())


def read_json(path: str | os.PathLike[str]) -> Any:
    """Parse a JSON file, or say in one sentence why that is not possible."""
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            raise InputError(f"{path} has {size} bytes; a JSON file of lwd has at most {MAX_JSON_BYTES}")
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        return json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON ({error}); is it truncated or another kind of file?") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
