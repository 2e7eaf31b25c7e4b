"""An index describes a plugin without an import, and is used only if it matches the installed code."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlplug_core import plugins
from rlplug_core.config.run_options import RunOptions
from rlplug_core.config.schema import schema
from rlplug_core.errors import PluginError
from rlplug_core.plugins import index, indexing, reserved
from rlplug_core.testing.distributions import write_distribution

ALGORITHM = '''
"""Cross-entropy search (arXiv:1604.00772)."""
from dataclasses import dataclass
from typing import Literal
from rlplug_core.config.options import Config, Positive, log

@dataclass(frozen=True)
class Net:
    hidden: tuple[int, ...] = (64, 64)  # units per layer

@dataclass(frozen=True)
class CEMConfig(Config):
    learning_rate: Positive = 1e-3     # step size
    elite: float | None = None  # share kept
    kind: Literal["a", "b"] = "a"
    net: Net = Net()
    search = {"learning_rate": log(1e-5, 1e-2)}

class CEM:
    Config = CEMConfig
    aliases = ("cross-entropy",)
    runners = ("sync",)
    def agent(self): ...
    def buffer(self): ...
    def update(self): ...
    def state_dict(self): ...
    def load_state_dict(self, state): ...
'''

OPTION = {
    "name": "width", "type": "float", "default": 1.0, "help": "", "choices": [], "minimum": None, "maximum": None,
    "open_minimum": False, "optional": False, "search": None, "scheduled": False,
}  # fmt: skip


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    points = {"rlplug.algorithms": {"cem": "rlplug_cem.cem:CEM"}, "rlplug.hooks": {"talk": "rlplug_cem.talk"}}
    files = {"rlplug_cem/__init__.py": "", "rlplug_cem/cem.py": ALGORITHM, "rlplug_cem/talk.py": '"""Talks."""'}
    write_distribution(tmp_path, "rlplug-cem", points, files)
    plugins.refresh()
    yield tmp_path
    monkeypatch.undo()
    for name in [name for name in sys.modules if name.startswith(("rlplug_cem", "foreign"))]:
        del sys.modules[name]
    plugins.refresh()


def read() -> tuple[index.Index | None, str]:
    plugins.refresh()
    return index.read(plugins.find("algorithms", "cem"))


def edit(site: Path, **changes: Any) -> None:
    path = site / "rlplug_cem" / "index" / "cem.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_index_describes_the_code(site: Path) -> None:
    assert read() == (None, "it has no index")
    record = plugins.find("algorithms", "cem")
    assert "no index" in indexing.drift(record)
    assert indexing.write(record) == site / "rlplug_cem" / "index" / "cem.json"
    assert indexing.drift(record) == ""
    found, reason = read()
    assert found is not None
    assert reason == ""
    assert (found.summary, found.paper) == ("Cross-entropy search (arXiv:1604.00772).", "arXiv:1604.00772")
    cls: Any = plugins.algorithm("cem")
    assert index.options(found) == schema(cls.Config)
    assert list(found.modules) == ["rlplug_cem.cem"]


def test_reading_an_index_does_not_import_the_plugin(site: Path) -> None:
    indexing.write(plugins.find("algorithms", "cem"))
    del sys.modules["rlplug_cem.cem"], sys.modules["rlplug_cem"]
    assert read()[0] is not None
    assert plugins.find("algorithms", "cross-entropy").id == "cem"
    assert "rlplug_cem" not in sys.modules


def test_index_of_other_code_is_not_used(site: Path) -> None:
    record = plugins.find("algorithms", "cem")
    indexing.write(record)
    (site / "rlplug_cem" / "cem.py").write_text(ALGORITHM + "\n")
    assert read() == (None, "its index was made from another version of 'rlplug_cem.cem'")
    assert indexing.drift(record).endswith("rlplug index rlplug-cem")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"id": "ppo"}, "its index is that of algorithms 'ppo'"),
        ({"format": 1}, "format 2 expected"),
        ({"modules": {"json": "0"}}, "was made from another version of 'json'"),
        ({"modules": {"absent.module": "0"}}, "was made from another version of 'absent.module'"),
        ({"surprise": 1}, "'surprise' is unknown"),
        ({"summary": 3}, "'summary' is unknown or of a wrong type"),
        ({"options": [{"name": 3}]}, "cannot be read"),
        ({"options": [3]}, "cannot be read"),
        ({"options": [{**OPTION, "name": "a name"}]}, "'a name' cannot be an option's name"),
        ({"options": [{**OPTION, "type": "matrix"}]}, "option 'width' has the unknown type 'matrix'"),
        ({"options": [{**OPTION, "more": 1}]}, "option 'width' has other keys than this version knows"),
    ],
)
def test_invalid_index_is_not_used(site: Path, changes: dict[str, Any], reason: str) -> None:
    indexing.write(plugins.find("algorithms", "cem"))
    edit(site, **changes)
    found, message = read()
    assert found is None
    assert reason in message


def test_removes_escape_codes_from_index(site: Path) -> None:
    indexing.write(plugins.find("algorithms", "cem"))
    edit(site, paper="\x1b[31mred", options=[{**OPTION, "help": "\x9b2Jgone", "default": "\x1b[31m"}])
    found, _ = read()
    assert found is not None
    assert all(text.isprintable() for text in (found.paper, *(str(value) for value in found.options[0].values())))


def test_index_with_reserved_option_is_not_used(site: Path) -> None:
    path = indexing.write(plugins.find("algorithms", "cem"))
    path.write_text(path.read_text().replace('"name": "learning_rate"', '"name": "seed"'))
    assert "option 'seed' is a reserved run option" in read()[1]


@pytest.mark.parametrize("name", ["seed", "total_timesteps", "name", "config"])
def test_algorithm_with_reserved_option_raises(site: Path, name: str) -> None:
    (site / "rlplug_cem" / "cem.py").write_text(ALGORITHM.replace("learning_rate: Positive", f"{name}: Positive"))
    with pytest.raises(PluginError, match=f"has an option '{name}', which is reserved"):
        indexing.make(plugins.find("algorithms", "cem"))


def test_index_covers_modules_of_other_distributions(site: Path) -> None:
    (site / "foreign").mkdir()
    (site / "foreign" / "__init__.py").write_text(ALGORITHM)
    (site / "rlplug_cem" / "cem.py").write_text(
        "from dataclasses import dataclass\nimport foreign\n"
        "@dataclass(frozen=True)\nclass Config(foreign.CEMConfig): extra: int = 1\n"
        "class CEM(foreign.CEM): Config = Config\n"
    )
    indexing.write(plugins.find("algorithms", "cem"))
    found, _ = read()
    assert found is not None
    assert list(found.modules) == ["foreign", "rlplug_cem.cem"]
    (site / "foreign" / "__init__.py").write_text(ALGORITHM.replace("1e-3", "1e-4"))
    assert read() == (None, "its index was made from another version of 'foreign'")


def test_reserved_names_are_the_run_options() -> None:
    assert {option.name for option in schema(RunOptions)} == reserved.RUN_OPTIONS


def test_incomplete_json_is_not_used(site: Path) -> None:
    path = indexing.write(plugins.find("algorithms", "cem"))
    path.write_text(path.read_text()[:-20])
    assert "cannot be read" in read()[1]


def test_hook_module_has_an_index(site: Path) -> None:
    found = indexing.make(plugins.find("hooks", "talk"))
    assert (found.summary, list(found.modules)) == ("Talks.", ["rlplug_cem.talk"])


def test_presets_may_describe_a_variant(site: Path) -> None:
    """Summary and paper come from the presets if they are there; the options come from the class."""
    presets = site / "rlplug_cem" / "presets" / "cem.toml"
    presets.parent.mkdir()
    presets.write_text('summary = "Cross-entropy with elites (arXiv:1234.56789)"\n[default]\nelite = 0.5')
    entry = indexing.make(plugins.find("algorithms", "cem"))
    assert (entry.summary, entry.paper) == ("Cross-entropy with elites (arXiv:1234.56789)", "arXiv:1234.56789")
    assert next(option.default for option in index.options(entry) if option.name == "elite") is None
