"""Files of a model repository on the Hugging Face hub, or of a local copy of it: listed, downloaded, checked."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from lwd.errors import InputError, import_extra
from lwd.io.files import sha256


@dataclass(frozen=True)
class Listed:
    """What the hub says about a file; None where it does not say."""

    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Fetched:
    """A file that arrived and was checked."""

    local: Path
    path: str
    """Inside its repository."""
    size: int
    sha256: str


@dataclass(frozen=True)
class Repository:
    """The files of one repository at one revision."""

    name: str
    revision: str
    """The commit; empty for a local copy."""
    files: Mapping[str, Listed]
    download: Callable[[str], Path]

    def find(self, folder: str, path: str) -> str:
        """Return the full path of `path` in `folder`, or of the only file with that name there, at any depth."""
        full = f"{folder}/{path}" if folder else path
        if full in self.files:
            return full
        inside = [name for name in self.files if not folder or name.startswith(f"{folder}/")]
        named = [name for name in inside if Path(name).name == Path(path).name]
        if len(named) == 1:
            return named[0]
        some = ", ".join(sorted(named or inside or self.files)[:8]) or "no files"
        raise InputError(f"{self} has no {full}; it has {some}")

    def get(self, path: str) -> Fetched:
        """Download a file and compare size and checksum with what the hub says about it."""
        local, listed = self.download(path), self.files[path]
        try:
            size = local.stat().st_size
        except OSError as error:
            raise InputError(f"cannot read {local}: {error.strerror or error}") from error
        digest = sha256(local)
        if listed.size not in (None, size):
            self._refuse(local, f"{path} of {self} has {size} bytes here, but must have {listed.size}")
        if listed.sha256 not in (None, digest):
            self._refuse(local, f"{path} of {self} has the SHA-256 {digest} here, but must have {listed.sha256}")
        return Fetched(local, path, size, digest)

    @staticmethod
    def _refuse(local: Path, problem: str) -> NoReturn:
        local.unlink(missing_ok=True)  # otherwise the next attempt would find it again
        raise InputError(f"{problem}; the download was removed, run the same command again")

    def __str__(self) -> str:
        return f"{self.name} at revision {self.revision[:12]}" if self.revision else self.name


def open_hub(name: str, revision: str | None, into: Path) -> Repository:
    """List a repository of the hub; its files are downloaded into `into`, resuming interrupted downloads."""
    hub = import_extra("huggingface_hub", "hub", f"downloading from {name}")
    # Read here, too: huggingface_hub reads HF_ENDPOINT (a mirror) only once, when it is imported.
    endpoint = os.environ.get("HF_ENDPOINT") or None
    try:
        info = hub.HfApi(endpoint=endpoint).model_info(name, revision=revision, files_metadata=True)
    except Exception as error:  # the HTTP clients that huggingface_hub has had share no class of errors
        raise hub_error(error, f"{name} cannot be listed", revision) from error
    files = {one.rfilename: _listed(one) for one in info.siblings or ()}

    def download(path: str) -> Path:
        url = hub.hf_hub_url(name, path, revision=info.sha, endpoint=endpoint)
        # By content: what is left of another revision is never continued or taken for this one.
        folder = into / (files[path].sha256 or info.sha)[:16]
        return _download(url, folder / Path(path).name, files[path].size, f"{path} of {name}")

    return Repository(name, str(info.sha), files, download)


def _download(url: str, target: Path, size: int | None, what: str) -> Path:
    """Download into `target` from where an earlier attempt stopped; hf_hub_download would start over."""
    if target.is_file():
        return target
    partial = target.with_name(f"{target.name}.partial")
    headers = {**import_module("huggingface_hub.utils").build_hf_headers(), "Accept-Encoding": "identity"}
    http_get = import_module("huggingface_hub.file_download").http_get
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("ab") as file:
            if size is not None and file.tell() > size:
                file.truncate(0)
                file.seek(0)
            there = file.tell()
            http_get(url, file, resume_size=there, headers=headers, expected_size=size, displayed_filename=target.name)
        os.replace(partial, target)
    except Exception as error:
        raise hub_error(error, f"{what} could not be downloaded") from error
    return target


def open_copy(name: str, directory: str | os.PathLike[str]) -> Repository:
    """List a local copy: DIR/owner/name if it exists, else DIR itself."""
    root = Path(directory)
    if not root.is_dir():
        raise InputError(f"{directory} is not a directory with a copy of {name}", argument="source")
    root = root / name if (root / name).is_dir() else root
    inside = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    # .cache is where huggingface_hub keeps its notes and unfinished downloads.
    found = {path.as_posix(): Listed() for path in inside if ".cache" not in path.parts}
    return Repository(str(root), "", found, lambda path: root / path)


def _listed(one: Any) -> Listed:
    large = one.lfs
    digest = large.get("sha256") if isinstance(large, Mapping) else getattr(large, "sha256", None)
    return Listed(one.size, digest)


def hub_error(error: Exception, problem: str, revision: str | None = None) -> InputError:
    """Explain an error of the hub in one line that says what to do."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    status = getattr(getattr(error, "response", None), "status_code", None)
    if "RevisionNotFoundError" in kinds:
        return InputError(f"{problem}: it has no revision {revision}; use a branch, tag or commit", argument="revision")
    if "GatedRepoError" in kinds or status == 403:
        return InputError(f"{problem}: the repository needs a login; accept its terms on the hub, then: hf auth login")
    if "RepositoryNotFoundError" in kinds or status == 401:
        return InputError(
            f"{problem}: there is no such repository, or it needs a login; check the name, then: hf auth login"
        )
    if "EntryNotFoundError" in kinds or status == 404:
        return InputError(f"{problem}: the repository does not have it (any more)")
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return InputError(f"{problem} ({reason}); check connection and disk, then run again: what has arrived is kept")
