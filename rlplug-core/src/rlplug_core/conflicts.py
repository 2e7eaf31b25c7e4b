"""Find installed packages with a version that another package does not accept, as pip leaves them after a pin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import Distribution

    from packaging.requirements import Requirement

#: Distributions of rlplug itself; every failed import checks their requirements.
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
    return next((f"; {sentence}" for name in names for sentence in conflicts(name)), "")


def conflicts(name: str) -> Iterator[str]:
    """Yield a sentence for each package with a version that `name`, or one of its requirements, does not accept."""
    waiting = [name]
    visited = {name}
    while waiting:
        dependent = _distribution(waiting.pop())
        if dependent is None:
            continue
        for requirement in _requirements(dependent):
            installed = _distribution(requirement.name)
            if installed is None or (
                requirement.marker and not requirement.marker.evaluate({"extra": ""})
            ):
                continue
            if not requirement.specifier.contains(installed.version, prereleases=True):
                yield _sentence(
                    dependent.name,
                    requirement.name,
                    str(requirement.specifier),
                    installed.version,
                )
            if requirement.name not in visited:
                visited.add(requirement.name)
                waiting.append(requirement.name)


def _requirements(package: Distribution) -> Iterator[Requirement]:
    """Yield the requirements of a package, without those that the module `packaging` cannot read."""
    from packaging.requirements import InvalidRequirement, Requirement  # 15 ms, and rarely needed

    for line in package.requires or ():
        try:
            yield Requirement(line)
        except InvalidRequirement:
            continue


def _sentence(
    dependent: str,
    name: str,
    requirement: str,
    version: str,
) -> str:
    """Return a sentence with the required version, the installed one, the packages that pin it, and the remedy."""
    others = [package for package in _packages_that_pin(name, version) if package != dependent]
    cause = f", which {' and '.join(others)} asked for" if others else ""
    return (
        f"{dependent} needs {name}{requirement}, and {version} is installed{cause}: "
        f"python -m pip install '{name}{requirement}'"
    )


def _packages_that_pin(name: str, version: str) -> Iterator[str]:
    """Yield installed distributions that accept this version of a package and refuse newer ones."""
    from importlib.metadata import distributions

    for package in distributions():
        for requirement in _requirements(package):
            is_bounded = any(
                specifier.operator in ("==", "<", "<=", "~=", "===")
                for specifier in requirement.specifier
            )
            if (
                requirement.name == name
                and is_bounded
                and requirement.specifier.contains(version, prereleases=True)
            ):
                yield package.name


def _distribution(name: str) -> Distribution | None:
    """Return an installed distribution, or None."""
    # Imported here: it takes 20 ms and 46 modules, and a command that only prints does not need it.
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
