"""These tests use the packages that `nox -s compat` installed: some of a release, the others of this checkout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

RELEASE = "RLPLUG_RELEASE"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if RELEASE not in os.environ:
        here = Path(__file__).parent
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="`nox -s compat` installs the packages of a release"))
