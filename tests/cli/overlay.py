"""An environment on top of the one that runs the tests: it sees all of it, and keeps what is installed in it apart."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

#: Seconds that one command may take, on a busy machine.
PATIENCE = 300
#: The command of an environment, wherever that is.
SCRIPT = '#!/bin/sh\nexec "$(dirname "$0")/python" -m rlplug_cli "$@"\n'


@dataclass(frozen=True)
class Overlay:
    """`root` is the environment, `place` the working directory of its commands."""

    root: Path
    place: Path

    @classmethod
    def make(cls, root: Path) -> Overlay:
        venv.create(root, symlinks=True)
        (site,) = root.glob("lib/python*/site-packages")
        below = [path for path in sys.path if path.endswith("site-packages")]
        # addsitedir, and not plain paths: editable installations below are themselves lines in such files.
        lines = [f"import site; site.addsitedir({path!r})" for path in below]
        (site / "below.pth").write_text("\n".join(lines), encoding="utf-8")
        (root / "bin" / "rlplug").write_text(SCRIPT, encoding="utf-8")
        (root / "bin" / "rlplug").chmod(0o755)
        (root / "place").mkdir()
        return cls(root, root / "place")

    def run(self, *words: str, code: int = 0) -> str:
        """What a command prints, stderr included; it must end with `code`."""
        done = subprocess.run(
            words,
            cwd=self.place,
            env=self.environment(),
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
        )
        assert done.returncode == code, f"{' '.join(words)}: {done.returncode}\n{done.stdout}"
        return done.stdout

    def environment(self) -> dict[str, str]:
        """The variables of a shell in which it is active; pip has no network, and no run goes to MLflow."""
        return {
            **os.environ,
            "PATH": f"{self.root / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PYTHONWARNINGS": "",
            "RLPLUG_DISABLED_PLUGINS": "mlflow",
        }

    def install(self, path: str) -> None:
        """Install a distribution from its directory, which is built with what is here."""
        self.run("python", "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", path)
