"""Stand-ins for everything that commands read, and an empty directory to run one in."""

import pytest

from lwd.compute.devices import threads
from stand_ins import Shop, stand_in


@pytest.fixture(scope="session")
def stock(tmp_path_factory):
    """What was made for one file serves the next."""
    return Shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def shop(stock):
    with pytest.MonkeyPatch.context() as patch, threads(1):  # two threads fight where something else runs
        stand_in(patch.setattr)
        patch.setenv("LWD_CACHE", str(stock.cache))
        yield stock


@pytest.fixture
def folder(shop, tmp_path, monkeypatch):
    monkeypatch.setenv("LWD_CACHE", str(shop.cache))
    monkeypatch.chdir(tmp_path)
    return tmp_path
