"""Raise the version of one package and date its change log: `nox -s release` runs it.

python .ci/release.py rlplug-algos 0.1.1              # show the changes
python .ci/release.py rlplug-algos 0.1.1 --write      # make the changes
python .ci/release.py --tag rlplug-algos-v0.1.1       # fails if the tag differs from the version here
"""

from __future__ import annotations

import argparse
import datetime
import difflib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("rlplug", "rlplug-core", "rlplug-algos", "rlplug-envs", "rlplug-cli", "rlplug-zoo")
#: The text of a version without notes under *Unreleased*.
NOTHING = "- No change but the version."
#: The address in `[project.urls]` until the repository has a public one; `.example` is a reserved domain.
PLACEHOLDER = "rlplug.example"


def main() -> int:
    """Show or make the changes; the exit code is 2 if the version cannot be released."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", nargs="?", default="", help="the package, such as rlplug-algos")
    parser.add_argument("version", nargs="?", default="", help="its new version, such as 0.1.1")
    parser.add_argument(
        "--write", action="store_true", help="change the files; without it only show the changes"
    )
    parser.add_argument(
        "--tag",
        default="",
        help="change nothing; fail unless the tag matches the version in the sources",
    )
    options = parser.parse_args()
    try:
        if options.tag:
            return check_tag(ROOT, options.tag)
        today = datetime.date.today().isoformat()
        texts = changes(ROOT, options.package, options.version, today)
    except ValueError as error:
        sys.stderr.write(f"release: {error}\n")
        return 2
    for path, text in texts.items():
        sys.stdout.writelines(difference(path, text))
        if options.write:
            path.write_text(text, encoding="utf-8")
    return 0


def changes(root: Path, package: str, version: str, day: str) -> dict[Path, str]:
    """Return the new text of every file that contains the version of a package.

    Raises:
        ValueError: the package does not exist, or `version` is not three numbers, or not above the current one.
    """
    current = version_of(root, package)
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ValueError(f"'{version}' is not a version; write three numbers, such as 0.2.0")
    if numbers(version) <= numbers(current):
        raise ValueError(f"{version} is not above {current}, the current version of {package}")
    log = root / folder_of(root, package) / "CHANGELOG.md"
    texts = {
        path: with_version(path.read_text(encoding="utf-8"), version)
        for path in declarations(root, package)
    }
    texts[log] = with_release(log.read_text(encoding="utf-8"), version, day)
    return texts | (citation(root / "CITATION.cff", version, day) if package == "rlplug" else {})


def check_tag(root: Path, tag: str) -> int:
    """Return 0 if `tag` is a package, `-v` and its current version, and its change log has that version.

    Raises:
        ValueError: the tag or the change log differs, or the addresses of the package are placeholders.
    """
    package, _, version = tag.rpartition("-v")
    current = version_of(root, package)
    if version != current:
        raise ValueError(f"the tag is {tag}, and {package} has version {current}")
    folder = root / folder_of(root, package)
    if f"\n## {version} (" not in (folder / "CHANGELOG.md").read_text(encoding="utf-8"):
        raise ValueError(f"the change log of {package} has no {version}; `nox -s release` dates it")
    if PLACEHOLDER in (folder / "pyproject.toml").read_text(encoding="utf-8"):
        raise ValueError(
            f"[project.urls] of {package} names {PLACEHOLDER}; write the address of the repository"
        )
    return 0


def folder_of(root: Path, package: str) -> str:
    """Return the folder of a package.

    Raises:
        ValueError: the package does not exist.
    """
    if package in PACKAGES:
        return package
    if (root / "examples" / package / "pyproject.toml").is_file():
        return f"examples/{package}"
    raise ValueError(f"package '{package}' does not exist; use {', '.join(PACKAGES)} or an example")


def declarations(root: Path, package: str) -> Iterator[Path]:
    """Yield the files that declare the version of a package: metadata, and sometimes `__init__.py`."""
    folder = root / folder_of(root, package)
    yield folder / "pyproject.toml"
    top = folder / "src" / package.replace("-", "_") / "__init__.py"
    if top.is_file() and "__version__ = " in top.read_text(encoding="utf-8"):
        yield top


def version_of(root: Path, package: str) -> str:
    """Return the current version of a package."""
    text = (root / folder_of(root, package) / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'^version = "(.+)"$', text, re.M)
    assert found
    return found[1]


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def with_version(text: str, version: str) -> str:
    """Return the text of a file with the new version."""
    return re.sub(r'^(version|__version__) = ".+"$', rf'\1 = "{version}"', text, flags=re.M)


def with_release(text: str, version: str, day: str) -> str:
    """Return a change log with the unreleased lines under `version`, after an empty *Unreleased*."""
    before, _, rest = text.partition("## Unreleased\n")
    lines, _, older = rest.partition("\n## ")
    older = f"\n## {older}" if older else ""
    return f"{before}## Unreleased\n\n## {version} ({day})\n\n{lines.strip() or NOTHING}\n{older}"


def citation(path: Path, version: str, day: str) -> dict[Path, str]:
    """Return the new text of the citation."""
    text = re.sub(r"^date-released: .+\n", "", path.read_text(encoding="utf-8"), flags=re.M)
    return {
        path: re.sub(
            r"^version: .+$", f"version: {version}\ndate-released: {day}", text, flags=re.M
        )
    }


def difference(path: Path, text: str) -> list[str]:
    """Return the changed lines of a file."""
    old = path.read_text(encoding="utf-8").splitlines(keepends=True)
    name = str(path.relative_to(ROOT))
    return list(difflib.unified_diff(old, text.splitlines(keepends=True), name, name, n=0))


if __name__ == "__main__":
    sys.exit(main())
