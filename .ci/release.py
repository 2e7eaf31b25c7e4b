"""Raise the version of one package and date its change log: `nox -s release` runs it.

python .ci/release.py rlplug-algos 0.1.1              # what it would change
python .ci/release.py rlplug-algos 0.1.1 --write      # change it
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
#: What follows a title of *Unreleased* where nobody noted a change.
NOTHING = "- No change but the version."
#: The address in `[project.urls]` until the repository has a public one; names that end so belong to nobody.
PLACEHOLDER = "rlplug.example"


def main() -> int:
    """Show or make the changes; the exit code is 2 where the version is none to release."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", nargs="?", default="", help="the package, such as rlplug-algos")
    parser.add_argument("version", nargs="?", default="", help="its new version, such as 0.1.1")
    parser.add_argument(
        "--write", action="store_true", help="change the files; without it only show the changes"
    )
    parser.add_argument(
        "--tag", default="", help="change nothing; fail unless the tag names a version that is here"
    )
    given = parser.parse_args()
    try:
        if given.tag:
            return check_tag(ROOT, given.tag)
        today = datetime.date.today().isoformat()
        texts = changed(ROOT, given.package, given.version, today)
    except ValueError as error:
        sys.stderr.write(f"release: {error}\n")
        return 2
    for path, text in texts.items():
        sys.stdout.writelines(difference(path, text))
        if given.write:
            path.write_text(text, encoding="utf-8")
    return 0


def changed(root: Path, package: str, version: str, day: str) -> dict[Path, str]:
    """Return the new text of every file that names the version of a package.

    Raises:
        ValueError: there is no such package, or `version` is not three numbers, or not above the present one.
    """
    present = version_of(root, package)
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ValueError(f"'{version}' is no version; write three numbers, such as 0.2.0")
    if numbers(version) <= numbers(present):
        raise ValueError(f"{version} is not above {present}, the present version of {package}")
    log = root / folder_of(root, package) / "CHANGELOG.md"
    texts = {
        path: versioned(path.read_text(encoding="utf-8"), version)
        for path in declarations(root, package)
    }
    texts[log] = released(log.read_text(encoding="utf-8"), version, day)
    return texts | (cited(root / "CITATION.cff", version, day) if package == "rlplug" else {})


def check_tag(root: Path, tag: str) -> int:
    """Return 0 if `tag` is a package, `-v` and its present version, and its change log has that version.

    Raises:
        ValueError: it is not, or the addresses of the package are placeholders.
    """
    package, _, version = tag.rpartition("-v")
    present = version_of(root, package)
    if version != present:
        raise ValueError(f"the tag is {tag}, and {package} has version {present}")
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
        ValueError: there is no such package.
    """
    if package in PACKAGES:
        return package
    if (root / "examples" / package / "pyproject.toml").is_file():
        return f"examples/{package}"
    raise ValueError(f"there is no package '{package}'; take {', '.join(PACKAGES)} or an example")


def declarations(root: Path, package: str) -> Iterator[Path]:
    """The files of a package that declare its version: metadata, and the `__init__` of two of them."""
    folder = root / folder_of(root, package)
    yield folder / "pyproject.toml"
    top = folder / "src" / package.replace("-", "_") / "__init__.py"
    if top.is_file() and "__version__ = " in top.read_text(encoding="utf-8"):
        yield top


def version_of(root: Path, package: str) -> str:
    """Return the version that a package has now."""
    text = (root / folder_of(root, package) / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'^version = "(.+)"$', text, re.M)
    assert found
    return found[1]


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def versioned(text: str, version: str) -> str:
    """A file with `version` as its own."""
    return re.sub(r'^(version|__version__) = ".+"$', rf'\1 = "{version}"', text, flags=re.M)


def released(text: str, version: str, day: str) -> str:
    """A change log whose unreleased lines are those of `version`, under an empty *Unreleased*."""
    before, _, rest = text.partition("## Unreleased\n")
    lines, _, older = rest.partition("\n## ")
    older = f"\n## {older}" if older else ""
    return f"{before}## Unreleased\n\n## {version} ({day})\n\n{lines.strip() or NOTHING}\n{older}"


def cited(path: Path, version: str, day: str) -> dict[Path, str]:
    """The citation of that version."""
    text = re.sub(r"^date-released: .+\n", "", path.read_text(encoding="utf-8"), flags=re.M)
    return {
        path: re.sub(
            r"^version: .+$", f"version: {version}\ndate-released: {day}", text, flags=re.M
        )
    }


def difference(path: Path, text: str) -> list[str]:
    """The changed lines of a file."""
    old = path.read_text(encoding="utf-8").splitlines(keepends=True)
    name = str(path.relative_to(ROOT))
    return list(difflib.unified_diff(old, text.splitlines(keepends=True), name, name, n=0))


if __name__ == "__main__":
    sys.exit(main())
