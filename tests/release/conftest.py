"""These tests check the distributions that `nox -s release` built and installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

DIST = "RLPLUG_DIST"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if DIST not in os.environ:
        here = Path(__file__).parent
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="`nox -s release` builds them and sets their path"))


@pytest.fixture
def dist() -> Path:
    """The folder with four wheels and four source distributions."""
    return Path(os.environ[DIST])
