"""What is loaded, and when: a command line that answers at once imports neither torch nor gymnasium nor mlflow."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

IMPORTS = ("rlplug_core", "rlplug_algos", "rlplug_envs", "rlplug_cli")

#: What the commands that only show something may load besides the standard library.
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


def loaded(python: str, code: str) -> set[str]:
    """The top-level packages outside the standard library that `code` loads in a new interpreter."""
    script = f"import sys\nbefore = set(sys.modules)\n{code}\nprint(*set(sys.modules) - before, file=sys.stderr)"
    done = subprocess.run([python, "-c", script], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = {name.partition(".")[0] for name in done.stderr.splitlines()[-1].split()}
    return names - sys.stdlib_module_names


@pytest.mark.parametrize("package", IMPORTS)
def test_a_top_level_loads_only_itself(package: str, python: str, elsewhere: Path) -> None:
    assert loaded(python, PACKAGE.format(package)) == {package}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["list"], ["plugins"]], ids=" ".join)
def test_informational_commands_import_little(arguments: list[str], python: str, elsewhere: Path) -> None:
    assert loaded(python, COMMAND.format(arguments)) <= LIGHT


def test_the_packages_come_from_wheels(environment: Path, python: str, elsewhere: Path) -> None:
    for package in IMPORTS:
        code = f"import {package}; print({package}.__file__)"
        path = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout
        assert Path(path).is_relative_to(environment)
        assert Path(path).resolve().is_relative_to(sys.prefix)


def test_the_wheels_bring_the_command() -> None:
    script = Path(sysconfig.get_path("scripts")) / "rlplug"
    assert subprocess.run([script, "--version"], check=True, capture_output=True, text=True).stdout


def test_a_distribution_that_no_package_declares_is_not_there(python: str, elsewhere: Path) -> None:
    for name in ("pytest", "gymnasium"):
        code = subprocess.run([python, "-c", f"import {name}"], check=False, capture_output=True).returncode
        assert code == (name == "pytest")
