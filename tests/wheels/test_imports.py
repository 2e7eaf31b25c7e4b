"""Every module of a package imports with only the distributions that the package declares."""

from __future__ import annotations

import json
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from tests.declared import PACKAGES, closure, required

#: Imports all modules of a package; argv: the package, a JSON list of importable names, and one of names of extras.
SCRIPT = """
import importlib, json, pkgutil, sys

package, allowed, extras = sys.argv[1], set(json.loads(sys.argv[2])), set(json.loads(sys.argv[3]))

class Hidden:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in allowed and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"{name} is not declared by {package}", name=name)

sys.meta_path.insert(0, Hidden())
faults = []
folder = importlib.import_module(package).__path__[0]
names = [package, *(found.name for found in pkgutil.walk_packages([folder], f"{package}."))]
for name in names:
    if name.endswith("__main__"):
        continue
    try:
        importlib.import_module(name)
    except Exception as error:
        missing = getattr(error.__cause__ or error, "name", None) or ""
        if missing.partition(".")[0] not in extras:
            faults.append(f"{name}: {error!r}")
print(json.dumps({"modules": len(names), "faults": faults}))
"""


def extra_requirements(distribution: str) -> set[str]:
    """Return the names of the requirements of a distribution's extras."""
    extras = metadata.metadata(distribution).get_all("Provides-Extra") or []
    return {
        requirement.name.lower().replace("_", "-") for extra in extras for requirement in required(distribution, extra)
    }


def top_levels(distributions: set[str]) -> set[str]:
    """Return the import names of distributions."""
    names = {name.replace("-", "_") for name in distributions}
    return names | {
        module
        for module, owners in metadata.packages_distributions().items()
        if {owner.lower().replace("_", "-") for owner in owners} & distributions
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_imports_with_declared_distributions(package: str, python: str, outside: Path) -> None:
    allowed = top_levels(closure(package))
    extras = top_levels(extra_requirements(package))
    words = [package.replace("-", "_"), json.dumps(sorted(allowed)), json.dumps(sorted(extras - allowed))]
    done = subprocess.run([python, "-c", SCRIPT, *words], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["modules"] > 5
    assert not result["faults"], result["faults"]
