"""Every shipped asset has a licence that is written down."""

import re
from fnmatch import fnmatch
from pathlib import Path

import lwd

PAGE = Path(__file__).parents[1] / "docs" / "licences.md"
ASSETS = Path(lwd.__file__).parent / "assets"


def test_every_asset_is_in_the_table_of_licences():
    """Oracle: the files themselves; a row that matches no file is wrong as well."""
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    patterns = [pattern for row in rows for pattern in re.findall(r"`([^`]+)`", row[1])]
    assert all("MIT" in row[3] for row in rows)
    files = [
        p.relative_to(ASSETS).as_posix() for p in ASSETS.rglob("*") if p.is_file() and "__pycache__" not in p.parts
    ]
    assert not [file for file in files if not any(fnmatch(file, pattern) for pattern in patterns)]
    assert not [pattern for pattern in patterns if not any(fnmatch(file, pattern) for file in files)]
    assert "Permission is hereby granted" in (ASSETS / "fashion" / "ATTRIBUTION.md").read_text()
