"""Every module of a package imports with only the distributions that the package declares."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PACKAGES = ("rlplug-core", "rlplug-algos", "rlplug-envs", "rlplug-cli")

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


def requirements(distribution: str, extras: bool) -> set[str]:
    """Return the names that a distribution requires, in its extras or without them."""
    found = set()
    for requirement in map(Requirement, metadata.requires(distribution) or []):
        of_extra = requirement.marker is not None and "extra" in str(requirement.marker)
        if of_extra == extras and (extras or not requirement.marker or requirement.marker.evaluate()):
            found.add(requirement.name.lower().replace("_", "-"))
    return found


def closure(distribution: str) -> set[str]:
    """Return a distribution and everything that installing it brings."""
    found, waiting = set(), [distribution]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += requirements(name, extras=False)
    return found


def top_levels(distributions: set[str]) -> set[str]:
    """Return the names by which the modules of distributions are imported."""
    own = {name.replace("-", "_") for name in distributions}
    return own | {
        module
        for module, owners in metadata.packages_distributions().items()
        if {owner.lower().replace("_", "-") for owner in owners} & distributions
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_imports_with_declared_distributions(package: str, elsewhere: Path) -> None:
    allowed = top_levels(closure(package))
    extras = top_levels(requirements(package, extras=True))
    words = [package.replace("-", "_"), json.dumps(sorted(allowed)), json.dumps(sorted(extras - allowed))]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *words], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["modules"] > 5
    assert not result["faults"], result["faults"]
