"""Find installed packages with a version that another package does not accept, as pip leaves them after a pin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import Distribution

#: Distributions of rlplug itself; their requirements count for every failed import.
OWN = ("rlplug-core", "rlplug-envs", "rlplug-algos", "rlplug-cli")


def explain_import(error: BaseException, module: str = "") -> str:
    """Return why a failed import may have failed, with what to type, as the end of a sentence; "" if nothing is known.

    Args:
        error: an `ImportError`, or an `AttributeError` of a package that has changed.
        module: the module that was to be imported.
    """
    if not isinstance(error, ImportError | AttributeError):
        return ""
    names = [*(name for name in [_owner(module)] if name), *OWN]
    return next((f"; {found}" for name in names for found in conflicts(name)), "")


def conflicts(name: str) -> Iterator[str]:
    """Yield a sentence for each package with a version that `name`, or one of its requirements, does not accept."""
    from packaging.requirements import InvalidRequirement, Requirement  # 15 ms, and rarely needed

    waiting, visited = [name], {name}
    while waiting:
        needing = _distribution(waiting.pop())
        for line in (needing.requires if needing else None) or ():
            try:
                needed = Requirement(line)
            except InvalidRequirement:
                continue
            found = _distribution(needed.name)
            if found is None or (needed.marker and not needed.marker.evaluate({"extra": ""})):
                continue
            if not needed.specifier.contains(found.version, prereleases=True):
                yield _sentence(
                    needing.name if needing else name,
                    needed.name,
                    str(needed.specifier),
                    found.version,
                )
            if needed.name not in visited:
                visited.add(needed.name)
                waiting.append(needed.name)


def _sentence(needing: str, name: str, wanted: str, version: str) -> str:
    """Return the required version, the installed one, the other package that asks for it, and the remedy."""
    others = [one for one in _packages_that_pin(name, version) if one != needing]
    pulled = f", which {' and '.join(others)} asked for" if others else ""
    return (
        f"{needing} needs {name}{wanted}, and {version} is installed{pulled}: "
        f"python -m pip install '{name}{wanted}'"
    )


def _packages_that_pin(name: str, version: str) -> Iterator[str]:
    """Yield installed distributions that accept this version of a package and refuse newer ones."""
    from importlib.metadata import distributions

    from packaging.requirements import InvalidRequirement, Requirement

    for one in distributions():
        for line in one.requires or ():
            try:
                needed = Requirement(line)
            except InvalidRequirement:
                continue
            bounds = any(
                each.operator in ("==", "<", "<=", "~=", "===") for each in needed.specifier
            )
            if (
                needed.name == name
                and bounds
                and needed.specifier.contains(version, prereleases=True)
            ):
                yield one.name


def _distribution(name: str) -> Distribution | None:
    # 20 ms and 46 modules, which a command that only prints does not wait for.
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        return distribution(name)
    except (PackageNotFoundError, ValueError):
        return None


def _owner(module: str) -> str:
    """Return the distribution of a module's package, or ""."""
    from importlib.metadata import packages_distributions

    top = module.partition(".")[0]
    return next(iter(packages_distributions().get(top, [])), "") if top else ""
