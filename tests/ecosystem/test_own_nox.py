"""The plugins of `rlplug new` pass their own nox, which finds the wheels of a checkout by `PIP_FIND_LINKS`.

`nox -s scaffold` runs this: the environments get all requirements from a package index.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rlplug_cli import scaffold

#: All kinds and forms.
KINDS = [(kind, form) for kind, about in scaffold.KINDS.items() for form in about.forms or ("",)]
WHEELS = "RLPLUG_WHEELS"
#: The variable with the Python that has nox.
SCAFFOLD = "RLPLUG_SCAFFOLD"
CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
#: Seconds that the checks of one plugin may take, installations included.
PATIENCE = 3600

pytestmark = pytest.mark.skipif(SCAFFOLD not in os.environ, reason="`nox -s scaffold` runs it")


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environments of nox, which all plugins share: most of their requirements are the same."""
    return tmp_path_factory.mktemp("nox")


@pytest.mark.parametrize(("kind", "form"), KINDS)
def test_new_plugin_passes_its_own_nox(kind: str, form: str, tmp_path: Path, environments: Path) -> None:
    root, _ = scaffold.generate(kind, f"own-{form or kind}", tmp_path, form)
    links = f"{os.environ[WHEELS]} {os.environ.get('PIP_FIND_LINKS', '')}"  # keep the links that pip already has
    settings = {"PIP_FIND_LINKS": links.strip(), "PIP_CONSTRAINT": str(CONSTRAINTS)}
    settings["PIP_NO_COMPILE"] = "0"  # pip then does not compile all modules of torch
    # `--reuse-venv=yes` installs the plugin again into environments with its requirements.
    words = (
        os.environ[SCAFFOLD],
        "-m",
        "nox",
        "--reuse-venv=yes",
        "--error-on-missing-interpreters",
        "--envdir",
        str(environments),
    )
    done = subprocess.run(
        words, check=False, capture_output=True, text=True, timeout=PATIENCE, cwd=root, env={**os.environ, **settings}
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    for session in ("tests", "types", "lint"):
        assert f"* {session}: success" in done.stderr
