"""Each wheel contains all files of its package."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("rlplug-core", "rlplug-algos", "rlplug-envs", "rlplug-cli")


def contents(package: str) -> set[str]:
    (wheel,) = Path(os.environ["RLPLUG_WHEELS"]).glob(f"{package.replace('-', '_')}-*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.parametrize("package", PACKAGES)
def test_wheel_contains_exactly_the_files_of_its_package(package: str) -> None:
    source = ROOT / package / "src"
    expected = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    found = {name for name in contents(package) if ".dist-info/" not in name}
    assert found == expected


@pytest.mark.parametrize("package", PACKAGES)
def test_wheel_has_types_and_a_license(package: str) -> None:
    names = contents(package)
    assert f"{package.replace('-', '_')}/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_wheel_of_algorithms_has_presets() -> None:
    names = contents("rlplug-algos")
    for algorithm in ("a2c", "a3c", "dqn", "ppo"):
        assert f"rlplug_algos/presets/{algorithm}.toml" in names
