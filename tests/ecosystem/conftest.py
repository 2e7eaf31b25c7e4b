"""An environment into which plugins are installed: everything that is installed here, and what a test adds by pip."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "RLPLUG_EXAMPLES" not in os.environ:
        here = Path(__file__).parent
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="`nox -s ecosystem` builds the plugins and says where"))


@dataclass(frozen=True)
class Place:
    """A virtual environment on top of this one, and a working directory."""

    python: Path
    directory: Path

    def run(self, *words: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run this environment's Python; it must end with `code`."""
        done = subprocess.run(
            [str(self.python), *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
            cwd=self.directory,
            env={**os.environ, **environment},
        )
        assert done.returncode == code, f"{' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def rlplug(self, *words: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the command; runs are not sent to MLflow, which has tests of its own."""
        environment.setdefault("RLPLUG_DISABLED_PLUGINS", "mlflow")
        return self.run("-m", "rlplug_cli", *words, code=code, **environment)

    def pip(self, *words: str) -> None:
        """Run the pip that is installed here on this environment; it looks nowhere else."""
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "--disable-pip-version-check", *words]
        done = subprocess.run(pip, check=False, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr

    def file(self, module: str) -> Path:
        """Where the source of an installed module is, found without importing it."""
        package, _, name = module.partition(".")
        code = f"from rlplug_core.plugins.index import package_root; print(package_root('{package}'))"
        return Path(self.run("-c", code).stdout.strip()) / f"{name}.py"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A fresh environment and an empty working directory; nothing of the user's settings reaches the tests."""
    root = tmp_path_factory.mktemp("environment")
    venv.create(root, with_pip=False, symlinks=True)
    python = root / "bin" / "python"
    (site,) = root.glob("lib/python*/site-packages")
    here = sysconfig.get_path("purelib")
    (site / "beneath.pth").write_text(f"import site; site.addsitedir({here!r})\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MLFLOW_TRACKING_URI", "RLPLUG_PLUGINS", "RLPLUG_DISABLED_PLUGINS", "RLPLUG_TELEGRAPH"):
            patch.delenv(name, raising=False)
        patch.setenv("RLPLUG_CONFIG", str(root / "no-config.toml"))
        patch.setenv("COLUMNS", "200")
        yield Place(python, tmp_path_factory.mktemp("elsewhere"))
