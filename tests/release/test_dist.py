"""The published wheels and source distributions have all files and correct metadata."""

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
#: The files of a source distribution besides its package.
OTHER_FILES = {"README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "PKG-INFO", ".gitignore"}
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


def test_each_package_has_a_wheel_and_a_source_distribution(dist: Path) -> None:
    """Also a released example."""
    wheels = sorted(path.name.partition("-")[0] for path in dist.glob("*.whl"))
    assert wheels == sorted(path.name.partition("-")[0] for path in dist.glob("*.tar.gz"))
    assert len(set(wheels)) == len(wheels)
    assert set(wheels) >= {name.replace("-", "_") for name in ("rlplug", "rlplug-zoo", *PACKAGES)}
    with wheel(dist, "rlplug") as meta:
        assert all(".dist-info/" in name for name in meta.namelist())


@pytest.mark.parametrize("package", PACKAGES)
def test_source_distribution_contains_only_the_package_and_its_documents(dist: Path, package: str) -> None:
    (path,) = dist.glob(f"{package.replace('-', '_')}-*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names - OTHER_FILES == {f"src/{name}" for name in source(package)}
    assert names >= OTHER_FILES - {".gitignore"}


@pytest.mark.parametrize("package", PACKAGES)
def test_source_installations_equal_the_wheel(dist: Path, package: str) -> None:
    files = distribution(package).files or []
    installed = {str(file) for file in files if "__pycache__" not in file.parts and ".dist-info" not in file.parts[0]}
    assert {name for name in installed if not name.startswith("..")} == source(package)
    assert {name for name in wheel(dist, package).namelist() if ".dist-info/" not in name} == source(package)


@pytest.mark.parametrize("package", PACKAGES)
def test_metadata_of_packages(dist: Path, package: str) -> None:
    fields = metadata(dist, package)
    assert fields["Name"] == package
    assert fields["License-Expression"] == "MIT"
    assert fields["Description-Content-Type"] == "text/markdown"
    assert len(str(fields.get_payload())) > 200
    assert "Typing :: Typed" in fields.get_all("Classifier", [])


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_accept_each_other_at_this_version(dist: Path, package: str) -> None:
    requirements = map(Requirement, metadata(dist, package).get_all("Requires-Dist", []))
    version = metadata(dist, package)["Version"]
    for requirement in requirements:
        assert requirement.name not in PACKAGES or requirement.specifier.contains(version), requirement


def test_command_shows_version_and_algorithms(dist: Path, tmp_path: Path) -> None:
    """Its lists come from entry points and index files."""

    def output(*words: str) -> str:
        return subprocess.run([RLPLUG, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    assert output("--version").split()[-1] == metadata(dist, "rlplug-cli")["Version"]
    assert "ppo" in output("list")
    assert "learning_rate" in output("info", "ppo").replace("-", "_")
