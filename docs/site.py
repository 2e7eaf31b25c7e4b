"""Assemble the documentation site from the repository's Markdown, and check that the navigation has every page.

    python docs/site.py && zensical build --strict       # `nox -s docs` does it; the site is then in site/

Pages stay in the repository, so that they can be read in a clone. This script copies them to build/docs and
rewrites their links. Linked source files, schemas and change logs become pages. `reference/` has one page of
docstrings per room of rlplug-core.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import rlplug_core
from rlplug_core.doors import read_stub

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "docs"
CONFIG = ROOT / "zensical.toml"
#: Pages outside docs/ that are part of the site.
OTHER_PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "bench/LEARNING.md",
    "bench/RESULTS.md",
    "bench/README.md",
    "examples/README.md",
    "rlplug-core/CHANGELOG.md",
    "rlplug-algos/CHANGELOG.md",
    "rlplug-envs/CHANGELOG.md",
    "rlplug-cli/CHANGELOG.md",
    "rlplug/CHANGELOG.md",
    "rlplug-zoo/CHANGELOG.md",
)
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json"}
#: Rooms of rlplug_core in reading order, with the first sentence of their page; the rest is the vocabulary.
ROOMS = {
    "vocabulary": "Basic types: steps, batches, the clock, seeds, protocols, the base class of algorithms.",
    "runs": "Train, resume, load, open a run.",
    "config": "Options, their types, search ranges and schedules.",
    "nets": "Networks, heads and normalization.",
    "acting": "Agents: observations in, actions out.",
    "buffers": "Rollouts and replay.",
    "learning": "Estimators, losses, optimizers, targets.",
    "loop": "Rules of populations.",
    "plugins": "Hooks and wrappers for plugins.",
}


def main() -> int:
    """Write build/docs; return 1 if a page is missing in the navigation, or a page of the navigation does not exist."""
    shutil.rmtree(OUT, ignore_errors=True)
    pages = [*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / name for name in OTHER_PAGES)]
    pages += sorted((ROOT / "bench" / "notes").glob("*.md"))
    places = {page: place(page) for page in pages}
    for page in pages:
        write(places[page], rewrite_links(page, places))
    rooms = {f"reference/{name}.md": text for name, text in reference().items()}
    for name, text in rooms.items():
        write(Path(name), text)
    write(Path(STYLE_FILE), STYLE)
    return compare_navigation({*rooms, *(str(places[page]) for page in pages)})


#: Formulas are blocks of text; a line that is wider than the page continues in the next line.
STYLE_FILE = "site.css"
STYLE = ".language-text pre > code { white-space: pre-wrap; overflow-wrap: anywhere }\n"


def place(path: Path) -> Path:
    """Return the path of a repository file in the site; a source file gets a page with its text."""
    name = path.relative_to(ROOT)
    if name == Path("README.md"):
        return Path("index.md")
    if path.suffix == ".md":
        inner = name.relative_to("docs") if name.parts[0] == "docs" else name
        return inner.with_name("index.md") if inner.name == "README.md" else inner
    if path.suffix in (".svg", ".png", ".webp", ".ipynb"):
        return name.relative_to("docs")
    return Path("source") / (
        name / "index.md" if path.is_dir() else name.with_name(f"{name.name}.md")
    )


def rewrite_links(page: Path, places: dict[Path, Path]) -> str:
    """Return the text of a page with links to paths in the site; also add new link targets to the site."""

    def move_link(found: re.Match[str]) -> str:
        target = (page.parent / found[0]).resolve()
        if "://" in found[0] or not target.exists():
            return found[0]
        if target not in places:
            places[target] = place(target)
            add_target(target, places)
        return os.path.relpath(places[target], place(page).parent)

    parts = re.split(
        r"(^ *```.*?^ *```$|`[^`\n]+`)", page.read_text(encoding="utf-8"), flags=re.M | re.S
    )
    return "".join(
        part if number % 2 else LINK.sub(move_link, part) for number, part in enumerate(parts)
    )


def add_target(target: Path, places: dict[Path, Path]) -> None:
    """Add a link target to the site: a picture as a copy, a file as a page with its text, a folder as a list."""
    there = OUT / places[target]
    if places[target].suffix != ".md":
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(target, there)
    elif target.is_dir():
        files = sorted(path for path in target.rglob("*.py") if path.name != "__init__.py")
        for path in files:
            if path not in places:
                places[path] = place(path)
                add_target(path, places)
        links = [os.path.relpath(places[path], places[target].parent) for path in files]
        lines = [
            f"- [{path.relative_to(target)}]({link})"
            for path, link in zip(files, links, strict=True)
        ]
        write(places[target], "\n".join([f"# {target.relative_to(ROOT)}", "", *lines, ""]))
    else:
        code = target.read_text(encoding="utf-8")
        language = LANGUAGES.get(target.suffix, "text")
        write(places[target], f"# {target.relative_to(ROOT)}\n\n````{language}\n{code}````\n")


def reference() -> dict[str, str]:
    """Return one page per room with the docstrings of the facade's names, by module."""
    modules: dict[str, list[str]] = {}
    places, _ = read_stub(Path(rlplug_core.__file__).with_suffix(".pyi"))
    for name, (module, _) in sorted(places.items(), key=lambda item: item[0].lower()):
        modules.setdefault(module.removeprefix("rlplug_core."), []).append(name)
    pages = {room: [f"# {room.capitalize()}", "", head, ""] for room, head in ROOMS.items()}
    for module, names in sorted(modules.items()):
        room = module.partition(".")[0] if "." in module else "vocabulary"
        pages[room] += [f"## rlplug_core.{module}", ""]
        pages[room] += [
            f"::: rlplug_core.{module}.{name}\n    options:\n      heading_level: 3\n"
            for name in names
        ]
    return {room: "\n".join(lines) for room, lines in pages.items()}


def compare_navigation(pages: set[str]) -> int:
    """Compare pages and navigation, except decisions and benchmark notes, which have their own index."""
    named = set(targets(tomllib.loads(CONFIG.read_text(encoding="utf-8"))["project"]["nav"]))
    listed = {page for page in pages if not page.startswith(("decisions/0", "bench/notes/"))}
    for page in sorted(listed - named):
        sys.stderr.write(f"{CONFIG.name}: no place in the navigation for {page}\n")
    for page in sorted(named - listed):
        sys.stderr.write(f"{CONFIG.name}: the navigation names {page}, which does not exist\n")
    return 1 if listed ^ named else 0


def targets(entries: list[Any]) -> Iterator[str]:
    """Yield the pages of a navigation, at any depth."""
    for entry in entries:
        for value in entry.values() if isinstance(entry, Mapping) else [entry]:
            if isinstance(value, str):
                yield value
            else:
                yield from targets(value)


def write(name: Path, text: str) -> None:
    path = OUT / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
