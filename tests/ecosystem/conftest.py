"""An environment for plugins: the four packages, tools, and the distributions that a test installs with pip."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests import declared
from tests.cli.warm import commands
from tests.waiting import PATIENCE, without_notices

#: The tools in the environment that build, test and check a plugin.
TOOLS = ("pip", "hatchling", "mypy", "pytest", "hypothesis", "jsonschema")
#: Variables that would lead a command to plugins, packages or stores outside of the environment.
FOREIGN = ("MLFLOW_TRACKING_URI", "PYTHONPATH", "RLPLUG_PLUGINS", "RLPLUG_DISABLED_PLUGINS", "RLPLUG_TELEGRAPH")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "RLPLUG_WHEELS" not in os.environ:
        here = Path(__file__).parent
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="`nox -s ecosystem` builds the plugins and sets their path"))


@dataclass(frozen=True)
class Place:
    """A virtual environment on top of this one, and a working directory."""

    root: Path
    directory: Path

    def run(self, *words: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command like in a shell with the active environment, and assert that it exits with `code`.

        Runs are not sent to MLflow, which has its own tests.
        """
        defaults = {"RLPLUG_DISABLED_PLUGINS": "mlflow", "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        defaults["PIP_NO_BUILD_ISOLATION"] = "0"  # pip then builds with the installed tools
        path = f"{self.root / 'bin'}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            words,
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            cwd=self.directory,
            env={**os.environ, "PATH": path, **defaults, **environment},
        )
        assert done.returncode == code, f"{' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        done.stderr = without_notices(done.stderr)
        return done

    def rlplug(self, *words: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the command of the environment."""
        return self.run("rlplug", *words, code=code, **environment)

    def pip(self, *words: str) -> None:
        """Run pip in the environment without an index; it builds with the installed tools."""
        self.run("python", "-m", "pip", *words)

    def at(self, directory: Path) -> Place:
        """The same environment in another working directory."""
        return replace(self, directory=directory)

    def file(self, module: str) -> Path:
        """The path of an installed module's source, found without importing it."""
        package, _, name = module.partition(".")
        code = f"from rlplug_core.plugins.index import package_root; print(package_root('{package}'))"
        return Path(self.run("python", "-c", code).stdout.strip()) / f"{name}.py"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A fresh environment and an empty working directory, without the user's settings.

    The command `rlplug` forks from a process of the environment that has imported its modules.
    """
    root = tmp_path_factory.mktemp("place")
    declared.make(root, *TOOLS)
    with pytest.MonkeyPatch.context() as patch:
        for name in FOREIGN:
            patch.delenv(name, raising=False)
        patch.setenv("RLPLUG_CONFIG", str(root / "no-config.toml"))
        patch.setenv("COLUMNS", "200")
        bin = root / "environment" / "bin"
        with commands(str(bin / "python"), bin):
            yield Place(root / "environment", tmp_path_factory.mktemp("elsewhere"))
