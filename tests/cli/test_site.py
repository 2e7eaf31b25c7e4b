"""The documentation site has all pages in its navigation, and its relative links exist."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The module `docs/site.py`, after it has written the pages into a temporary folder."""
    spec = importlib.util.spec_from_file_location("site_script", ROOT / "docs" / "site.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.OUT = tmp_path_factory.mktemp("site")
    assert module.main() == 0
    return module


def test_page_missing_in_the_navigation_is_named(site: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    places = set(site.targets(site.tomllib.loads(site.CONFIG.read_text(encoding="utf-8"))["project"]["nav"]))
    assert site.compare_navigation(places) == 0
    assert site.compare_navigation({*places, "new.md"} - {"index.md"}) == 1
    errors = capsys.readouterr().err
    assert "no place in the navigation for new.md" in errors
    assert "names index.md, which does not exist" in errors


def test_relative_links_exist(site: ModuleType) -> None:
    pages = list(site.OUT.rglob("*.md"))
    assert len(pages) > 100
    for page in pages:
        text = re.sub(r"^ *(````?).*?^ *\1$|`[^`\n]+`", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)\s#]+)", text):
            assert "://" in target or (page.parent / target).exists(), f"{page.relative_to(site.OUT)}: {target}"


def test_reference_has_all_names_of_the_facade(site: ModuleType) -> None:
    import rlplug_core

    text = "".join(page.read_text(encoding="utf-8") for page in (site.OUT / "reference").iterdir())
    named = set(re.findall(r"^::: rlplug_core\.[\w.]+\.(\w+)$", text, re.M))
    assert named == set(rlplug_core.__all__)


def test_site_shows_linked_source_files(site: ModuleType) -> None:
    shown = (site.OUT / "source/rlplug-algos/src/rlplug_algos/policy_gradient/a2c.py.md").read_text(encoding="utf-8")
    assert "class A2C(" in shown


def test_gallery_shows_all_films_and_curves() -> None:
    pictures = ROOT / "docs" / "pictures"
    gallery = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\]\(pictures/((?:film|curves)-[\w.-]+)\)", gallery))
    assert shown == {path.name for kind in ("film-*", "curves-*.svg") for path in pictures.glob(kind)}
    assert all(path.stat().st_size < 400_000 for path in pictures.glob("film-*"))


def test_text_blocks_wrap(site: ModuleType) -> None:
    """The site loads the style that wraps them; otherwise long formulas are cut."""
    options = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    assert options["project"]["extra_css"] == [site.STYLE_FILE]
    style = (site.OUT / site.STYLE_FILE).read_text(encoding="utf-8")
    assert ".language-text pre > code { white-space: pre-wrap" in style


def test_titles_have_common_search_words(site: ModuleType) -> None:
    """The search ranks titles first."""
    words = {"tune": "hyperparameter", "gpu": "gpu", "networks": "custom network", "install": "install"}
    pages = {name: (site.OUT / f"{name}.md").read_text(encoding="utf-8").splitlines()[0].lower() for name in words}
    assert not [name for name, word in words.items() if word not in pages[name]], pages
