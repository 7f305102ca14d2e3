"""The real huggingface_hub client against a hub on 127.0.0.1, and the catalog at the size of its files."""

import pytest

from checkpoints.fetch.small_files import filled
from hub import LocalHub
from lwd.checkpoints.published import PUBLISHED
from lwd.models.lightningdit import SIZES


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LWD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def catalog(monkeypatch):
    """The catalog at the size of the small files; everything else stays as published."""
    for size in ("XL", "B"):
        monkeypatch.setitem(SIZES, size, (2, 48, 4))
    groups = {"texture": 4, "semantic": 2}
    for name in ("sfd-xl", "sfd-xl-80", "sfd-xl-weak"):
        monkeypatch.setitem(PUBLISHED, name, PUBLISHED[name].changed(groups=groups, classes=10, grid=(4, 4)))
    monkeypatch.setitem(PUBLISHED, "sfd-statistics", PUBLISHED["sfd-statistics"].changed(groups=groups))
    monkeypatch.setitem(PUBLISHED, "sd-vae-f16d32", PUBLISHED["sd-vae-f16d32"].changed(channels=4))


@pytest.fixture(autouse=True)
def hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda _: None)  # between its own attempts
    with filled(LocalHub(tmp_path / "hub")).serving() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server
