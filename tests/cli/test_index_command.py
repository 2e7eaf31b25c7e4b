"""`rlplug index` writes the index of a package, and its check reports missing and outdated files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlplug_core import plugins
from rlplug_core.testing.distributions import write_distribution

ALGORITHM = '''
"""Does nothing."""
from dataclasses import dataclass
from rlplug_core.config.options import Config

@dataclass(frozen=True)
class Options(Config):
    depth: int = 3  # how deep

class Algo:
    Config = Options
    runners = ("sync",)
    def agent(self): ...
    def buffer(self): ...
    def update(self): ...
    def state_dict(self): ...
    def load_state_dict(self, state): ...
'''


@pytest.fixture
def package(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    site = tmp_path_factory.mktemp("site")
    points = {"rlplug.algorithms": {"deep": "rlplug_deep.deep:Algo"}}
    files = {"rlplug_deep/__init__.py": "", "rlplug_deep/deep.py": ALGORITHM}
    write_distribution(site, "rlplug-deep", points, files, summary="What the metadata says")
    monkeypatch.syspath_prepend(str(site))
    plugins.refresh()
    yield site / "rlplug_deep"
    monkeypatch.undo()
    forget()
    plugins.refresh()


def forget() -> None:
    for name in [name for name in sys.modules if name.startswith("rlplug_deep")]:
        del sys.modules[name]


def test_check_reports_missing_and_outdated_index(rlplug: Callable[..., Any], package: Path) -> None:
    assert "What the metadata says (not indexed)" in rlplug("list").out
    result = rlplug("index", "rlplug-deep", "--check")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "algorithm 'deep' of rlplug-deep 1.0 has no index; write it with: rlplug index rlplug-deep" in result.err

    assert rlplug("index", "rlplug_deep").out == f"wrote {package / 'index' / 'deep.json'}\n"
    assert rlplug("index", "rlplug-deep", "--check").code == 0
    forget()
    assert "Does nothing." in rlplug("list").out
    assert "--depth INTEGER" in rlplug("run", "deep", "--help").out
    assert "rlplug_deep" not in sys.modules

    (package / "deep.py").write_text(ALGORITHM.replace("depth", "height"))
    assert "(not indexed)" in rlplug("list").out
    assert "--height INTEGER" in rlplug("run", "deep", "--help").out
    assert "is out of date" in rlplug("index", "rlplug-deep", "--check").err
