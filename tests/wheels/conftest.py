"""These tests use installed packages outside of the checkout, and are skipped without installed wheels."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import declared


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "RLPLUG_WHEELS" not in os.environ:
        here = Path(__file__).parent
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="`nox -s wheels` installs the wheels and sets their path"))


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of the four packages and their declared requirements, without extras and tools."""
    root = tmp_path_factory.mktemp("declared")
    declared.make(root)
    return root


@pytest.fixture(scope="session")
def python(environment: Path) -> str:
    """The interpreter of the environment."""
    return str(environment / "environment" / "bin" / "python")


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory outside the checkout, without environment variables that lead to the checkout."""
    for name in ("PYTHONPATH", "MLFLOW_TRACKING_URI", "RLPLUG_PLUGINS", "RLPLUG_DISABLED_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path
