"""An environment into which plugins are installed: everything that is installed here, and what a test adds by pip."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

#: Seconds that one command may take, on a busy machine.
PATIENCE = 300
#: The command of an environment, wherever that is.
SCRIPT = '#!/bin/sh\nexec "$(dirname "$0")/python" -m rlplug_cli "$@"\n'
#: Variables that would lead a command to plugins, packages or stores that are not the environment's own.
FOREIGN = ("MLFLOW_TRACKING_URI", "PYTHONPATH", "RLPLUG_PLUGINS", "RLPLUG_DISABLED_PLUGINS", "RLPLUG_TELEGRAPH")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "RLPLUG_EXAMPLES" not in os.environ:
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
    """A fresh environment and an empty working directory; nothing of the user's settings reaches the tests."""
    root = tmp_path_factory.mktemp("environment")
    venv.create(root, with_pip=False, symlinks=True)
    (root / "bin" / "rlplug").write_text(SCRIPT, encoding="utf-8")
    (root / "bin" / "rlplug").chmod(0o755)
    (site,) = root.glob("lib/python*/site-packages")
    # addsitedir, and not a plain path: editable installations below are themselves lines in such files.
    below = sysconfig.get_path("purelib")
    (site / "below.pth").write_text(f"import site; site.addsitedir({below!r})\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        for name in FOREIGN:
            patch.delenv(name, raising=False)
        patch.setenv("RLPLUG_CONFIG", str(root / "no-config.toml"))
        patch.setenv("COLUMNS", "200")
        yield Place(root, tmp_path_factory.mktemp("elsewhere"))
