"""Everything here looks at what `nox -s release` built and installed from source distributions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

BUILT = "RLPLUG_DIST"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if BUILT not in os.environ:
        here = Path(__file__).parent
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="`nox -s release` builds them and says where"))


@pytest.fixture
def dist() -> Path:
    """The folder with four wheels and four source distributions."""
    return Path(os.environ[BUILT])
