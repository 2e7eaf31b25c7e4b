"""What is published: four wheels and four source distributions that hold what they should and say who they are."""

from __future__ import annotations

import subprocess
import sysconfig
import tarfile
import zipfile
from email.message import Message
from email.parser import BytesParser
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PACKAGES = ("rlplug-core", "rlplug-algos", "rlplug-envs", "rlplug-cli")
#: What a source distribution holds beside its package.
BESIDE = {"README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "PKG-INFO", ".gitignore"}
RLPLUG = str(Path(sysconfig.get_path("scripts")) / "rlplug")


def wheel(dist: Path, package: str) -> zipfile.ZipFile:
    (path,) = dist.glob(f"{package.replace('-', '_')}-*.whl")
    return zipfile.ZipFile(path)


def metadata(dist: Path, package: str) -> Message:
    archive = wheel(dist, package)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return BytesParser().parsebytes(archive.read(name))


def source(package: str) -> set[str]:
    """The files of a package in the checkout."""
    folder = ROOT / package / "src"
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)) for path in found}


def test_there_is_one_of_each(dist: Path) -> None:
    """And of the example that is released, if it is one."""
    wheels = sorted(path.name.partition("-")[0] for path in dist.glob("*.whl"))
    assert wheels == sorted(path.name.partition("-")[0] for path in dist.glob("*.tar.gz"))
    assert len(set(wheels)) == len(wheels)
    assert set(wheels) >= {name.replace("-", "_") for name in ("rlplug", "rlplug-zoo", *PACKAGES)}
    with wheel(dist, "rlplug") as meta:
        assert all(".dist-info/" in name for name in meta.namelist())


@pytest.mark.parametrize("package", PACKAGES)
def test_a_source_distribution_holds_the_package_and_its_papers_alone(dist: Path, package: str) -> None:
    (path,) = dist.glob(f"{package.replace('-', '_')}-*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names - BESIDE == {f"src/{name}" for name in source(package)}
    assert names >= BESIDE - {".gitignore"}


@pytest.mark.parametrize("package", PACKAGES)
def test_source_installations_equal_the_wheel(dist: Path, package: str) -> None:
    files = distribution(package).files or []
    installed = {str(file) for file in files if "__pycache__" not in file.parts and ".dist-info" not in file.parts[0]}
    assert {name for name in installed if not name.startswith("..")} == source(package)
    assert {name for name in wheel(dist, package).namelist() if ".dist-info/" not in name} == source(package)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_who_it_is(dist: Path, package: str) -> None:
    found = metadata(dist, package)
    assert found["Name"] == package
    assert found["License-Expression"] == "MIT"
    assert found["Description-Content-Type"] == "text/markdown"
    assert len(str(found.get_payload())) > 200
    assert "Typing :: Typed" in found.get_all("Classifier", [])


@pytest.mark.parametrize("package", PACKAGES)
def test_siblings_of_this_version_are_accepted(dist: Path, package: str) -> None:
    requirements = map(Requirement, metadata(dist, package).get_all("Requires-Dist", []))
    version = metadata(dist, package)["Version"]
    for requirement in requirements:
        assert requirement.name not in PACKAGES or requirement.specifier.contains(version), requirement


def test_the_command_answers(dist: Path, tmp_path: Path) -> None:
    """What it lists has come through entry points and index files."""

    def said(*words: str) -> str:
        return subprocess.run([RLPLUG, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    assert said("--version").split()[-1] == metadata(dist, "rlplug-cli")["Version"]
    assert "ppo" in said("list")
    assert "learning_rate" in said("info", "ppo").replace("-", "_")
