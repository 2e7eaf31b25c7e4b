"""Raise the version of the four packages together and date their change logs: `nox -s release` runs it.

python .ci/release.py 0.2.0              # what it would change
python .ci/release.py 0.2.0 --write      # change it
python .ci/release.py v0.2.0 --tag       # whether that tag names what is here
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
PACKAGES = ("rlplug-core", "rlplug-algos", "rlplug-envs", "rlplug-cli")
#: What follows a title of *Unreleased* where nobody noted a change.
NOTHING = "- No change but the version."


def main() -> int:
    """Show or make the changes; the exit code is 2 where the version is none to release."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("version", help="the version to release, such as 0.2.0")
    parser.add_argument(
        "--write", action="store_true", help="change the files; without it only show the changes"
    )
    parser.add_argument(
        "--tag", action="store_true", help="change nothing; fail unless the tag names this version"
    )
    given = parser.parse_args()
    try:
        if given.tag:
            return check_tag(ROOT, given.version)
        texts = changed(ROOT, given.version, datetime.date.today().isoformat())
    except ValueError as error:
        sys.stderr.write(f"release: {error}\n")
        return 2
    for path, text in texts.items():
        sys.stdout.writelines(difference(path, text))
        if given.write:
            path.write_text(text, encoding="utf-8")
    return 0


def changed(root: Path, version: str, day: str) -> dict[Path, str]:
    """Return the new text of every file that names the version.

    Raises:
        ValueError: `version` is not three numbers, or not above the present one.
    """
    present = version_of(root)
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ValueError(f"'{version}' is no version; write three numbers, such as 0.2.0")
    if numbers(version) <= numbers(present):
        raise ValueError(f"{version} is not above {present}, the present version")
    logs = [root / package / "CHANGELOG.md" for package in PACKAGES]
    return {
        **{
            path: versioned(path.read_text(encoding="utf-8"), version)
            for path in declarations(root)
        },
        **{path: bounded(path.read_text(encoding="utf-8"), version) for path in quotations(root)},
        **{path: released(path.read_text(encoding="utf-8"), version, day) for path in logs},
        **cited(root / "CITATION.cff", version, day),
    }


def check_tag(root: Path, tag: str) -> int:
    """Return 0 where `tag` is `v` and the present version, and every change log has that version.

    Raises:
        ValueError: it is not, or one has not.
    """
    version = version_of(root)
    if tag != f"v{version}":
        raise ValueError(f"the tag is {tag}, and the packages have version {version}")
    for package in PACKAGES:
        if f"\n## {version} (" not in (root / package / "CHANGELOG.md").read_text(encoding="utf-8"):
            raise ValueError(
                f"the change log of {package} has no {version}; `nox -s release` dates it"
            )
    return 0


def declarations(root: Path) -> Iterator[Path]:
    """The files of the packages that declare the version: metadata, and the `__init__` of two of them."""
    for package in PACKAGES:
        yield root / package / "pyproject.toml"
        top = root / package / "src" / package.replace("-", "_") / "__init__.py"
        if "__version__ = " in top.read_text(encoding="utf-8"):
            yield top


def quotations(root: Path) -> Iterator[Path]:
    """The files that bound rlplug-core as a plugin does: the examples, and pages that show one."""
    yield from sorted(root.glob("examples/*/pyproject.toml"))
    yield from (root / name for name in ("README.md", "docs/plugins/contract.md"))


def version_of(root: Path) -> str:
    """Return the version that rlplug-core has now."""
    found = re.search(
        r'^version = "(.+)"$',
        (root / PACKAGES[0] / "pyproject.toml").read_text(encoding="utf-8"),
        re.M,
    )
    assert found
    return found[1]


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def bounds(version: str) -> str:
    """The versions of a sibling that a package goes with: those of the same minor version."""
    major, minor, _ = numbers(version)
    return f">={major}.{minor},<{major}.{minor + 1}"


def versioned(text: str, version: str) -> str:
    """A file with `version` as its own, and with siblings bounded to it."""
    return bounded(
        re.sub(r'^(version|__version__) = ".+"$', rf'\1 = "{version}"', text, flags=re.M), version
    )


def bounded(text: str, version: str) -> str:
    """A text whose bounds on the packages are those of `version`."""
    names = "|".join(PACKAGES)
    return re.sub(
        rf'"((?:{names})(?:\[\w+\])?)>=\d+\.\d+,<\d+\.\d+"', rf'"\g<1>{bounds(version)}"', text
    )


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
