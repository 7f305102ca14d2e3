"""The studio's page."""

from pathlib import Path

PAGE = Path(__file__).parent
