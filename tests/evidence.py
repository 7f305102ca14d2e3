"""Scripts of the studies (benchmarks/evidence), which import each other by name."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

EVIDENCE = Path(__file__).parents[1] / "benchmarks" / "evidence"


def script(name: str) -> ModuleType:
    """Import a script, and leave the path as it was: its folder has a latents.py that would hide tests/latents."""
    sys.path.append(str(EVIDENCE))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(EVIDENCE))
