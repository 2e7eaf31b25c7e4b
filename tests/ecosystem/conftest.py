"""An environment into which plugins are installed: the four packages, tools, and what a test adds by pip."""

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

#: What the environment has besides the four packages: the tools by which a plugin is built, tested and checked.
TOOLS = ("pip", "hatchling", "mypy", "pytest", "hypothesis", "jsonschema")
#: Variables that would lead a command to plugins, packages or stores that are not the environment's own.
FOREIGN = ("MLFLOW_TRACKING_URI", "PYTHONPATH", "RLPLUG_PLUGINS", "RLPLUG_DISABLED_PLUGINS", "RLPLUG_TELEGRAPH")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "RLPLUG_WHEELS" not in os.environ:
        here = Path(__file__).parent
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="`nox -s ecosystem` builds the plugins and says where"))


@dataclass(frozen=True)
class Place:
    """A virtual environment on top of this one, and a working directory."""

    root: Path
    directory: Path

    def run(self, *words: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command as in a shell in which the environment is active; it must end with `code`.

        Runs are not sent to MLflow, which has tests of its own.
        """
        defaults = {"RLPLUG_DISABLED_PLUGINS": "mlflow", "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        defaults["PIP_NO_BUILD_ISOLATION"] = "0"  # by which pip means: build with what is installed here
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
        """Run pip on the environment; it looks nowhere else, and builds with what is installed here."""
        self.run("python", "-m", "pip", *words)

    def at(self, directory: Path) -> Place:
        """The same environment in another working directory."""
        return replace(self, directory=directory)

    def file(self, module: str) -> Path:
        """Where the source of an installed module is, found without importing it."""
        package, _, name = module.partition(".")
        code = f"from rlplug_core.plugins.index import package_root; print(package_root('{package}'))"
        return Path(self.run("python", "-c", code).stdout.strip()) / f"{name}.py"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A fresh environment and an empty working directory; nothing of the user's settings reaches the tests.

    The command `rlplug` forks from a process of the environment that has imported what it needs.
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
