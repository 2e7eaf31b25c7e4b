"""What `rlplug new` makes passes its own nox, which finds the wheels of a checkout by `PIP_FIND_LINKS`.

`nox -s scaffold` runs this: each plugin gets environments of its own, with all that it needs from a package index.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rlplug_cli import scaffold

#: The kinds, and the form of an algorithm that is not the default.
MADE = [(kind, form) for kind, about in scaffold.KINDS.items() for form in about.forms or ("",)]
WHEELS = "RLPLUG_WHEELS"
#: The Python that has nox.
SCAFFOLD = "RLPLUG_SCAFFOLD"
CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
#: Seconds that the checks of one plugin may take, installations included.
PATIENCE = 3600

pytestmark = pytest.mark.skipif(SCAFFOLD not in os.environ, reason="`nox -s scaffold` has the time for it")


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environments of nox, which all plugins share one after the other: most of what they install is the same."""
    return tmp_path_factory.mktemp("nox")


@pytest.mark.parametrize(("kind", "form"), MADE)
def test_a_new_plugin_passes_its_own_nox(kind: str, form: str, tmp_path: Path, environments: Path) -> None:
    root, _ = scaffold.generate(kind, f"own-{form or kind}", tmp_path, form)
    links = f"{os.environ[WHEELS]} {os.environ.get('PIP_FIND_LINKS', '')}"  # where pip looked before, it still looks
    told = {"PIP_FIND_LINKS": links.strip(), "PIP_CONSTRAINT": str(CONSTRAINTS)}
    told["PIP_NO_COMPILE"] = "0"  # by which pip means: do not compile all modules of torch
    # `--reuse-venv=yes` installs the plugin anew, into environments that have what it needs.
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
        words, check=False, capture_output=True, text=True, timeout=PATIENCE, cwd=root, env={**os.environ, **told}
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    for session in ("tests", "types", "lint"):
        assert f"* {session}: success" in done.stderr
