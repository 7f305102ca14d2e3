"""A small model on disk."""

import pytest

from pipelines import three_classes as pipeline


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model"
    pipeline().save_pretrained(path)
    return path
