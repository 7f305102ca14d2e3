"""The made story that the tests of the page show."""

import pytest

from report.made_story import made_story


@pytest.fixture(scope="module")
def story():
    return made_story()
