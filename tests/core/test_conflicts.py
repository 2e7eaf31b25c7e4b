"""The message for a package that another package's pin downgraded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rlplug_core.config.import_string import load_target
from rlplug_core.conflicts import conflicts, explain_import
from rlplug_core.doors import open_door
from rlplug_core.errors import PluginError

WANTED = "needs-it needs olddep>=2, and 1.0 is installed, which puller asked for: python -m pip install 'olddep>=2'"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install four distributions; one needs a newer version than another one pins."""
    requirements = {
        "olddep-1.0": (),
        "puller-3.0": ("olddep<2",),
        "between-1.0": (),
        "needs_it-1.0": ("between", "olddep>=2", "absent>=9; extra == 'more'"),
        "needs_it_too-1.0": ("needs-it",),
    }
    for stem, lines in requirements.items():
        name, _, version = stem.rpartition("-")
        about = tmp_path / f"{stem}.dist-info"
        about.mkdir()
        needs = "".join(f"Requires-Dist: {line}\n" for line in lines)
        name = name.replace("_", "-")
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
    (tmp_path / "needs_it-1.0.dist-info" / "top_level.txt").write_text("needs_it\n")
    (tmp_path / "needs_it.py").write_text("raise ImportError(\"cannot import name 'new' from 'olddep'\")\n")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_downgraded_package_is_named(site: Path) -> None:
    assert list(conflicts("needs-it")) == [WANTED]
    assert list(conflicts("needs-it-too")) == [WANTED]
    assert list(conflicts("puller")) == []
    assert list(conflicts("rlplug-core")) == []


def test_failed_import_names_the_conflict(site: Path) -> None:
    with pytest.raises(PluginError, match=r"cannot import name 'new' from 'olddep'; needs-it needs olddep>=2, and 1.0"):
        load_target("needs_it:Env", "environment")


def test_other_errors_name_no_conflict(site: Path) -> None:
    assert explain_import(ValueError("no"), "needs_it") == ""
    assert explain_import(ImportError("no"), "json") == ""


def test_entry_point_that_fails_names_the_requirement(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / "__init__.py").write_text("")
    (tmp_path / "house" / "__init__.pyi").write_text("from needs_it import Env as Env\n")
    monkeypatch.setattr("rlplug_core.conflicts.OWN", ("needs-it",))
    import house  # type: ignore[import-not-found]  # noqa: F401

    load, _, _ = open_door("house")
    with pytest.raises(ImportError, match=r"needs-it needs olddep>=2"):
        load("Env")
    sys.modules.pop("house")
