"""Informational commands import neither torch nor gymnasium nor mlflow, and packages import only themselves."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

IMPORTS = ("rlplug_core", "rlplug_algos", "rlplug_envs", "rlplug_cli")

#: Packages that informational commands may import besides the standard library.
LIGHT = {"rlplug_core", "rlplug_cli", "click"}

PACKAGE = "import {0}"
COMMAND = """
from rlplug_cli.__main__ import main
sys.argv = ["rlplug", *{0}]
try:
    main()
except SystemExit as error:
    assert not error.code, error.code
"""


def list_imports(python: str, code: str) -> set[str]:
    """The top-level packages outside the standard library that `code` imports in a new interpreter."""
    script = f"import sys\nbefore = set(sys.modules)\n{code}\nprint(*set(sys.modules) - before, file=sys.stderr)"
    done = subprocess.run([python, "-c", script], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = {name.partition(".")[0] for name in done.stderr.splitlines()[-1].split()}
    return names - sys.stdlib_module_names


@pytest.mark.parametrize("package", IMPORTS)
def test_package_imports_only_itself(package: str, python: str, outside: Path) -> None:
    assert list_imports(python, PACKAGE.format(package)) == {package}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["list"], ["plugins"]], ids=" ".join)
def test_informational_commands_import_little(arguments: list[str], python: str, outside: Path) -> None:
    assert list_imports(python, COMMAND.format(arguments)) <= LIGHT


def test_packages_come_from_wheels(environment: Path, python: str, outside: Path) -> None:
    for package in IMPORTS:
        code = f"import {package}; print({package}.__file__)"
        path = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout
        assert Path(path).is_relative_to(environment)
        assert Path(path).resolve().is_relative_to(sys.prefix)


def test_wheels_install_the_command() -> None:
    script = Path(sysconfig.get_path("scripts")) / "rlplug"
    assert subprocess.run([script, "--version"], check=True, capture_output=True, text=True).stdout


def test_undeclared_distributions_are_not_importable(python: str, outside: Path) -> None:
    for name in ("pytest", "gymnasium"):
        code = subprocess.run([python, "-c", f"import {name}"], check=False, capture_output=True).returncode
        assert code == (name == "pytest")
